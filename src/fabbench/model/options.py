"""Options, declared once: fields of frozen dataclasses, and the types of their values.

The command line, `fabbench.yaml`, its JSON schema and the documentation are made from them. A field
made by `option` is one; its default applies where nothing sets it. Every value is read by its type,
wherever it comes from, so that nothing lets through what a shell, a batch script or a manifest
could misread.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self, TypeAlias

from fabbench.model.errors import RequestError
from fabbench.model.fabrics import AB, FABRICS, FABRICS_AND_PROVIDERS
from fabbench.model.hostlist import expand_hostlist
from fabbench.model.mappings import Names, Variables
from fabbench.model.messages import RARE as RARE  # noqa: PLC0414 - exported
from fabbench.model.patterns import lazy
from fabbench.model.units import format_size, parse_size, parse_sizes
from fabbench.model.values import frozen

FORMER = {"trials": "iterations", "test": "program"}
"""Long names that options had, without dashes → what they are now: both are taken."""

_DECIMAL = lazy(r"-?(?:0|[1-9]\d{0,17})", re.ASCII)
_TIME = lazy(r"(\d{1,18}(?:\.\d{0,18})?)([smh]?)", re.ASCII)
SECONDS_IN = {
    "": 1,
    "s": 1,
    "m": 60,
    "h": 3600,
    "d": 86400,
    "w": 604800,
}
_CONTROL = lazy(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


@dataclass(frozen=True, eq=False)
class Type:
    """The type of an option's value."""

    expected: str  # What is expected, in words: `a whole number from 1 to 65535`
    metavar: str  # The placeholder of the value in `--help`
    # The value of a text; None for an invalid one, or ValueError with the reason
    read: Callable[[str], Any]
    names: Sequence[str] = ()  # Values to complete and to suggest
    # Whether one value already stands for several, so that a file may have it without a list
    lists: bool = False
    any_lines: bool = False  # Whether it may have several lines

    def parse(self, text: str) -> Any:
        """Return the value of a text.

        Raise ValueError, with a reason if `expected` does not explain it.
        """
        if _CONTROL.search(text) and not self.any_lines:
            raise ValueError
        value = self.read(text)
        if value is None:
            raise ValueError
        return value


class Text(Type):
    """One line of text that has a pattern, not empty."""

    def __init__(
        self, expected: str = "a string", metavar: str = "TEXT", pattern: str = r"\S"
    ) -> None:
        def read(text: str) -> str | None:
            return text if re.search(pattern, text) else None

        super().__init__(expected, metavar, read)


AUTO = 0  # What ``auto`` is read as, where a number may be left to fabbench


class Whole(Type):
    """A whole number in decimal digits: ``022``, which is 18 to YAML, is refused.

    `auto`: it may be ``auto``.
    """

    def __init__(
        self, low: int, high: int | None = None, metavar: str = "N", *, auto: bool = False
    ) -> None:
        def read(text: str) -> int | None:  # None: no whole number in the range
            if auto and text == "auto":
                return AUTO
            if not _DECIMAL.fullmatch(text):
                return None
            number = int(text)
            too_large = high and number > high
            return None if number < low or too_large else number

        expected = f"a whole number of {low} or more"
        if high:
            expected = f"a whole number from {low} to {high}"
        if auto:
            expected = f"auto, or {expected}"
        super().__init__(expected, metavar, read)


class Seconds(Type):
    """A time in seconds, also as ``10m`` or ``2h``: at least `low`; without it, more than 0."""

    def __init__(self, low: int = 0) -> None:
        def read(text: str) -> float | None:
            time = _TIME.fullmatch(text)
            if time is None:
                return None
            seconds = float(time[1]) * SECONDS_IN[time[2]]
            return seconds if seconds and seconds >= low else None  # 0 is valid nowhere

        least = f"{low} or more" if low else "above 0"
        super().__init__(f"a number of seconds, {least}, or 10m, 2h", "SECONDS", read)


class Choice(Type):
    """One of a few words. `short` replaces them in ``--help``, where there are many."""

    def __init__(self, names: Sequence[str], short: str = "") -> None:
        def read(text: str) -> str | None:
            return text if text in names else None

        expected = ", ".join(names)
        alternatives = "|".join(names)
        placeholder = short or f"[{alternatives}]"
        super().__init__(f"one of {expected}", placeholder, read, names)


class Truth(Type):
    """True or false; ``yes`` and ``on``, which some YAML parsers read as strings, are refused."""

    def __init__(self) -> None:
        values = {"true": True, "false": False}
        super().__init__(
            "true or false",
            "[true|false]",
            lambda text: values.get(text.lower()),
        )


class Flag(Truth):
    """True if it is given on the command line."""


class File(Type):
    """A path on this machine; in a file, from its directory.

    `directory`: no file may have that name.
    """

    def __init__(
        self, expected: str = "a path", metavar: str = "FILE", *, directory: bool = False
    ) -> None:
        super().__init__(expected, metavar, _directory if directory else _path)


def _path(text: str) -> Path | None:  # None: blank
    try:
        path = Path(text).expanduser()
    except RuntimeError:
        raise ValueError(f"{text!r} is in a home directory that does not exist") from None
    return path if text.strip() else None


def _directory(text: str) -> Path | None:
    # One that exists, or may be made; None: blank.
    path = _path(text)
    is_file = path is not None and path.exists() and not path.is_dir()
    if is_file or "://" in text:
        raise ValueError(f"{text!r} is a URL or a file, but a directory is written to")
    return path


VARIABLE = r"^[A-Za-z_][A-Za-z0-9_]*$"  # The name of one


class Environment(Type):
    """Environment variables: a mapping in files.

    `passed`: a name alone is valid; its value is None, which stands for the current one.
    """

    def __init__(self, *, passed: bool = False) -> None:
        def read(text: str) -> tuple[str, str | None]:
            name, equals, value = text.partition("=")
            complete = passed or equals  # `passed`: a name alone stands for its current value
            if not complete or not re.search(VARIABLE, name):
                raise ValueError(f"{text!r} does not set a variable; use NAME=VALUE")
            return name, value if equals else None

        super().__init__(
            "a mapping of names to values",
            "NAME[=VALUE]" if passed else "NAME=VALUE",
            read,
            lists=True,
            any_lines=True,
        )


def _fabric(text: str) -> str | None:
    """Return the name of a fabric, or of a provider such as ``tcp;ofi_rxm``; None: it is none."""
    name = text.partition(";")[0]
    if name not in {*FABRICS_AND_PROVIDERS, AB, "auto"}:  # the last two stand for others
        return None
    return text if re.fullmatch(r"[\w;.-]+", text) else None


class Size(Type):
    """A size in bytes, which records have as users write it."""


SIZE = Size("a size such as 64, 4K or 2G", "SIZE", parse_size)
SIZES = Type("sizes such as 64K, 64K,4M or 1M..1G", "SIZES", parse_sizes)
HOSTS = Type(
    'a list of hosts, or ranges such as "node[01-16]"',
    "HOST",
    expand_hostlist,
    lists=True,
)
INTERFACE = Text("the name of a network interface", "NAME", r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,14}$")
"""As Linux accepts it (IFNAMSIZ), without shell syntax.

Mpirun passes it to the shells of other hosts.
"""
HOST = Text(
    "the name of a host",
    "HOST",
    r"^(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*$",
)
USER = Text("the name of a user", "USER", r"^[A-Za-z0-9_][A-Za-z0-9_.@\\-]*$")
FABRIC = Type(
    "the name of a fabric (efa, ib, roce, tcp, p2p, shm) or of a libfabric provider",
    "NAME",
    _fabric,
    names=(*sorted(FABRICS), AB),
)
FOLDER = Text("a directory", "DIRECTORY")
MPIRUN = Text(
    "the absolute path of an mpirun or mpiexec", "PATH", r"^/(?:.*/)?mpi(?:run|exec)(?:\.\w+)?$"
)
IMAGE = Text("the name of an image", "IMAGE", r"^[A-Za-z0-9_./~][A-Za-z0-9_./:@#~+%=,-]*$")
INSTANCE_TYPE = Text("an instance type", "TYPE", r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
DEVICE = Text("the name of a device", "NAME", r"^[A-Za-z0-9_][A-Za-z0-9_.:;@-]*$")


# ---------------------------------------------------------------- declarations


@frozen
class Option:
    """One option."""

    name: str = ""
    type: Type
    help: str
    # On the command line; none: only `fabbench.yaml` has it. `RARE` begins a rare one
    flags: Names = ()
    # Combines several values: `tuple`, `dict`; None: there is one
    many: Callable[[Iterable[Any]], Any] | None = None
    # As users write it; empty: there is none, or `help` states it
    default: str | tuple[str, ...] = ""
    # The only command in which it has an effect; empty: `run` and `render`
    only: Literal["", "run", "render", "watch"] = ""
    variable: str = ""  # The environment variable that also sets it, if there is one
    reaches: bool = False  # Whether it says how to reach the machines: `fabbench clean` has it, too

    @property
    def for_runs(self) -> bool:
        """Whether it has an effect on a run."""
        return self.only in {"", "run"}

    @property
    def key(self) -> str:
        """The key in `fabbench.yaml`."""
        return self.name.replace("_", "-")

    @property
    def expected(self) -> str:
        """What is expected in `fabbench.yaml`, in words."""
        if self.many and not self.type.lists:
            return f"a list, each {self.type.expected}"
        return self.type.expected

    @property
    def long(self) -> str:
        """The long flag; of an option without flags, its key."""
        return next((flag for flag in self.flags if flag.startswith("--")), self.key)

    @property
    def word(self) -> str:
        """Its long flag without dashes, or its key.

        Its name in ``defaults.run`` of `fabbench.yaml`.
        """
        return self.long.removeprefix(RARE).removeprefix("--")


def option(
    type_: Type,
    help_: str,
    *flags: str,
    default: Any = None,
    unset: Any = None,
    many: Callable[[Iterable[Any]], Any] | None = None,
    **more: Any,
) -> Any:
    """Declare the field of an option; `more` are other fields of `Option`.

    `flags` are those of the command line; without any, one is made from the field's name. `RARE` is
    that of an option that few people need. `default` is written as users would (``2G``, a tuple of
    texts where there may be several); None: the value is `unset`, or False for a `Flag`, or an
    empty collection.
    """
    if not flags and not isinstance(type_, Environment):
        flags = ("",)
    declaration = Option(
        type=type_,
        help=help_,
        flags=flags,
        many=many,
        default="" if default is None else default,
        **more,
    )
    if default is None and many is None and not isinstance(type_, Flag):
        value = unset
    else:
        value = parsed(declaration, declaration.default)
    # A mapping cannot be the default itself
    return field(default_factory=lambda: value, metadata={"option": declaration})


def flat(values: Iterable[Iterable[Any]]) -> tuple[Any, ...]:
    """Return the values of several lists."""
    return tuple(value for listed in values for value in listed)


Options: TypeAlias = Mapping[str, Option]
"""Options by the names of their fields, or by their long names."""


def _declared(kind: type) -> Options:
    """Return the options that a dataclass declares, by the names of its fields."""
    options = {
        each.name: _named(each.metadata["option"], each.name)
        for each in fields(kind)
        if "option" in each.metadata
    }
    return MappingProxyType(options)


def _named(declaration: Option, name: str) -> Option:
    """Return an option with the name of its field, from which a flag without text is made."""
    key = name.replace("_", "-")
    made = {"": f"--{key}", RARE: f"{RARE}{key}"}  # of flags that stand for the field's name
    flags = tuple(made.get(flag, flag) for flag in declaration.flags)
    return replace(declaration, name=name, flags=flags)


# Not every class is hashable, says mypy
declared: Callable[[type], Options] = cache(_declared)


def parsed(declaration: Option, given: Any) -> Any:
    """Return the value of an option from its text or texts, or whether a flag is given.

    Raise ValueError.
    """
    if isinstance(declaration.type, Flag):
        return bool(given)
    if declaration.many:
        return declaration.many(declaration.type.parse(text) for text in given)
    return declaration.type.parse(given)


def read_option(declaration: Option, given: Any) -> Any:
    """Return the value of one option as `parsed` does. Raise RequestError that names it."""
    try:
        return parsed(declaration, given)
    except ValueError as error:
        expected = declaration.type.expected
        metavar = declaration.type.metavar
        flag = declaration.long
        texts = given if declaration.many else [given]
        words = ", ".join(map(repr, texts))
        reason = str(error) or f"{words} is not {expected}"
        hint = f"{flag} {metavar}: {declaration.help}"
        raise RequestError(f"{flag}: {reason}.", hint=hint) from None


def written(options: Any) -> dict[str, Any]:
    """Return the values of declared options as records store them, by name.

    Sizes as users write them.
    """
    values: dict[str, Any] = {}
    for name, declaration in declared(type(options)).items():
        value = getattr(options, name)
        has_unit = value not in {0, None}  # 0 needs none; None is not set
        if isinstance(declaration.type, Size) and has_unit:
            sizes = value if declaration.many else [value]
            value = ",".join(map(_short_size, sizes))
        values[name] = value
    return values


def _short_size(size: int) -> str:
    """Write a size as users do: ``64K``."""
    return format_size(size).replace(" ", "").removesuffix("B")


@frozen
class LauncherOptions:
    """A launcher's options, or a format's, besides those of `fabbench.model.hosts.Target`."""

    # Options of targets or benchmarks without effect here, as `hosts`
    without: ClassVar[Collection[str]] = ()
    requires: ClassVar[Collection[str]] = ()  # Options that a target of `fabbench.yaml` must have
    # Whether some machines can run an execution while others run another, as sweeps do
    divides: ClassVar[bool] = False
    # Whether these may do so at the same time, without disturbing each other
    concurrent: ClassVar[bool] = True
    # In which order `surroundings` are checked, where no target is given; 0: never
    order: ClassVar[int] = 0

    def surroundings(self, environment: Variables) -> tuple[bool, str]:
        """Return whether the environment implies this launcher, and why, or what is missing.

        Raise MachineError.
        """
        del environment
        return False, ""

    def for_benchmark(self, benchmark: str, fabrics: Sequence[str]) -> Self:
        """Return them with what a benchmark usually needs on these fabrics, such as its image."""
        del benchmark, fabrics
        return self


Launchers: TypeAlias = Mapping[str, type[LauncherOptions]]
"""Launchers, or formats of `fabbench render`, with their options."""
