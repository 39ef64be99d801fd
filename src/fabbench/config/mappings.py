"""Kinds of values that are mappings whose keys are not fabbench's own."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fabbench.config.kinds import DECIMAL, Flag, Reading, Text, each_entry, unknown
from fabbench.config.tree import Entries, Items, Node, Scalar

_VARIABLE = Text(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
_NUMBERS = {"int", "float"}
_FRACTION = re.compile(r"-?\d+\.\d*(?:[eE][-+]?\d+)?")


@dataclass(frozen=True, slots=True)
class Environment:
    """Environment variables. Numbers keep the digits that the file has: 1.50 stays 1.50."""

    wanted: str = "a mapping of names to texts or numbers"

    def read(self, node: Node, place: str, reading: Reading) -> Mapping[str, str] | None:
        """Give name → value."""
        if not isinstance(node, Entries):
            reading.wrong(node, place, self.wanted)
            return None
        values: dict[str, str] = {}
        for name, (key, value) in node.entries.items():
            if not _VARIABLE.fits(name):
                reading.mistakes.add(key, f"{name!r} in {place} is no name of an environment variable.")
            elif isinstance(value, Scalar) and value.type in {"str", *_NUMBERS}:
                values[name] = value.text
            else:
                quoted = isinstance(value, Scalar)
                reading.wrong(
                    value, f"{place}.{name}", "a number or a text (in quotes)" if quoted else "a text"
                )
        return values

    def schema(self) -> dict[str, Any]:
        """Give an object of strings and numbers."""
        return {
            "type": "object",
            "propertyNames": {"pattern": _VARIABLE.pattern},
            "additionalProperties": {"type": ["string", "number"]},
        }


@dataclass(frozen=True, slots=True)
class Plain:
    """A mapping that somebody else checks: a launcher, for what only it knows."""

    wanted: str = "a mapping"

    def read(self, node: Node, place: str, reading: Reading) -> Mapping[str, Any] | None:
        """Give plain values: dicts, lists, texts, numbers, truths and None."""
        if not isinstance(node, Entries):
            reading.wrong(node, place, self.wanted)
            return None
        return {name: _plain(value) for name, (_, value) in node.entries.items()}

    def schema(self) -> dict[str, Any]:
        """Give any object."""
        return {"type": "object"}


@dataclass(frozen=True, slots=True)
class Options:
    """Defaults of a benchmark's options, by their long names; the command line checks the values."""

    wanted: str = "a mapping of benchmarks to their options"

    def read(self, node: Node, place: str, reading: Reading) -> Mapping[str, Mapping[str, Any]] | None:
        """Give benchmark → option → text as typed, truth, or a tuple of texts."""
        return each_entry(node, place, reading, self.wanted, self._benchmark)

    def _benchmark(self, key: Scalar, node: Node, place: str, reading: Reading) -> Any:
        if reading.benchmarks is not None and key.text not in reading.benchmarks:
            unknown(key, place.rpartition(".")[0], reading.benchmarks, reading, what="benchmark")
            return None
        return each_entry(node, place, reading, "a mapping of options to values", self._option)

    def _option(self, key: Scalar, node: Node, place: str, reading: Reading) -> Any:
        benchmark = place.split(".")[-2]
        if reading.benchmarks is not None and key.text not in reading.benchmarks[benchmark]:
            options = reading.benchmarks[benchmark]
            unknown(key, place.rpartition(".")[0], options, reading, what="option")
            return None
        if isinstance(node, Items) and all(isinstance(item, Scalar) for item in node.items):
            return tuple(self._value(item, place, reading) for item in node.items)
        return self._value(node, place, reading)

    @staticmethod
    def _value(node: Node, place: str, reading: Reading) -> str | bool | None:
        if isinstance(node, Scalar) and node.type in {"str", *_NUMBERS}:
            return node.text
        if isinstance(node, Scalar) and node.type == "bool":
            return Flag().read(node, place, reading)
        reading.wrong(node, place, "a text, a number, true or false, or a list of them")
        return None

    def schema(self) -> dict[str, Any]:
        """Give an object of objects of simple values."""
        simple = ["string", "number", "boolean"]
        value = {"type": [*simple, "array"], "items": {"type": simple}}
        options = {"type": "object", "additionalProperties": value}
        return {"type": "object", "additionalProperties": options}


def _plain(node: Node) -> Any:
    match node:
        case Entries():
            return {name: _plain(value) for name, (_, value) in node.entries.items()}
        case Items():
            return [_plain(item) for item in node.items]
    return _simple(node)


def _simple(scalar: Scalar) -> str | int | float | bool | None:
    """Read a scalar as YAML 1.2 does; what only YAML 1.1 takes for a number or a truth stays text."""
    text = scalar.text
    match scalar.type:
        case "null":
            return None
        case "bool" if text.lower() in {"true", "false"}:
            return text.lower() == "true"
        case "int" if DECIMAL.fullmatch(text):
            return int(text)
        case "float" if _FRACTION.fullmatch(text):
            return float(text)
    return text
