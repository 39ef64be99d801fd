"""Variants: the same plan with other libraries, programs, variables, interface or image. Pure.

A variant is compared like a fabric is. Its programs are looked for in its folders first. Its libraries are
put before those that a process inherits, by a shell that stands before the program: so they come first on
every host, whatever mpirun, ssh or an image has set there.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Protocol

from fabbench.errors import RequestError
from fabbench.fabrics import FABRICS
from fabbench.hosts.places import BELOW_PREFIX, LIBRARIES_BELOW_PREFIX
from fabbench.model import Command, Step
from fabbench.redaction import shown

NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")
"""Names that do in labels and in names of files."""
TAKEN = frozenset({*FABRICS, "ab", "all", "auto"})
"""Names that would be taken for something else."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KEY = re.compile(r"(?:^|,)(?=(?:env\.)?[A-Za-z_][A-Za-z0-9_]*=)")
_KEYS = ("path", "image", "interface", "mpirun")
_HINT = "Write NAME=/FOLDER, or NAME=KEY=VALUE: path, image, interface, mpirun, or a variable in capitals."
# "$1" and "$2": folders of programs and of libraries.
_BEFORE = (
    "PATH=$1${PATH:+:$PATH} LD_LIBRARY_PATH=$2${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; "
    'export PATH LD_LIBRARY_PATH; shift 2; exec "$@"'
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What is otherwise in some of the arms. Without anything but a name it is the plan as it is."""

    name: str
    env: Mapping[str, str] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    """Folders on the hosts that something was installed into, with `bin` and `lib` or the like below."""
    image: str = ""
    interface: str = ""
    mpirun: str = ""

    @property
    def programs(self) -> tuple[str, ...]:
        """Folders in which programs are looked for first."""
        return tuple(below(path, name) for path in self.paths for name in BELOW_PREFIX)

    @property
    def libraries(self) -> tuple[str, ...]:
        """Folders that come first in LD_LIBRARY_PATH."""
        return tuple(below(path, name) for path in self.paths for name in LIBRARIES_BELOW_PREFIX)

    def words(self, argv: Sequence[str], folders: Sequence[str] = ()) -> tuple[str, ...]:
        """Give the words that start a program with the variant's libraries.

        `folders` come before `bin` in the PATH with which it is looked for, and which it gets.
        """
        if not self.paths:
            return tuple(argv)
        path = dict.fromkeys((*folders, *(below(each, "bin") for each in self.paths)))
        return ("sh", "-c", _BEFORE, "sh", ":".join(path), ":".join(self.libraries), *argv)

    def __str__(self) -> str:
        """Say what it is: folders, then whatever else it sets. No secrets are shown."""
        others = {key: getattr(self, key) for key in _KEYS[1:]}
        set_ = [f"{key} {value}" for key, value in others.items() if value]
        env = (f"{name}={shown(name, value)}" for name, value in self.env.items())
        return ", ".join((*self.paths, *set_, *env)) or "everything as it is"


AS_IT_IS = Variant(name="")
"""No variant."""


class Seen(Protocol):
    """What a host must say of its programs; see `fabbench.machines.Host`."""

    @property
    def programs(self) -> Mapping[str, str]:
        """Program → path."""

    @property
    def searched(self) -> Mapping[str, tuple[str, ...]]:
        """Program → folders in which it is to be looked for when it is started."""


def applied(step: Step, env: Mapping[str, str], variant: Variant, fabric: str, hosts: Sequence[Seen]) -> Step:
    """Give a step as a variant has it, with environment for all its commands.

    What the fabric needs stays as it is. Raises RequestError for a variant that sets it otherwise.
    """
    for command in step.commands:
        for name, value in variant.env.items():
            if command.env.get(name, value) != value:
                raise RequestError(
                    f"The variant {variant.name} sets {name}={value}, which is {command.env[name]} where "
                    f"{fabric} is measured: with another value it would not be proven.",
                    hint="Leave it out. What fabbench sets is in the run's plan.json.",
                )
    env = {**env, **variant.env}
    return replace(step, commands=tuple(_command(each, env, variant, hosts) for each in step.commands))


def _command(command: Command, env: Mapping[str, str], variant: Variant, hosts: Sequence[Seen]) -> Command:
    changed = replace(
        command,
        env={**env, **command.env},
        unset=tuple(name for name in command.unset if name not in env),
    )
    if not variant.name:
        return changed
    host, name = hosts[command.host], command.argv[0]
    words = (host.programs.get(name, name), *command.argv[1:])
    return replace(changed, argv=variant.words(words, host.searched.get(name, ())))


def refuse_images(variants: Sequence[Variant], who: str) -> None:
    """Raise RequestError for a variant with an image, where `who` has no use for several."""
    named = next((variant for variant in variants if variant.image), None)
    if named is not None:
        raise RequestError(
            f"The variant {named.name} names an image, and {who} cannot change images within one run.",
            hint="Run once with each image (--image), and put the runs side by side: fabbench compare.",
        )


# ---------------------------------------------------------------- as they are written


def read_variants(texts: Sequence[str], known: Mapping[str, Variant]) -> tuple[Variant, ...]:
    """Read ``NAME``, ``NAME=/FOLDER:/FOLDER`` and ``NAME=KEY=VALUE,KEY=VALUE``; those of one name add up.

    A bare name is one of those `known`. Raises RequestError for what is none of these.
    """
    found: dict[str, Variant] = {}
    for text in texts:
        name, equals, _ = text.partition("=")
        check_name(name)
        if not equals and name not in known:
            listed = f"fabbench.yaml has {', '.join(known)}" if known else "fabbench.yaml has none"
            raise RequestError(f"Nothing says what the variant {name} is: {listed}.", hint=_HINT)
        found.setdefault(name, known[name] if name in texts and name in known else Variant(name=name))
    for text in texts:
        name, equals, rest = text.partition("=")
        if equals:
            found[name] = _added(found[name], rest, text)
    return tuple(found.values())


def from_settings(name: str, settings: Mapping[str, Any]) -> Variant:
    """Make a variant of plain values, such as those of a file. Raises RequestError."""
    check_name(name)
    paths = tuple(path for text in settings.get("paths") or () for path in _folders(str(text), name))
    others = {key: str(settings.get(key) or "") for key in _KEYS[1:]}
    return Variant(name=name, env=dict(settings.get("env") or {}), paths=paths, **others)


def check_name(name: str) -> None:
    """Raise RequestError for a name that would not do in labels and names of files."""
    if not NAME.fullmatch(name):
        raise RequestError(
            f"{name!r} cannot be the name of a variant.",
            hint="Up to 40 letters, digits and . _ - can be in it, and the first is a letter or a digit.",
        )
    if name in TAKEN:
        raise RequestError(
            f"A variant cannot be named {name}: its column would be taken for something else.",
            hint=f"Name it otherwise, such as {name}-1.",
        )


def _added(variant: Variant, rest: str, text: str) -> Variant:
    """Add what stands behind the first ``=``."""
    if rest.startswith("/"):
        return replace(variant, paths=(*variant.paths, *_folders(rest, variant.name)))
    env, paths, others = dict(variant.env), [*variant.paths], {}
    for pair in filter(None, _KEY.split(rest)):
        key, equals, value = pair.partition("=")
        variable = key.removeprefix("env.")
        if key == "path" and equals:
            paths += _folders(value, variant.name)
        elif key in _KEYS and value:
            others[key] = value
        elif equals and (key != variable or key.isupper()) and _VARIABLE.fullmatch(variable):
            env[variable] = value
        else:
            raise RequestError(f"--variant {text} cannot be read at {pair!r}.", hint=_HINT)
    return replace(variant, env=env, paths=tuple(paths), **others)


def _folders(text: str, name: str) -> tuple[str, ...]:
    folders = [folder.rstrip("/") or "/" for folder in text.split(":") if folder]
    wrong = next((folder for folder in folders if not folder.startswith("/")), None)
    if wrong is not None or not folders:
        raise RequestError(
            f"The variant {name} has the folder {wrong or text!r}, which is no whole path.",
            hint="Write it as all hosts have it, such as /opt/nvshmem-3.6.5.",
        )
    return tuple(folders)


def below(path: str, name: str) -> str:
    """Give the folder of a name below another; the folder itself for no name."""
    return f"{path.rstrip('/')}/{name}".rstrip("/") or "/"


def named(variants: Sequence[Variant], name: str) -> Variant:
    """Find a variant; `AS_IT_IS` for no name."""
    return next(chain((each for each in variants if each.name == name), (AS_IT_IS,)))
