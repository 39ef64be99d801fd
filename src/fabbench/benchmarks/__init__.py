"""Benchmarks: what each one is started with, and how its output is read.

A benchmark is one module (or package) here that ends in ``BENCHMARK: Benchmark = …``; it is found
without editing a list. It does not know where it runs. Other distributions have theirs in the group of entry
points ``fabbench.benchmarks``: docs/add-a-benchmark.md.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Protocol, TypeAlias

from fabbench.markers import Marker
from fabbench.model import Line, Point, Record
from fabbench.plugins import Plugins

Reading: TypeAlias = Point | Record
"""What a reader gives as lines arrive: points at once, and a whole record when its execution has ended."""


Shortcut: TypeAlias = Callable[[str], Sequence[Point] | None]


class Reader(Protocol):
    """Reads one benchmark's output from one stream group, executions one after another.

    Lines come without prefixes and without NCCL's debug text; a row that debug text tore apart comes in
    pieces. A reader never raises for any text, and never makes up what it cannot read.
    """

    def feed(self, line: Line) -> Sequence[Reading] | None:
        """Read one line. None: not one of ours, and no sign that one of ours begins here."""

    def shortcut(self, rank: str) -> Shortcut | None:
        """Give a quick way to read more rows like the last one, of one rank's stream; None: there is none.

        It is good until a line is fed. It gives None for every line that is not plainly such a row, and
        what it reads counts as fed.
        """

    def mark(self, marker: Marker) -> Sequence[Reading]:
        """Take note of fabbench's own begin and end markers around a step."""

    def close(self) -> Sequence[Reading]:
        """End of the text: give what is left, whole or not. The reader can be fed again afterwards."""


class Benchmark(Protocol):
    """One benchmark program (family)."""

    @property
    def name(self) -> str:
        """The name in commands and in the contract's `benchmark`."""

    @property
    def joins_groups(self) -> bool:
        """Whether one execution may print in several stream groups (client and server on two nodes)."""

    def reader(self) -> Reader:
        """Give a fresh reader."""


_STEPS = "_steps"
"""What the names of modules end in that start a benchmark: whoever reads logs has no need of them."""


@cache
def benchmarks() -> Mapping[str, Benchmark]:
    """Every benchmark there is, by name. One that cannot be loaded is warned of (PluginWarning)."""
    found: Plugins[Benchmark] = Plugins(
        __name__, "BENCHMARK", group="fabbench.benchmarks", wanted=Benchmark, skip=_STEPS
    )
    return found.usable()
