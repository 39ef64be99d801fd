"""Options, declared once: fields of frozen dataclasses.

The command line, `fabbench.yaml`, its JSON schema and the documentation are made from them. A field made by
`option` is one; its default applies where nothing sets it.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeVar

from fabbench.model.errors import RequestError
from fabbench.model.messages import RARE as RARE  # noqa: PLC0414 - exported
from fabbench.model.option_types import Environment, Flag, Type

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option."""

    name: str = ""
    type: Type
    help: str
    flags: tuple[str, ...] = ()  # On the command line; none: only `fabbench.yaml` has it. `RARE` begins a rare one
    many: Callable[[Iterable[Any]], Any] | None = None  # Combines several values: `tuple`, `dict`; None: there is one
    default: str | tuple[str, ...] = ""  # As users write it; empty: there is none, or `help` states it
    only: Literal["", "run", "render"] = ""  # The only command in which it has an effect; empty: both
    variable: str = ""  # The environment variable that also sets it, if there is one
    reaches: bool = False  # Whether it says how to reach the machines: `fabbench clean` has it, too

    @property
    def key(self) -> str:
        """The key in `fabbench.yaml`."""
        return self.name.replace("_", "-")

    @property
    def expected(self) -> str:
        """What is expected in `fabbench.yaml`, in words."""
        return f"a list, each {self.type.expected}" if self.many and not self.type.lists else self.type.expected

    @property
    def long(self) -> str:
        """The long flag; of an option without flags, its key."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.key)

    @property
    def rare(self) -> bool:
        """Whether ``--set`` sets it."""
        return self.long.startswith(RARE)

    @property
    def word(self) -> str:
        """Its long flag without dashes, or its key: its name in ``defaults.run`` of `fabbench.yaml`."""
        return self.long.removeprefix(RARE).removeprefix("--")

    def schema(self) -> dict[str, Any]:
        """Return JSON Schema of its value, with what it means."""
        each = dict(self.type.schema)
        if self.many and not self.type.lists:
            each = {"type": "array", "items": each, "minItems": 1}
        return {"description": self.help, **each}


def option(  # noqa: PLR0913 - everything that describes an option
    type_: Type,
    help_: str,
    *flags: str,
    default: Any = None,
    unset: Any = None,
    many: Callable[[Iterable[Any]], Any] | None = None,
    only: Literal["", "run", "render"] = "",
    reaches: bool = False,
    variable: str = "",
) -> Any:
    """Declare the field of an option.

    `flags` are those of the command line; without any, one is made from the field's name. `RARE` is that of an
    option that few people need. `default` is written as users would (``2G``, a tuple of texts where there may be
    several); None: the value is `unset`, or False for a `Flag`, or an empty collection.
    """
    shown: str | tuple[str, ...] = "" if default is None else default
    if isinstance(type_, Flag):
        value: Any = False
    elif many:
        value = many(type_.parse(text) for text in shown)
    else:
        value = unset if default is None else type_.parse(default)
    flags = flags or (() if isinstance(type_, Environment) else ("",))
    metadata = {
        "option": Option(
            type=type_, help=help_, flags=flags, many=many, default=shown, only=only, reaches=reaches, variable=variable
        )
    }
    # dataclasses refuse a mutable mapping as the default itself.
    made: Any = field(default_factory=lambda: value, metadata=metadata)
    return made if many else field(default=value, metadata=metadata)


def unique(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the values in their order, each once."""
    return tuple(dict.fromkeys(values))


def flattened(values: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    """Return the values of several lists."""
    return tuple(value for each in values for value in each)


@cache
def declared(kind: type) -> Mapping[str, Option]:
    """Return the options that a dataclass declares, by the names of its fields."""
    options = {}
    for each in fields(kind):
        if isinstance(known := each.metadata.get("option"), Option):
            key = each.name.replace("_", "-")
            flags = tuple({"": f"--{key}", RARE: f"{RARE}{key}"}.get(flag, flag) for flag in known.flags)
            options[each.name] = replace(known, name=each.name, flags=flags)
    return MappingProxyType(options)


def parsed(known: Option, given: Any) -> Any:
    """Return the value of an option from its text or texts, or whether a flag is given. Raise ValueError."""
    if isinstance(known.type, Flag):
        return bool(given)
    if known.many:
        return known.many(known.type.parse(text) for text in given)
    return known.type.parse(given)


def read_options(kind: type[T], given: Mapping[str, Any]) -> T:
    """Return options from what `parsed` takes, by field name. Raise RequestError for an invalid one."""
    known = declared(kind)
    return kind(**{name: read_option(known[name], value) for name, value in given.items()})


def read_option(known: Option, given: Any) -> Any:
    """Return the value of one option as `parsed` does. Raise RequestError that names it."""
    try:
        return parsed(known, given)
    except ValueError as error:
        shown = ", ".join(map(repr, given)) if known.many else repr(given)
        reason = str(error) or f"{shown} is not {known.type.expected}"
        hint = f"{known.long} {known.type.metavar}: {known.help}"
        raise RequestError(f"{known.long}: {reason}.", hint=hint) from None


def written(options: object) -> dict[str, Any]:
    """Return the values of declared options as records store them, by name."""
    return {name: each.type.write(getattr(options, name)) for name, each in declared(type(options)).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class LauncherOptions:
    """Options of one launcher, or of one format of ``fabbench render``: the base class of each one's own.

    Besides these, all of them have the options that are fields of `fabbench.model.hosts.Target`.
    """

    without: ClassVar[Collection[str]] = ()  # Options of targets or benchmarks without effect here, as `hosts`
    requires: ClassVar[Collection[str]] = ()  # Options that a target of `fabbench.yaml` must have
    divides: ClassVar[bool] = False  # Whether some machines can run an execution while others run another, as sweeps do
    order: ClassVar[int] = 0  # In which order `surroundings` are checked, where no target is given; 0: never

    def surroundings(self, environment: Mapping[str, str]) -> tuple[bool, str]:
        """Return whether the environment of the program implies this launcher. Raise MachineError.

        And why it does, or what is missing, to follow a colon.
        """
        del environment
        return False, ""

    def __post_init__(self) -> None:
        """Raise RequestError for options that conflict."""
