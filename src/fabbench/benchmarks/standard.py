"""What benchmarks share.

Where their parts are (found by their names), what they measure, and options.
"""

import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any

from fabbench.benchmarks import Benchmark, Reader
from fabbench.benchmarks.mpi_transport import WORDS
from fabbench.catalog.systems import rows_of
from fabbench.model.compat import override
from fabbench.model.log import Proof
from fabbench.model.mappings import distinct
from fabbench.model.options import (
    DEVICE,
    SIZE,
    SIZES,
    Choice,
    Seconds,
    Size,
    Text,
    Whole,
    flat,
    option,
)
from fabbench.model.patterns import Match, lazy
from fabbench.model.signature import Signature
from fabbench.model.units import Sweep, parse_sizes

if TYPE_CHECKING:
    from fabbench.model.benchmark_records import Signs
    from fabbench.model.hosts import Host, Needs
    from fabbench.model.plan import Step


@cache
def _signs_by_name() -> Mapping[str, "Signs"]:
    """Return the name of each benchmark of fabbench → how its lines show it."""
    from fabbench.model import records
    from fabbench.model.benchmark_records import Signs

    known = records.load("fabbench.benchmarks", "signs.toml", Signs)
    return {each.name: each for each in known}


class ReadBenchmark(Benchmark):
    """One whose module, or its package's module `reader`, has a TABLE.

    Or a reader, whose name begins with that of the class. How its output is known stands in
    signs.toml.
    """

    @cached_property
    def _signs(self) -> "Signs":
        from fabbench.model.benchmark_records import Signs

        return _signs_by_name().get(self.name, Signs())

    @cached_property
    @override
    def first_words(self) -> Sequence[str]:
        of_mpi = WORDS if self._signs.over_mpi else ()
        return (*self._signs.first_words, *of_mpi)

    @cached_property
    @override
    def signatures(self) -> Sequence[Signature]:
        return self._signs.signatures

    @cached_property
    @override
    def program_names(self) -> str:
        return self._signs.program_names

    @override
    def may_begin(self, text: str) -> bool:
        if super().may_begin(text):
            return True
        begins = self._signs.begins
        return begins != "" and re.match(begins, text) is not None

    @override
    def reader(self) -> Reader:
        # By convention the class `NAMEReader`; without it, the usual reader of the table `TABLE`.
        from fabbench.benchmarks.executions import Assembler

        module: Any = sys.modules[type(self).__module__]
        # Only a package has a path; a benchmark that is a module has its reader in itself.
        module = (
            import_module(f"{module.__name__}.reader") if hasattr(module, "__path__") else module
        )
        reader_type: type[Reader] | None = getattr(module, f"{type(self).__name__}Reader", None)
        if reader_type is not None:
            return reader_type()
        return Assembler(module.TABLE)


class RunBenchmark(ReadBenchmark):
    """One that can be run.

    The package's module `plan` has its work, which is named after it, too.
    """

    @override
    def work_type(self) -> type[Any] | None:
        # By convention the class `NAMEWork` in the module `plan` of its package.
        work: type[Any] = getattr(
            import_module(f"{type(self).__module__}.plan"), f"{type(self).__name__}Work"
        )
        return work


class Work(ABC):
    """What a benchmark measures, with its options: plans get their steps from it."""

    __slots__ = ()

    @property
    @abstractmethod
    def needs(self) -> "Needs":
        """What hosts must have."""

    @property
    def together(self) -> bool:
        """Whether the steps of an execution run concurrently."""
        return False

    @abstractmethod
    def planned_sizes(self, hosts: Sequence["Host"]) -> tuple[int, ...]:
        """Return the sizes, in bytes, that each log of a complete execution has."""

    @abstractmethod
    def why_unsupported(self, fabric: str, host: "Host") -> str:
        """Return a sentence on why `fabric` cannot be measured on `host`; empty if it can."""

    @abstractmethod
    def steps(self, execution: str, fabric: str, hosts: Sequence["Host"]) -> "tuple[Step, ...]":
        """Return the steps of one execution. Step ids are ``EXECUTION/NAME``."""

    def proof(self, fabric: str, hosts: Sequence["Host"]) -> Proof:
        """Return what a log must show: what carried the data. Markers name the device of a step."""
        del hosts
        return Proof(fabric=fabric)


def variables_of(benchmark: str) -> Mapping[str, str]:
    """Return fabric → the variables of a benchmark's programs, as text (fabrics.csv)."""
    rows = rows_of("fabrics.csv", "fabbench.benchmarks")
    own = [row for row in rows if row["benchmark"] == benchmark]
    return {row["fabric"]: row["variables"] for row in own}


def read_variables(text: str) -> dict[str, str]:
    """Return the variables in a text (`NAME=VALUE …`), without those that have no value."""
    settings = (word.partition("=") for word in text.split())
    return {name: value for name, _, value in settings if value}


_UNSET = ("", "None", "False")
"""Texts of values that are not set."""
_OPTIONAL = lazy(r"\[(\w+)\? ([^]]*)\]")


def words_of(line: str, values: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the words of a program's command line, with values for its `{name}`.

    `[name? …]` is left out where that value is None, False or empty, as is a word that is empty. A
    value is one word, whatever is in it.
    """

    def chosen(part: Match) -> str:
        value = str(values[part[1]])
        return "" if value in _UNSET else part[2]

    words = _OPTIONAL.sub(chosen, line).split()
    filled_in = (word.format_map(values) for word in words)
    return tuple(filter(None, filled_in))


MEMORY = Choice(("host", "cuda"))


def min_bytes(default: str) -> Any:
    """Declare the smallest size of a sweep."""
    return option(
        SIZE, f"Smallest size (1024-based: {default}, 4K).", "-b", "--min-bytes", default=default
    )


def max_bytes(default: str, more: str = "The steps from the smallest must reach it.") -> Any:
    """Declare the largest size of a sweep."""
    return option(SIZE, f"Largest size. {more}", "-e", "--max-bytes", default=default)


def factor(default: str) -> Any:
    """Declare the factor of a sweep."""
    return option(
        Whole(1), "Multiply the size by this at each step.", "-f", "--factor", default=default
    )


_NO_END = "an open end"  # is no size: what ranges have that must not be open


def sizes(help_: str, *default: str, low: str = _NO_END, high: str = _NO_END) -> Any:
    """Declare sizes that are listed one by one; those of a range double.

    `low` and `high`: where open ranges end.
    """

    def read(text: str) -> list[int]:
        ranges = parse_sizes(text, low, high).ranges
        sizes: list[int] = []
        for bounds in ranges:  # one size, or the first and the last
            sweep = Sweep(first=bounds[0], last=bounds[-1])
            sizes += sweep.sizes()
        return sizes

    return option(
        Size(SIZES.expected, SIZES.metavar, read),
        f"{help_} A list (64K,4M), or a range that doubles (64K..4M). Can be given several times.",
        "--size",
        many=lambda lists: distinct(flat(lists)),
        default=default or None,
    )


def devices(help_: str) -> Any:
    """Declare devices that are listed one by one."""
    return option(DEVICE, f"{help_} Can be given several times.", "--device", many=tuple)


def iterations(default: str | None, each: str = " per size") -> Any:
    """Declare how many operations are timed. None: as many as the program does by itself."""
    return option(Whole(1), f"Timed operations{each}.", "-n", "--iterations", default=default)


def warmup(default: str | None, more: str = "") -> Any:
    """Declare how many operations run before the timed ones.

    None: as many as the program does by itself.
    """
    return option(
        Whole(0),
        f"Warm-up operations before the timed ones.{more}",
        "-w",
        "--warmup",
        default=default,
    )


def nics() -> Any:
    """Declare how many NICs each rank must have used."""
    return option(
        Whole(0), "Required NICs per rank (0: any). Default: all of the fabric that the hosts have."
    )


def timeout(default: str, help_: str = "Abort a program that takes longer.") -> Any:
    """Declare the time limit that the help describes."""
    return option(Seconds(), help_, "--timeout", default=default)


def silence(default: str = "300") -> Any:
    """Declare how long a program may print nothing before it is considered hung."""
    return option(
        Seconds(),
        "Abort a program that is silent for SECONDS.",
        "--silence",
        default=default,
        only="run",
    )


def extra() -> Any:
    """Declare the options of the benchmark program itself, which go after ``--``."""
    return option(
        Text("an option", "OPTIONS", pattern=""), "Options of the program itself.", "--", many=tuple
    )
