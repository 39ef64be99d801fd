"""Types of option values. Each parses text, wherever it comes from, and has a JSON Schema.

The command line, `fabbench.yaml` and variants read every value here, so that none of them lets through what a
shell, a batch script or a manifest could misread.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fabbench.model.compat import override
from fabbench.model.fabrics import AB, FABRICS, PROVIDERS
from fabbench.model.hostlist import expand_hostlist
from fabbench.model.patterns import lazy
from fabbench.model.units import format_size, parse_size

_DECIMAL = lazy(r"-?(?:0|[1-9]\d{0,17})", re.ASCII)
_NUMBER = lazy(r"\d{1,18}(?:\.\d{0,18})?", re.ASCII)
_CONTROL = lazy(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class Type:
    """The type of an option's value."""

    @property
    def expected(self) -> str:
        """What is expected, in words: ``a whole number from 1 to 65535``."""
        raise NotImplementedError

    @property
    def metavar(self) -> str:
        """The placeholder of the value in ``--help``."""
        return "TEXT"

    lists: bool = False
    """Whether one value already stands for several, so that a file may have it without a list."""
    pattern = r"\S"
    """A regular expression that texts match, valid in both Python and JSON Schema."""
    names: Sequence[str] = ()
    """Values to complete and to suggest."""

    def parse(self, text: str) -> Any:
        """Return the value of a text; raise ValueError, with a reason if `expected` does not explain it."""
        raise NotImplementedError

    def write(self, value: Any) -> Any:
        """Return a value as records store it."""
        return value

    def schema(self) -> dict[str, Any]:
        """Return the type as JSON Schema."""
        return {"type": ["string", "number"], "pattern": self.pattern}


def _one_line(text: str) -> str:
    if _CONTROL.search(text):
        raise ValueError
    return text


@dataclass(frozen=True, slots=True)
class Text(Type):
    """One line of text, not empty."""

    expected: str = "a string"
    metavar: str = "TEXT"
    pattern: str = r"\S"

    @override
    def parse(self, text: str) -> str:
        if not re.search(self.pattern, _one_line(text)):
            raise ValueError
        return text


@dataclass(frozen=True, slots=True)
class Parsed(Type):
    """Text in a notation of its own."""

    expected: str = field()
    metavar: str = field()
    read: Callable[[str], Any]
    """Returns the value; raises ValueError."""
    any_lines: bool = False
    """Whether it may have several lines."""
    pattern: str = r"\S"
    """What JSON Schema can check."""
    names: Sequence[str] = ()

    @override
    def parse(self, text: str) -> Any:
        return self.read(text if self.any_lines else _one_line(text))


AUTO = 0  # What ``auto`` is read as, where a number may be left to fabbench


@dataclass(frozen=True, slots=True)
class Whole(Type):
    """A whole number in decimal digits: ``022``, which is 18 to YAML, is refused."""

    low: int
    high: int | None = None
    metavar: str = "N"
    auto: bool = False
    """Whether it may be ``auto``."""

    @property
    @override
    def expected(self) -> str:
        limits = f"from {self.low} to {self.high}" if self.high else f"of {self.low} or more"
        return f"{'auto, or ' * self.auto}a whole number {limits}"

    @override
    def parse(self, text: str) -> int:
        if self.auto and text == "auto":
            return AUTO
        if not _DECIMAL.fullmatch(text) or not self.low <= int(text) <= (self.high or int(text)):
            raise ValueError
        return int(text)

    @override
    def schema(self) -> dict[str, Any]:
        number = {"type": "integer", "minimum": self.low, **({"maximum": self.high} if self.high else {})}
        return {"anyOf": [number, {"const": "auto"}]} if self.auto else number


@dataclass(frozen=True, slots=True)
class Seconds(Type):
    """A time in seconds, at least `low`; without it, more than 0."""

    low: int = 0
    metavar = "SECONDS"

    @property
    @override
    def expected(self) -> str:
        return f"a number of seconds, {self.low} or more" if self.low else "a number of seconds above 0"

    @override
    def parse(self, text: str) -> float:
        if not _NUMBER.fullmatch(text) or not float(text) or float(text) < self.low:
            raise ValueError
        return float(text)

    @override
    def schema(self) -> dict[str, Any]:
        return {"type": "number", **({"minimum": self.low} if self.low else {"exclusiveMinimum": 0})}


@dataclass(frozen=True, slots=True)
class Size(Type):
    """A size in bytes, 1024-based."""

    expected = "a size such as 64, 4K or 2G"
    metavar = "SIZE"

    @override
    def parse(self, text: str) -> int:
        return parse_size(text)

    @override
    def write(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return ",".join(self.write(each) for each in value)
        return format_size(value).replace(" ", "").removesuffix("B") if value else value


@dataclass(frozen=True, slots=True)
class Choice(Type):
    """One of a few words."""

    names: Sequence[str]
    short: str = ""
    """Replaces them in ``--help``, where there are many."""

    @property
    @override
    def expected(self) -> str:
        return "one of " + ", ".join(self.names)

    @property
    @override
    def metavar(self) -> str:
        return self.short or f"[{'|'.join(self.names)}]"

    @override
    def parse(self, text: str) -> str:
        if text not in self.names:
            raise ValueError
        return text

    @override
    def schema(self) -> dict[str, Any]:
        return {"enum": list(self.names)}


@dataclass(frozen=True, slots=True)
class Truth(Type):
    """True or false; ``yes`` and ``on``, which some YAML parsers read as strings, are refused."""

    expected = "true or false"
    metavar = "[true|false]"

    @override
    def parse(self, text: str) -> bool:
        if text.lower() not in {"true", "false"}:
            raise ValueError
        return text.lower() == "true"

    @override
    def schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


class Flag(Truth):
    """True if it is given on the command line."""


@dataclass(frozen=True, slots=True)
class File(Type):
    """A path on this machine. ``~`` is the home directory; in a file, paths are relative to its directory."""

    expected: str = "a path"
    metavar: str = "FILE"
    directory: bool = False
    """Whether a file of that name is refused."""

    @override
    def parse(self, text: str) -> Path:
        if not _one_line(text).strip():
            raise ValueError
        if self.directory and "://" in text:
            raise ValueError(f"{text!r} is a URL, but runs are written to a directory")
        try:
            path = Path(text).expanduser()
        except RuntimeError:
            raise ValueError(f"{text!r} is in a home directory that does not exist") from None
        if self.directory and path.exists() and not path.is_dir():
            raise ValueError(f"{text!r} is a file")
        return path


@dataclass(frozen=True, slots=True)
class Hosts(Type):
    """Hosts by name, with ranges as Slurm writes them."""

    lists = True
    expected = 'a list of hosts, or ranges such as "node[01-16]"'
    metavar = "HOST"

    @override
    def parse(self, text: str) -> tuple[str, ...]:
        return expand_hostlist(text)

    @override
    def schema(self) -> dict[str, Any]:
        return {"anyOf": [text := Type.schema(self), {"type": "array", "items": text, "minItems": 1}]}


VARIABLE = Text("the name of an environment variable", "NAME", r"^[A-Za-z_][A-Za-z0-9_]*$")


@dataclass(frozen=True, slots=True)
class Environment(Type):
    """Environment variables: a mapping in files, which alone have them."""

    lists = True
    expected = "a mapping of names to values"
    metavar = "NAME=VALUE"

    @override
    def parse(self, text: str) -> Mapping[str, str]:
        name, equals, value = text.partition("=")
        if not equals or not re.search(VARIABLE.pattern, name):
            raise ValueError(f"{text!r} does not set a variable; use NAME=VALUE")
        return {name: value}

    @override
    def schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "propertyNames": {"pattern": VARIABLE.pattern},
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        }


class PassedEnvironment(Environment):
    """Environment variables, of which some are only named: None stands for their current value."""

    metavar = "NAME[=VALUE]"

    @override
    def parse(self, text: str) -> Mapping[str, str | None]:  # type: ignore[override]
        return super().parse(text) if "=" in text else dict.fromkeys(super().parse(f"{text}="))


def _fabric(text: str) -> str:
    if text.partition(";")[0] not in {*FABRICS, *PROVIDERS, AB, "auto"} or not re.fullmatch(r"[\w;.-]+", text):
        raise ValueError
    return text


# ---------------------------------------------------------------- common types

INTERFACE = Text("the name of a network interface", "NAME", r"^[A-Za-z0-9_][A-Za-z0-9_.:-]{0,14}$")
"""As Linux accepts it (IFNAMSIZ), without shell syntax: mpirun passes it to the shells of other hosts."""
HOST = Text("the name of a host", "HOST", r"^(?:[A-Za-z0-9_][A-Za-z0-9_.-]*@)?[A-Za-z0-9_:][A-Za-z0-9_.:%-]*$")
USER = Text("the name of a user", "USER", r"^[A-Za-z0-9_][A-Za-z0-9_.@\\-]*$")
FABRIC = Parsed(
    "the name of a fabric (efa, ib, roce, tcp, p2p, shm) or of a libfabric provider",
    "NAME",
    _fabric,
    names=(*sorted(FABRICS), AB),
)
FOLDER = Text("a directory", "DIRECTORY", r"\S")
MPIRUN = Text("the absolute path of an mpirun or mpiexec", "PATH", r"^/(?:.*/)?mpi(?:run|exec)(?:\.\w+)?$")
IMAGE = Text("the name of an image", "IMAGE", r"^[A-Za-z0-9_./~][A-Za-z0-9_./:@#~+%=,-]*$")
INSTANCE_TYPE = Text("an instance type", "TYPE", r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
DEVICE = Text("the name of a device", "NAME", r"^[A-Za-z0-9_][A-Za-z0-9_.:;@-]*$")
