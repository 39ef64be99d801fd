"""What users may set of pods, whichever launcher creates them, and manifests as YAML text. Pure.

Names follow k8s.io/apimachinery/pkg/util/validation (qualified names, label values, DNS
subdomains).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cache, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from fabbench.catalog.images import DEFAULT, default_image
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.mappings import Names, distinct, without_empty
from fabbench.model.options import RARE, LauncherOptions, Text, Type, option
from fabbench.model.templates import text_of

if TYPE_CHECKING:
    import yaml

_SUBDOMAIN = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_WORD = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_NAME = rf"^(?=.{{1,253}}$){_SUBDOMAIN}$"
_KEY = re.compile(rf"(?:{_SUBDOMAIN}/)?{_WORD}")
_VALUE = re.compile(rf"(?:{_WORD})?")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
Object: TypeAlias = dict[str, Any]
"""An object of a cluster, or a part of one, as the API takes and returns it."""
Objects: TypeAlias = Sequence[Object]
Labels: TypeAlias = Mapping[str, str]
"""Labels or annotations of an object: key → value."""
# Labels by which fabbench, Jobs, JobSets and Kubeflow find pods.
_RESERVED = re.compile(
    r"fabbench/.*|app\.kubernetes\.io/name|job-name|controller-uid|"
    r"(?:batch|statefulset)\.kubernetes\.io/.*|train(?:ing|er)\.kubeflow\.org/.*|"
    r"jobset\.sigs\.k8s\.io/.*"
)


@dataclass(frozen=True, slots=True)
class Toleration:
    """A taint that pods tolerate. `value` None: any value. `effect` empty: any effect."""

    key: str
    value: str | None = None
    effect: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``KEY[=VALUE][:EFFECT]``, as kubectl writes taints. Raise ValueError."""
        taint, colon, effect = text.partition(":")
        key, equals, value = taint.partition("=")
        known_effect = not colon or effect in _EFFECTS
        if not known_effect or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            effects = ", ".join(_EFFECTS)
            raise ValueError(
                f"{text!r} is not a valid toleration; use KEY[=VALUE][:EFFECT] with one of the "
                f"effects {effects}"
            )
        return cls(key, value if equals else None, effect)  # None: any value, unlike an empty one

    def covers(self, key: str, value: str, effect: str) -> bool:
        """Return whether it tolerates this taint."""
        if key != self.key:
            return False
        return self.value in {None, value} and self.effect in {"", effect}

    def manifest(self) -> dict[str, str]:
        """Return it as in a pod spec."""
        fields = {"key": self.key, "operator": "Exists"}
        if self.value is not None:
            fields |= {"operator": "Equal", "value": self.value}
        if self.effect:
            fields["effect"] = self.effect
        return fields


def default_tolerations() -> tuple[Toleration, ...]:
    """Return the tolerations of all of fabbench's pods."""
    from fabbench.catalog.kubernetes_resources import TOLERATED

    return tuple(map(Toleration, TOLERATED))


_ANY = re.compile(r"(?s:.*)")
_NONE = re.compile(r"(?!)")


def _key_and_value(
    text: str, *, values: re.Pattern[str] = _ANY, reserved: re.Pattern[str] = _NONE
) -> tuple[str, str]:
    """Read ``KEY=VALUE`` whose value matches `values` and whose key is not `reserved`.

    Raise ValueError.
    """
    key, equals, value = text.partition("=")
    if not equals or not _KEY.fullmatch(key) or not values.fullmatch(value):
        raise ValueError(
            f"{text!r} is not a valid Kubernetes KEY=VALUE; use team=network, or "
            "example.com/team=network"
        )
    if reserved.fullmatch(key):
        raise ValueError(f"{text!r} sets {key}, which is reserved; choose another key")
    return key, value


def _checked_request(text: str) -> str:
    """Check ``NAME=AMOUNT``, and return it. Raise ValueError for what pods cannot request."""
    from fabbench.catalog.kubernetes_resources import PodResources, override_resources

    try:
        override_resources(PodResources(), (text,))
    except RequestError as error:
        sentence = str(error).rstrip(".")
        hint = (error.hint or "").rstrip(".")
        raise ValueError(f"{sentence}. {hint}") from None
    return text


@dataclass(frozen=True, kw_only=True)
class PodOptions(LauncherOptions):
    """What users add to pods."""

    tolerations: tuple[Toleration, ...] = option(
        Type("KEY[=VALUE][:EFFECT]", "KEY[=VALUE][:EFFECT]", Toleration.parse),
        "Tolerate this taint, in addition to those of GPU and EFA nodes. Can be given several "
        "times.",
        "--toleration",
        many=tuple,
    )
    node_selector: Labels = option(
        Type("KEY=VALUE", "KEY=VALUE", partial(_key_and_value, values=_VALUE)),
        "Use only nodes with this label (also the pods' nodeSelector). Can be given several times.",
        many=dict,
    )
    pull_secrets: Names = option(
        Text("the name of a secret", "NAME", _NAME),
        "Image pull secret in the namespace. Can be given several times.",
        RARE,
        many=tuple,
    )
    runtime_class: str = option(
        Text("the name of a RuntimeClass", "NAME", _NAME),
        "RuntimeClass of the benchmark pods.",
        RARE,
        unset="",
    )
    labels: Labels = option(
        Type("KEY=VALUE", "KEY=VALUE", partial(_key_and_value, values=_VALUE, reserved=_RESERVED)),
        "Label for the pods and their Job, such as kueue.x-k8s.io/queue-name=team. Can be given "
        "several times.",
        "--pod-label",
        many=dict,
    )
    pod_requests: tuple[str, ...] = option(
        Type("NAME=AMOUNT", "NAME=AMOUNT", _checked_request),
        "Override a resource request of each pod, such as cpu=8, memory=64Gi, shm=8Gi (/dev/shm), "
        "nvidia.com/gpu=4. Can be given several times.",
        "--pod-request",
        many=tuple,
    )
    annotations: Labels = option(
        Type("KEY=VALUE", "KEY=VALUE", partial(_key_and_value, reserved=_RESERVED), any_lines=True),
        "Annotation for the pods and their Job. Can be given several times.",
        RARE,
        many=dict,
    )

    @property
    def all_tolerations(self) -> tuple[Toleration, ...]:
        """Return the tolerations of all of fabbench's pods, then the user's."""
        return distinct((*default_tolerations(), *self.tolerations))

    def metadata(self, annotations: Labels) -> Object:
        """Return the field ``metadata`` with the user's labels and with annotations, if any."""
        given = {"labels": dict(self.labels), "annotations": dict(annotations)}
        return without_empty({"metadata": without_empty(given)})

    def pod_spec(self) -> Object:
        """Return the pod spec fields that these options set."""
        fields: Object = {
            "tolerations": [each.manifest() for each in self.all_tolerations],
            "nodeSelector": self.node_selector,
            "imagePullSecrets": [{"name": name} for name in self.pull_secrets],
            "runtimeClassName": self.runtime_class,
        }
        return without_empty(fields)

    @override
    def for_benchmark(self, benchmark: str, fabrics: Sequence[str]) -> Self:
        image = default_image(benchmark, fabrics)
        # An image that the user chose stays, and so do nodes that have none.
        if not image or getattr(self, "node_image", "") != DEFAULT:
            return self
        usual: Object = {"image": image}  # a field that this class itself lacks
        return replace(self, **usual)


_EMPTY: tuple[object, ...] = (None, "", [], {})


@cache
def forms(package: str, name: str) -> Object:
    """Return a YAML file of a package whose parts `filled` fills in."""
    import yaml

    loaded: Object = yaml.safe_load(text_of(package, name))
    return loaded


def filled(part: Any, values: Mapping[str, Any]) -> Any:
    """Return a part of a manifest with its values filled in: see kubernetes/manifests.yaml."""
    if isinstance(part, dict):
        return _filled_fields(part, values)
    if isinstance(part, list):
        return [filled(each, values) for each in part]
    if isinstance(part, str) and part.startswith("$"):
        # PyYAML writes a value that occurs twice as an alias, unless it is a copy.
        return deepcopy(_value_at(part[1:], values))
    return part


def _filled_fields(part: Object, values: Mapping[str, Any]) -> Object:
    # ``KEY if PATH`` is a field only where that value is true; ``also`` adds those of a mapping.
    fields: Object = {}
    for key, each in part.items():
        name, _, condition = key.partition(" if ")
        if condition and not _value_at(condition, values):
            continue
        value = filled(each, values)
        if name == "also":
            fields |= value
        elif value not in _EMPTY:
            fields[name] = value
    return fields


def _value_at(path: str, values: Mapping[str, Any]) -> Any:
    """Return the value of ``NAME`` or ``NAME.ATTRIBUTE``; a sequence as a list, as YAML has it."""
    name, _, attributes = path.partition(".")
    value = attrgetter(attributes)(values[name]) if attributes else values[name]
    return [*value] if isinstance(value, tuple) else value


# Strings that PyYAML leaves unquoted but the API reads as numbers or booleans: ``7e12``.
_AMBIGUOUS = re.compile(r"[-+]?[\d._]+([eE][-+]?[\d_]+)?|0o[0-7_]+|[yYnN]")


def yaml_documents(
    objects: Iterable[Object], comment: str, *, compact: bool = False, explicit_start: bool = True
) -> str:
    """Write objects as YAML documents below `comment`. `compact` puts small values on one line."""
    import yaml

    text: str = yaml.dump_all(
        objects,
        Dumper=_dumper(compact=compact),
        explicit_start=explicit_start,
        sort_keys=False,
        width=118,
        allow_unicode=True,
    )
    # Some lines of the comment may be written as such already.
    lines = [line.removeprefix("# ") for line in comment.split("\n") if line]
    return "".join(f"# {line}\n" for line in lines) + text


_LONGEST_FLOW = 105  # Maximum characters of a value that `compact` writes on one line


def _fits_a_line(value: Any) -> bool:
    """Return whether a value reads well on one line: a short list or mapping that is not empty.

    Strings of several lines, and lists of objects inside of it, need their own lines.
    """
    several = isinstance(value, list) and len(value) > 1
    if several and isinstance(value[0], dict):
        return False  # A line for each object, so that a diff shows which changed
    text = str(value)
    if "\\n" in text or "[{" in text[1:]:  # a list of one object begins so, and may fit
        return False
    return 2 < len(text) <= _LONGEST_FLOW  # two are the brackets of an empty one


def _dumper(*, compact: bool) -> "type[yaml.SafeDumper]":
    """Return PyYAML's dumper for readable strings and `compact`: a class of its own for each."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """Writes multi-line strings as block scalars."""

    def block(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        # Quoted, if the API would read it as a number or a boolean; `|`: several lines.
        style = "'" if _AMBIGUOUS.fullmatch(text) else None
        if "\n" in text:
            style = "|"
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    def flows(value: Any) -> bool:
        return compact and _fits_a_line(value)

    def mapping(dumper: yaml.SafeDumper, value: Object) -> yaml.Node:
        return dumper.represent_mapping("tag:yaml.org,2002:map", value, flow_style=flows(value))

    def sequence(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.Node:
        return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=flows(value))

    Dumper.add_representer(str, block)
    Dumper.add_representer(dict, mapping)
    Dumper.add_representer(list, sequence)
    return Dumper
