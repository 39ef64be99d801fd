"""What a value of `fabbench.yaml` may be. Each kind reads its values and describes itself as JSON Schema.

`read` gives the value as the program wants it. What is wrong it adds to the mistakes, and gives None.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from fabbench.config.tree import Entries, Items, Mistakes, Node, Scalar, describe
from fabbench.hostlist import expand

DECIMAL = re.compile(r"-?(?:0|[1-9]\d{0,17})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What is known while a file is read, and the mistakes found so far."""

    mistakes: Mistakes
    folder: Path
    """Where the file lies: what its relative paths begin with."""
    launchers: Collection[str]
    benchmarks: Mapping[str, Collection[str]] | None
    """Benchmark → long names of its options. None: not checked."""

    def wrong(self, node: Node, place: str, wanted: str) -> None:
        """Note that something else is wanted."""
        self.mistakes.add(node, f"{place} is {describe(node)}; {wanted} is wanted.")


class Kind(Protocol):
    """One kind of value."""

    @property
    def wanted(self) -> str:
        """What is wanted, in words: ``a whole number from 1 to 65535``."""

    def read(self, node: Node, place: str, reading: Reading) -> Any:
        """Read a value that stands at `place` (``targets.prod.port``)."""

    def schema(self) -> dict[str, Any]:
        """Describe the kind as JSON Schema."""


@dataclass(frozen=True, slots=True)
class Text:
    """One line of text, not empty."""

    wanted: str = "a text"
    pattern: str = r"^.*\S.*$"

    def read(self, node: Node, place: str, reading: Reading) -> str | None:
        """Give the text. A number is refused: YAML may have changed it, and quotes say what is meant."""
        if isinstance(node, Scalar) and node.type == "str" and self.fits(node.text):
            return node.text
        quotes = " in quotes" if isinstance(node, Scalar) and node.type not in {"str", "null"} else ""
        reading.wrong(node, place, self.wanted + quotes)
        return None

    def fits(self, text: str) -> bool:
        """Whether a text is of this kind."""
        # `$` of JSON Schema does not match before a newline at the end; Python's does.
        return "\n" not in text and re.search(self.pattern, text) is not None

    def schema(self) -> dict[str, Any]:
        """Give a string with a pattern."""
        return {"type": "string", "pattern": self.pattern}


@dataclass(frozen=True, slots=True)
class File:
    """A path on this machine. ``~`` is the home directory; a relative path begins where the file lies."""

    wanted: str = "a path"

    def read(self, node: Node, place: str, reading: Reading) -> Path | None:
        """Give the path, which need not exist."""
        text = Text(self.wanted).read(node, place, reading)
        if text is None:
            return None
        try:
            return reading.folder / Path(text).expanduser()
        except RuntimeError:
            reading.mistakes.add(node, f"{place} is {text!r}, and there is no such home directory.")
            return None

    def schema(self) -> dict[str, Any]:
        """Give a string."""
        return Text().schema()


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in decimal digits: ``022``, which is 18 to YAML, is refused."""

    low: int
    high: int

    @property
    def wanted(self) -> str:
        """Say the range."""
        return f"a whole number from {self.low} to {self.high}"

    def read(self, node: Node, place: str, reading: Reading) -> int | None:
        """Give the number."""
        if isinstance(node, Scalar) and node.type == "int" and DECIMAL.fullmatch(node.text):
            number = int(node.text)
            if self.low <= number <= self.high:
                return number
        reading.wrong(node, place, self.wanted)
        return None

    def schema(self) -> dict[str, Any]:
        """Give an integer with its range."""
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, slots=True)
class Flag:
    """True or false; ``yes`` and ``on``, which some readers of YAML take for texts, are refused."""

    wanted: str = "true or false"

    def read(self, node: Node, place: str, reading: Reading) -> bool | None:
        """Give the truth."""
        if isinstance(node, Scalar) and node.type == "bool" and node.text.lower() in {"true", "false"}:
            return node.text.lower() == "true"
        reading.wrong(node, place, self.wanted)
        return None

    def schema(self) -> dict[str, Any]:
        """Give a boolean."""
        return {"type": "boolean"}


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    names: tuple[str, ...]

    @property
    def wanted(self) -> str:
        """Name them."""
        return "one of " + ", ".join(self.names)

    def read(self, node: Node, place: str, reading: Reading) -> str | None:
        """Give the word."""
        if isinstance(node, Scalar) and node.type == "str" and node.text in self.names:
            return node.text
        reading.wrong(node, place, self.wanted)
        return None

    def schema(self) -> dict[str, Any]:
        """Give an enumeration."""
        return {"enum": list(self.names)}


@dataclass(frozen=True, slots=True)
class Texts:
    """A list of texts."""

    wanted: str = "a list of texts"
    item: Text = field(default_factory=Text)

    def read(self, node: Node, place: str, reading: Reading) -> tuple[str, ...] | None:
        """Give the texts."""
        if not isinstance(node, Items) or not node.items:
            reading.wrong(node, place, self.wanted)
            return None
        read = (self.item.read(item, f"{place}[{index}]", reading) for index, item in enumerate(node.items))
        return tuple(text for text in read if text is not None)

    def schema(self) -> dict[str, Any]:
        """Give an array that is not empty."""
        return {"type": "array", "items": self.item.schema(), "minItems": 1}


@dataclass(frozen=True, slots=True)
class Hosts:
    """Hosts: a list, or one text; ranges as Slurm writes them in both."""

    wanted: str = 'a list of hosts, or ranges such as "node[01-16]"'

    def read(self, node: Node, place: str, reading: Reading) -> tuple[str, ...] | None:
        """Give the names, in order."""
        items = node.items if isinstance(node, Items) else (node,)
        if not items:
            reading.mistakes.add(node, f"{place} is an empty list; {self.wanted} is wanted.")
            return None
        names: dict[str, None] = {}
        for index, item in enumerate(items):
            where = place if item is node else f"{place}[{index}]"
            text = Text(self.wanted if item is node else "the name of a host").read(item, where, reading)
            if text is None:
                continue
            try:
                expanded = expand(text)
            except ValueError as error:
                reading.mistakes.add(item, f"{where}: {error}.")
                continue
            for name in expanded:
                if name in names:
                    reading.mistakes.add(item, f"{place} names {name} twice.")
                names[name] = None
        return tuple(names)

    def schema(self) -> dict[str, Any]:
        """Give a string, or an array of strings."""
        return {"anyOf": [Text().schema(), Texts().schema()]}


def each_entry(
    node: Node, place: str, reading: Reading, wanted: str, read: Callable[[Scalar, Node, str, Reading], Any]
) -> dict[str, Any] | None:
    """Read a mapping whose keys are names that the user chose."""
    if not isinstance(node, Entries):
        reading.wrong(node, place, wanted)
        return None
    return {name: read(key, value, f"{place}.{name}", reading) for name, (key, value) in node.entries.items()}


def unknown(key: Scalar, place: str, valid: Collection[str], reading: Reading, *, what: str = "key") -> None:
    """Note a name that is not known: with the nearest that is, and all that are."""
    import difflib

    # Case and underscores are how names are mistyped most.
    shapes = {name.lower().replace("_", "-"): name for name in valid}
    near = difflib.get_close_matches(key.text.lower().replace("_", "-"), shapes, n=1, cutoff=0.5)
    suggestion = f"; did you mean {shapes[near[0]]}?" if near else "."
    known = ", ".join(valid) or "none"
    where = f"{place}: there" if place else "There"
    reading.mistakes.add(key, f"{where} is no {what} {key.text!r}{suggestion} Valid here: {known}.")
