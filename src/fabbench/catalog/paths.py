"""Which of several ways inside a fabric carried the data: paths.toml has a record per fact.

A fabric that is proven may still be used the slow way: by a proxy on the processor instead of the
GPU, over one channel of 24, through the host's memory.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import NamedTuple

import msgspec

from fabbench.model import records
from fabbench.model.log import Facts
from fabbench.model.mappings import Names
from fabbench.model.patterns import lazy

FEW = "few"
"""What a number is that is below its share of another one."""
_NONE = "none"  # the value that says that nothing went this way


class PathLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A line that shows a value: without one, the first group of its pattern."""

    pattern: str
    value: str = ""
    begins: str = ""  # What the line begins with; empty: anything
    network: str = ""  # What carries that way, as NCCL names networks


class PathFact(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way inside a fabric, and what counts as the asked one: a record of paths.toml."""

    fact: str
    means: str  # What the way is, for readers of the record
    source: str
    lines: tuple[PathLine, ...] = ()
    asked: tuple[str, ...] = ()  # The values that count as the way that was asked for
    findings: Mapping[str, str] = {}
    """Value → the code of its finding. Ranks may differ: one such value is enough."""
    # Value → how findings say it, where that differs
    words: Mapping[str, str] = {}
    of: str = ""  # The fact that a number is a part of: less than `share` of it is few
    share: float = 0.0
    only_with: str = ""
    """Where the fact `of` is not known, 1 is few if this one is."""
    carries: Names = ()
    """Programs, as `BENCHMARK CASE`."""
    # Fact → its values with which alone there may be a finding
    where: Mapping[str, Names] = {}
    unless: str = ""  # The code of a finding that says the same already
    gpus_without: Mapping[str, Names] = {}
    """Transport → the GPUs that have no such way there, as logs name them."""
    examples: tuple[tuple[str, str], ...] = ()
    """Values, each with a line that shows it."""
    counterexamples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a value that is both asked for and wrong."""
        both = self.findings.keys() & set(self.asked)
        if both:
            names = ", ".join(sorted(both))
            raise ValueError(f"asked for, and a finding: {names}")

    def finding(self, facts: Facts, program: str) -> str:
        """Return the code of what is wrong for a program with these facts; empty: nothing."""
        if self.carries and program not in self.carries:  # its data do not go this way
            return ""
        for name, values in self.where.items():
            if facts.get(name) not in values:
                return ""
        for value in self._value(facts).split("+"):  # ranks may differ
            if value in self.findings:
                return self.findings[value]
        return ""

    def _value(self, facts: Facts) -> str:
        """Return the stated value; of a number FEW, or empty where it is enough.

        Few is less than `share` of the fact `of`; where that is unknown, 1, if `only_with` is.
        """
        stated = facts.get(self.fact, "")
        if not isinstance(stated, int):
            return stated
        total = facts.get(self.of)
        is_few = stated == 1 and self.only_with in facts
        if isinstance(total, int):
            is_few = stated < self.share * total
        return FEW if is_few else ""

    def shown(self, facts: Facts) -> str:
        """Return how a finding says what the facts say: `3 of 24`, or the value in words."""
        stated = str(facts[self.fact])
        if self.of in facts:
            total = facts[self.of]
            return f"{stated} of {total}"
        return self.words.get(stated, stated)


class Way(NamedTuple):
    """What one line shows."""

    fact: str
    value: str
    network: str
    """Empty: the line does not say what carries that way."""


@cache
def path_facts() -> tuple[PathFact, ...]:
    """Return the records of paths.toml."""
    return records.load("fabbench.catalog", "paths.toml", PathFact)


@cache
def beginnings() -> frozenset[str]:
    """Return the words that lines of NCCL begin with, of which some show a way."""
    lines = [line for path in path_facts() for line in path.lines]
    return frozenset(line.begins for line in lines if line.begins)


def ways(text: str) -> Iterator[Way]:
    """Yield what a line shows: at most one value of each fact."""
    for path in path_facts():
        way = next(_ways_of(path, text), None)
        if way is not None:
            yield way


def _ways_of(path: PathFact, text: str) -> Iterator[Way]:
    # A line has its value in the record, or in the text, where the pattern's group is.
    for line in path.lines:
        if not text.startswith(line.begins):
            continue
        match = _compiled(line.pattern).search(text)
        if match is not None:
            yield Way(path.fact, line.value or match[1], line.network)


_compiled = cache(lazy)


def carrier(program: str) -> PathFact | None:
    """Return the way that all data of a program (`BENCHMARK CASE`) go; None: no special one."""
    return next((path for path in path_facts() if program in path.carries), None)


def path_values(shown: Iterable[Way], program: str = "") -> dict[str, str]:
    """Return the facts that lines show; several values of one are joined by `+`.

    That there is no such way is said only of a program whose data would go it.
    """
    values: dict[str, set[str]] = {}
    for way in shown:
        if way.value != _NONE or _carries(way.fact, program):
            values.setdefault(way.fact, set()).add(way.value)
    return {fact: "+".join(sorted(values[fact])) for fact in values}


def _carries(fact: str, program: str) -> bool:
    path = carrier(program)
    return path is not None and path.fact == fact
