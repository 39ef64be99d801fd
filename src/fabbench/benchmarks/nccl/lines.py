"""What the lines of nccl-tests mean other than rows: events. Pure.

The formats by version, with the source lines that print them: docs/formats.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, TypeAlias

from fabbench.benchmarks.events import (
    End,
    Fail,
    Header,
    Note,
    Setting,
    Statement,
    Wrong,
)
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.nccl import BENCHMARK
from fabbench.benchmarks.nccl.rows import UNREADABLE_UNITS, read_header
from fabbench.model import records
from fabbench.model.messages import LONGEST_QUOTE, single_spaced
from fabbench.model.patterns import Match, expand, lazy


class Stage(IntEnum):
    """In print order. A line of an earlier stage than the current one begins another run."""

    BANNER = 0
    DEVICES = 1
    HEADER = 2
    FOOTER = 3
    AFTER = 4


class Device(NamedTuple):
    """The device of a rank."""

    rank: int
    group: str
    host: str
    pid: str
    number: str = ""
    """Of the device, as its process counts."""
    bus: str = ""
    """Its PCI address; older releases print the bus alone: `0x0a`."""
    gpu: str = ""
    """The name of the GPU, as printed."""

    @property
    def process(self) -> str:
        """Its process (`host:pid`), without blanks in the name of a host."""
        return f"{self.host}:{self.pid}".replace(" ", "")


NcclEvent: TypeAlias = Statement | Device


class ParsedLine(NamedTuple):
    """What a line says, and where in the output such lines stand."""

    kind: str
    stage: Stage
    events: Sequence[NcclEvent] = ()


# ---------------------------------------------------------------- what each kind of line says

_Events: TypeAlias = Iterator[NcclEvent]


def _device(match: Match) -> _Events:
    rank, group, pid, host, *device = match.groups("")
    yield Device(int(rank), group or "0", host, pid, *device)


def _version(match: Match) -> _Events:
    """Read the versions: 22809 is 2.28.9, and 2804 is 2.8.4, before 2.9."""
    library, version, code = match.groups()
    yield Setting(facts={f"{library}_tests": version})
    if code is not None:
        number = int(code)
        major, rest = divmod(number, 10_000 if number >= 10_000 else 1000)
        minor, patch = divmod(rest, 100)
        yield Setting(facts={library: f"{major}.{minor}.{patch}"})


def _rccl_tests(match: Match) -> _Events:
    """Read the version; a build outside of git has "Unknown" or ":+" for it."""
    if match[1]:
        yield Setting(facts={"rccl_tests": match[1]})


def _case_of_program(match: Match) -> _Events:
    yield Setting(case=match[1])


def _config(match: Match) -> _Events:
    """Read the sweep (`FIRST LAST STEP factor|bytes`), and how often each size is measured."""
    *sweep, warmup, iterations, validation = match.groups("")
    yield Note("sweep", " ".join(sweep))
    if validation:
        yield Note("validation", validation, match.string)
    yield Setting(facts={"iterations": int(iterations), "warmup": int(warmup)})


def _unknown_units(match: Match) -> _Events:
    """Read units other than us and GB/s: no row below them counts."""
    units = single_spaced(match[1])
    yield Header([UNREADABLE_UNITS])
    yield finding("unit-unknown", units=units)


def _in_place(_: Match) -> _Events:
    yield Setting(labels={"placement": "in-place"})


def _bounds(match: Match) -> _Events:
    """Read the footer with the number of failed checks, with which a table is finished."""
    yield End()
    if match[2] == "FAILED":
        yield Wrong(int(match[1]))


def _average(match: Match) -> _Events:
    """Read the last line of a table; it fails if less bandwidth was measured than demanded."""
    yield End()
    yield Note("average", match[1], match.string)
    if match[2] == "FAILED":
        stated = match.string.lstrip("# ")
        yield Fail(f"The average bus bandwidth is below NCCL_TESTS_MIN_BW: {stated}")


def _failure(match: Match) -> _Events:
    yield failure(match.string[:LONGEST_QUOTE])


def failure(message: str) -> Fail:
    """Return the event of an error that nccl-tests reports."""
    return Fail(f"nccl-tests reported an error: {message}")


# ---------------------------------------------------------------- the kinds of lines


class LineKind(records.PatternRecord, frozen=True):
    """A kind of line: a record of lines.toml."""

    kind: str
    stage: str

    @property
    def expression(self) -> str:
        """The pattern, with the names in it replaced."""
        return expand(self.pattern, _NAMES)


_NAME = r"(?:\S*/)?([\w.+-]+?)"
_NAMES = {"N": r"(\d{1,18})", "NAME": _NAME, "PROGRAM": rf"{_NAME}(?:_perf\S*)?(?!\S)"}
LINE_KINDS = records.load("fabbench.benchmarks.nccl", "lines.toml", LineKind)
_PATTERNS = [(each, lazy(each.expression)) for each in LINE_KINDS]
_EVENTS: Mapping[str, Callable[[Match], _Events]] = {
    "device": _device,
    "version": _version,
    "program": _case_of_program,
    "config": _config,
    "rccl_tests": _rccl_tests,
    "units": _unknown_units,
    "in_place": _in_place,
    "bounds": _bounds,
    "average": _average,
    "concluded": _case_of_program,
    "failure": _failure,
}
"""Kind of a line → what it says."""


def _events(kind: str, match: Match) -> _Events:
    """Yield what a line says; one of another kind is a note, whose value is the last group."""
    if kind in _EVENTS:
        yield from _EVENTS[kind](match)
    else:
        yield Note(kind, match[match.lastindex or 0], match.string)


@lru_cache(maxsize=512)  # most banners of the programs in one log are the same
def read_line(text: str) -> ParsedLine | None:
    """Read a line other than a row; None if it does not come from nccl-tests."""
    if "algbw" in text:
        layouts = read_header(text)
        if layouts:
            return ParsedLine("header", Stage.HEADER, (Header(layouts),))
    if not BENCHMARK.may_begin(text):
        return None
    text = text.strip()
    for line, pattern in _PATTERNS:
        match = pattern.match(text)
        if match is not None:
            events = _events(line.kind, match)
            return ParsedLine(line.kind, Stage[line.stage], tuple(events))
    return None


_COMMAND = lazy(r"(?:^|[\s/'\"])([a-z]\w*)_perf(?:_mpi)?(?=[\s'\";]|$)")


def read_command(text: str) -> str | None:
    """Return the case of a line that names a program: of the execution that begins next."""
    match = _COMMAND.search(text) if "_perf" in text else None
    return match[1] if match is not None else None
