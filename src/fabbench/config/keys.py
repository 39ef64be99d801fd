"""The keys of `fabbench.yaml`: the one table for validation, the JSON schema and the documentation."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from fabbench.config.kinds import (
    Choice,
    File,
    Flag,
    Hosts,
    Kind,
    Reading,
    Text,
    Texts,
    Whole,
    each_entry,
    unknown,
)
from fabbench.config.mappings import Environment, Options, Plain
from fabbench.config.tree import Entries, Node, Scalar, describe
from fabbench.errors import RequestError
from fabbench.variants import NAME, TAKEN, Variant, from_settings

LAUNCHERS = ("local", "ssh", "slurm", "kubernetes", "mpijob", "skypilot")
"""fabbench's own. Another one may have every key: what it knows is its own affair."""

_TARGET_NAME = Text(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
_WORD = r"^[^\s-]\S*$"
"""No word that a program could take for an option."""


@dataclass(frozen=True, slots=True)
class Key:
    """One key. `launchers` are those that know it (none: all do), `required_by` those that need it."""

    name: str
    kind: Kind
    about: str
    launchers: tuple[str, ...] = ()
    required_by: tuple[str, ...] = ()

    def known_to(self, launcher: str) -> bool:
        """Whether targets of a launcher may have the key."""
        return not self.launchers or launcher in self.launchers or launcher not in LAUNCHERS


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping with these keys. One that is there and empty is as good as absent."""

    keys: tuple[Key, ...]
    wanted: str = "a mapping"

    def read(
        self, node: Node, place: str, reading: Reading, *, proposed: Collection[str] | None = None
    ) -> Mapping[str, Any]:
        """Give key → value, of what is right. Where a key is unknown, `proposed` are named (None: all)."""
        if isinstance(node, Scalar) and node.type == "null":
            return {}
        known = {key.name: key for key in self.keys}
        if not isinstance(node, Entries):
            reading.wrong(node, place or "The file", f"{self.wanted} with some of {', '.join(known)}")
            return {}
        values: dict[str, Any] = {}
        for name, (key, value) in node.entries.items():
            if name in known:
                values[name] = known[name].kind.read(value, f"{place}.{name}".lstrip("."), reading)
            else:
                unknown(key, place, known if proposed is None else proposed, reading)
        return values

    def schema(self) -> dict[str, Any]:
        """Give an object of these properties and no others."""
        return {
            "type": ["object", "null"],
            "properties": {key.name: {"description": key.about, **key.kind.schema()} for key in self.keys},
            "additionalProperties": False,
        }


@dataclass(frozen=True, slots=True)
class LauncherName:
    """A launcher, of those there are."""

    wanted: str = "the name of a launcher"

    def read(self, node: Node, place: str, reading: Reading) -> str | None:
        """Give the name; None also for one that there is not."""
        text = Text(self.wanted).read(node, place, reading)
        if isinstance(node, Scalar) and text is not None and text not in reading.launchers:
            unknown(node, place, sorted(reading.launchers), reading, what="launcher")
            return None
        return text

    def schema(self) -> dict[str, Any]:
        """Propose fabbench's own; others may be installed."""
        return {"anyOf": [{"enum": list(LAUNCHERS)}, Text().schema()]}


@dataclass(frozen=True, slots=True)
class Targets:
    """Targets by name. Which keys one may have, and must have, depends on its launcher."""

    section: Section
    wanted: str = "a mapping of names to targets"

    def read(self, node: Node, place: str, reading: Reading) -> Mapping[str, Any]:
        """Give name → settings, the launcher among them."""
        if isinstance(node, Scalar) and node.type == "null":
            return {}
        return each_entry(node, place, reading, self.wanted, self._target) or {}

    def _target(self, key: Scalar, node: Node, place: str, reading: Reading) -> Mapping[str, Any]:
        self._check_name(key, reading)
        entries = node.entries if isinstance(node, Entries) else {}
        _, named = entries.get("launcher", (None, None))
        launcher = named.text if isinstance(named, Scalar) else ""
        valid = [each.name for each in self.section.keys if each.known_to(launcher)]
        values = self.section.read(node, place, reading, proposed=valid)
        if named is None and (isinstance(node, Entries) or describe(node) == "empty"):
            known = ", ".join(sorted(reading.launchers))
            reading.mistakes.add(key, f"{place} has no launcher. Add launcher: and one of {known}.")
        for each in self.section.keys if launcher in reading.launchers else ():
            if each.name in entries and each.name not in valid:
                text = f"{place}: {each.name} means nothing to the launcher {launcher}. "
                reading.mistakes.add(entries[each.name][0], f"{text}Valid here: {', '.join(valid)}.")
            elif launcher in each.required_by and each.name not in entries:
                text = f"{place} has no {each.name}, which the launcher {launcher} needs: {each.kind.wanted}."
                reading.mistakes.add(key, text)
        return values

    @staticmethod
    def _check_name(key: Scalar, reading: Reading) -> None:
        name = key.text
        if not _TARGET_NAME.fits(name):
            text = f"{name!r} cannot be the name of a target: only letters, digits and . _ - can be in it."
            reading.mistakes.add(key, text)
        elif name in {*LAUNCHERS, *reading.launchers}:
            text = f"A target cannot be named {name}, which is a launcher: --on {name} means that."
            reading.mistakes.add(key, text)

    def schema(self) -> dict[str, Any]:
        """Give an object of targets, each with the conditions that come from its launcher."""
        conditions: list[dict[str, Any]] = []
        for key in self.section.keys:
            if key.launchers:
                foreign = [name for name in LAUNCHERS if name not in key.launchers]
                then = {"properties": {"launcher": {"not": {"enum": foreign}}}}
                conditions.append({"if": {"required": [key.name]}, "then": then})
            if key.required_by:
                launcher = {"properties": {"launcher": {"enum": list(key.required_by)}}}
                conditions.append({"if": launcher, "then": {"required": [key.name]}})
        target = {**self.section.schema(), "type": "object", "required": ["launcher"], "allOf": conditions}
        return {
            "type": ["object", "null"],
            "propertyNames": {"pattern": _TARGET_NAME.pattern, "not": {"enum": list(LAUNCHERS)}},
            "additionalProperties": target,
        }


@dataclass(frozen=True, slots=True)
class Variants:
    """Variants by name."""

    section: Section
    wanted: str = "a mapping of names to variants"

    def read(self, node: Node, place: str, reading: Reading) -> Mapping[str, Variant]:
        """Give name → variant."""
        if isinstance(node, Scalar) and node.type == "null":
            return {}
        read = each_entry(node, place, reading, self.wanted, self._variant) or {}
        return {name: variant for name, variant in read.items() if variant is not None}

    def _variant(self, key: Scalar, node: Node, place: str, reading: Reading) -> Variant | None:
        settings = self.section.read(node, place, reading)
        try:
            return from_settings(key.text, settings)
        except RequestError as error:
            reading.mistakes.add(key, f"{error} {error.hint}")
            return None

    def schema(self) -> dict[str, Any]:
        """Give an object of variants."""
        return {
            "type": ["object", "null"],
            "propertyNames": {"pattern": NAME.pattern, "not": {"enum": sorted(TAKEN)}},
            "additionalProperties": self.section.schema(),
        }


_SSH = ("ssh",)
_BY_SSH = ("ssh", "slurm")
_PODS = ("kubernetes", "mpijob")
_SKY = ("skypilot",)
_SLURM = ("slurm",)
_IN_CLUSTERS = ("slurm", "kubernetes", "mpijob", "skypilot")

TARGET = Section((
    Key("launcher", LauncherName(), "How its machines are reached and programs are started there."),
    Key("hosts", Hosts(), "The machines; the first is the head node.", (*_BY_SSH, *_PODS), required_by=_SSH),
    Key("user", Text("a user", _WORD), "User to log in as, instead of the one in ssh-config.", _BY_SSH),
    Key("port", Whole(1, 65535), "Port of sshd, instead of the one in ssh-config.", _BY_SSH),
    Key("identity", File(), "Private key to log in with, instead of those in ssh-config.", _BY_SSH),
    Key("ssh-config", File(), "OpenSSH's client configuration. ~/.ssh/config if not given.", _BY_SSH),
    Key("accept-new-host-keys", Flag(), "Trust hosts that known_hosts does not have yet.", _BY_SSH),
    Key(
        "mpi-ssh",
        Choice(("ephemeral", "existing")),
        "How mpirun reaches the other hosts: with a key made for the run and removed after it, or as it is.",
        _SSH,
    ),
    Key("lost-after", Whole(1, 86400), "Seconds after which a silent host is given up.", (*_BY_SSH, *_PODS)),
    Key("nodes", Whole(1, 65536), "How many of the hosts are used (--nodes). All if not given."),
    Key("interface", Text("the name of an interface", _WORD), "Network interface of the hosts for TCP."),
    Key("bin-dirs", Texts("a list of folders"), "Folders on the hosts where programs are looked for first."),
    Key("mpirun", Text("a path"), "The mpirun on the hosts that is to be used."),
    Key("gpus", Whole(0, 1024), "GPUs of each host, where they are not to be counted."),
    Key("env", Environment(), "Environment of every benchmark on this target."),
    Key("image", Text("the name of an image"), "Container or machine image.", _IN_CLUSTERS),
    Key("kubeconfig", File(), "The kubeconfig; else KUBECONFIG or ~/.kube/config.", _PODS),
    Key("context", Text("the name of a context"), "Context of the kubeconfig, not the current one.", _PODS),
    Key("namespace", Text("a namespace", _WORD), "Namespace of the pods, not the context's own.", _PODS),
    Key("instance-type", Text("an instance type", _WORD), "Only nodes of this type.", _IN_CLUSTERS),
    Key("selector", Text("labels, as kubectl writes them"), "Only nodes with these labels.", _PODS),
    Key("mpi-agent", Choice(("ssh", "exec")), "How mpirun reaches the other pods.", ("kubernetes",)),
    Key("host-network", Flag(), "Pods in the nodes' own network: a variant of its own.", _PODS),
    Key(
        "start-timeout",
        Whole(1, 86400),
        "Seconds to wait until pods are ready, a job of Slurm's starts, or a cluster of SkyPilot's is up.",
        (*_PODS, *_SLURM, *_SKY),
    ),
    Key("login", Text("the name of a host", _WORD), "Login node, as ssh knows it; else this one.", _SLURM),
    Key("partition", Text("a partition", _WORD), "Slurm's partition, not its default one.", _SLURM),
    Key("account", Text("an account", _WORD), "The account that Slurm charges.", _SLURM),
    Key("qos", Text("a quality of service", _WORD), "Slurm's quality of service.", _SLURM),
    Key("time", Text("a time limit such as 2:00:00"), "Time limit of jobs, in quotes.", _SLURM),
    Key("reservation", Text("a reservation", _WORD), "A reservation of Slurm's.", _SLURM),
    Key("constraint", Text("features", _WORD), "Features that nodes must have.", _SLURM),
    Key("mpi", Choice(("srun", "mpirun")), "What starts the ranks in a job.", _SLURM),
    Key("container-mounts", Texts("a list of FROM:TO"), "Folders for the job's container.", _SLURM),
    Key("chdir", Text("a folder"), "Folder that the login node and all nodes share.", _SLURM),
    Key("sbatch-options", Texts("a list of NAME=VALUE"), "More options for sbatch.", _SLURM),
    Key("no-gres", Flag(), "Do not ask for GPUs: this Slurm does not count them.", _SLURM),
    Key("infra", Text("SkyPilot's name of a place", _WORD), "Where SkyPilot runs it: k8s, aws, slurm.", _SKY),
    Key("network-tier", Choice(("best", "standard")), "The network_tier that SkyPilot is asked for.", _SKY),
    Key("cluster-name", Text("a name", _WORD), "Name of SkyPilot's cluster. A new one if not given.", _SKY),
    Key("keep", Flag(), "Leave SkyPilot's cluster up at the end.", _SKY),
    Key("idle-minutes", Whole(1, 10080), "Minutes after which an idle cluster tears itself down.", _SKY),
    Key("pod-requests", Texts("a list of NAME=AMOUNT"), "What pods request, in place of that amount.", _PODS),
    Key("virtual-nodes", Whole(1, 1024), "Hosts that the GPUs of this machine are divided into.", ("local",)),
    Key("options", Plain(), "What only the launcher knows; it checks this itself."),
))  # fmt: skip

VARIANT = Section((
    Key(
        "paths",
        Texts("a list of folders", Text("a whole path", r"^/")),
        "Folders on the hosts: the programs and libraries installed there come first.",
    ),
    Key("env", Environment(), "Environment of the variant's arms."),
    Key("interface", Text("the name of an interface", _WORD), "Network interface of the hosts."),
    Key("mpirun", Text("a path"), "The mpirun on the hosts that is to be used."),
    Key("image", Text("the name of an image"), "Image of the containers."),
))  # fmt: skip

DEFAULTS = Section(
    (
        Key("repeat", Whole(1, 999), "Repeats of each arm (--repeat)."),
        Key(
            "fabrics",
            Texts("a list of fabrics", Text("the name of a fabric", _WORD)),
            "Arms, the first against the last (--fabric).",
        ),
        Key("run", Options(), "For each benchmark the defaults of its options, by their long names."),
    )
)

FILE = Section(
    (
        Key(
            "default",
            Text("the name of a target"),
            "Where to run when neither --on nor FABBENCH_TARGET says it.",
        ),
        Key("store", File("a folder"), "Folder where runs are kept, seen from the file."),
        Key("defaults", DEFAULTS, "Defaults of `fabbench run`."),
        Key("variants", Variants(VARIANT), "What else arms can differ in, by the names of --variant."),
        Key("targets", Targets(TARGET), "Places to run, by the names that --on takes."),
    )
)
