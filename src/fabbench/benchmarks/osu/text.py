"""The output of the OSU micro-benchmarks: titles, columns, rows, errors.

Based on the sources of 5.6 to 7.5 (util/osu_util_mpi.c, and the printf of each program). A title names the
test, a line of column names follows, then rows of numbers; there is no closing line. MB are 10⁶ bytes.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fabbench.benchmarks.command_line import read_words
from fabbench.benchmarks.consistency import is_damaged_row
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy

_TITLE = lazy(
    r"\s*# ?OSU (?:(?P<library>MPI(?:-[A-Z]+)?|NCCL|RCCL|HCCL|OpenSHMEM|UPC|UPC\+\+) |One Sided )?"
    r"(?P<test>\S.*?) [Tt]est(?:\s+v(?P<version>\d[\w.-]*))?\s*"
)
_FACTS = lazy(r"#\s*(Datatype|Window creation|Synchronization|Window size): (\S+?)\.?\s*")
_PAIRS = lazy(r"#\s*\[ pairs: (\d{1,9}) \] \[ window size: (\d{1,9}) \]\s*")
_BUFFERS = lazy(r"#\s*Send Buffer on (\w+) \(\w+\) and Receive Buffer on (\w+) \(\w+\)\s*")
_GAP = lazy(r"\s{2,}|\t")
_NUMBER = lazy(r"\d{1,18}(?:\.\d{1,18})?", re.ASCII)

_TESTS: Mapping[str, str] = {
    "latency": "latency",
    "bandwidth": "bw",
    "bi-directional bandwidth": "bibw",
    "multi latency": "multi_lat",
    "multi-threaded latency": "latency_mt",
    "multi-process latency": "latency_mp",
    "multiple bandwidth / message rate": "mbw_mr",
    "all-to-all personalized exchange latency": "alltoall",
    "all-to-allv personalized exchange latency": "alltoallv",
    "all-to-allw personalized exchange latency": "alltoallw",
    "all-to-all latency": "alltoall",
    "all-to-allv latency": "alltoallv",
    "all-to-allw latency": "alltoallw",
    "broadcast latency": "bcast",
}
"""Title in lower case → program, if its name differs from the title."""
_ONE_SIDED: Mapping[str, str] = {
    "accumulate": "acc",
    "get_accumulate": "get_acc",
    "fetch_and_op": "fop",
    "compare_and_swap": "cas",
}
_ENDINGS: Mapping[str, str] = {" bi-directional bandwidth": "_bibw", " bandwidth": "_bw", " latency": "_latency"}
_POINT_TO_POINT = frozenset({"latency", "bw", "bibw", "multi_lat", "latency_mt", "latency_mp", "mbw_mr"})


class Column(NamedTuple):
    """The meaning of one column. `metric` is empty if it is not a metric of the contract."""

    metric: str
    stat: str = ""
    factor: float = 1e-6  # converts a printed figure to its base unit


SIZE, CHECK = Column("size"), Column("check")
NO_METRIC = Column("")
_CELLS = {SIZE: re.compile(r"\d{1,18}", re.ASCII), CHECK: re.compile("Pass|Fail")}
"""Patterns of cells that are not figures."""
_COLUMNS: Mapping[str, Column] = {
    "size": SIZE,
    "latency(us)": Column("time"),
    "avglatency(us)": Column("time"),
    "minlatency(us)": Column("time", "min"),
    "maxlatency(us)": Column("time", "max"),
    "overall(us)": Column("time"),
    "compute(us)": Column("time", "compute"),
    "purecomm.(us)": Column("time", "pure-comm"),
    "mincomm.(us)": Column("time", "min-comm"),
    "maxcomm.(us)": Column("time", "max-comm"),
    "bandwidth(mb/s)": Column("bandwidth", factor=1e6),
    "mb/s": Column("bandwidth", factor=1e6),
    "messages/s": Column("message_rate", factor=1.0),
    "validation": CHECK,
    "overlap(%)": NO_METRIC,
    "iterations": NO_METRIC,
    "coll.init(us)": NO_METRIC,
    "mpi_test(us)": NO_METRIC,
    "mpi_wait(us)": NO_METRIC,
}
"""Column name, in lower case and without blanks → column."""
_PERCENTILE = lazy(r"p(\d{1,2})tail(?:lat|bw).*")


@dataclass(frozen=True, slots=True)
class Title:
    """The first line of a table."""

    case: str
    one_way: bool  # whether its latency is that of one message, not the time of an operation of many ranks
    facts: Mapping[str, str | int] = field(default_factory=dict)


def read_title(text: str) -> Title | None:
    """Read a title; None for other lines."""
    match = _TITLE.fullmatch(text)
    if match is None:
        return None
    test, library = match["test"].strip(), match["library"] or "MPI"
    case, one_way = _case(test)
    facts: dict[str, str | int] = {"osu": match["version"]} if match["version"] else {}
    family, _, device = library.partition("-")
    if device:
        facts["gpu"] = device.lower()
    if family != "MPI":
        facts["library"] = family.lower()
    return Title(f"osu_{case}", one_way, facts)


def _case(test: str) -> tuple[str, bool]:
    """Return the program's name without `osu_`, and whether its latency is that of one message."""
    lower = " ".join(test.lower().split())
    one_sided, lower = lower.startswith("mpi_"), lower.removeprefix("mpi_")
    for prefix, letter in (("non-blocking ", "i"), ("neighborhood ", "neighbor_"), ("persistent ", "")):
        if lower.startswith(prefix):
            inner, _ = _case(lower.removeprefix(prefix))
            return f"{letter}{inner}{'_persistent' if prefix == 'persistent ' else ''}", False
    if not one_sided and lower in _TESTS:
        name = _TESTS[lower]
        return name, name in _POINT_TO_POINT
    for ending, short in _ENDINGS.items():
        if lower.endswith(ending):
            name = _word(lower.removesuffix(ending))
            return (f"{_ONE_SIDED.get(name, name)}{short}", True) if one_sided else (name, False)
    return _word(lower), False


def _word(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text).strip("_")


def read_columns(text: str, *, rates: bool = False) -> tuple[Column | None, ...] | None:
    """Read a line of column names, with None for each unknown column; None for other lines.

    `rates`: unnamed columns are message rates, not bandwidths.
    """
    metric, factor = ("message_rate", 1.0) if rates else ("bandwidth", 1e6)
    stripped = text.strip()
    if not stripped.startswith("#"):
        return None
    names = ["".join(name.lower().split()) for name in _GAP.split(stripped.removeprefix("#").strip())]
    if len(names) > 1 and all(map(str.isdecimal, names)):  # osu_mbw_mr -V: window sizes
        return (SIZE, *(Column(metric, f"window {name}", factor) for name in names))
    known = [_COLUMNS.get(name) for name in names]
    for at, name in enumerate(names):
        if match := _PERCENTILE.fullmatch(name):
            kind, scale = ("time", 1e-6) if "lat" in name else ("bandwidth", 1e6)
            known[at] = Column(kind, f"p{match[1]}", scale)
    return tuple(known) if known and known[0] is not None and known[0] is not NO_METRIC else None


def read_facts(text: str) -> Mapping[str, str | int] | None:
    """Read the facts in a comment between title and rows; None for other lines."""
    if match := _FACTS.fullmatch(text.strip()):
        return {match[1].lower().replace(" ", "_"): match[2]}
    if match := _PAIRS.fullmatch(text.strip()):
        return {"pairs": int(match[1]), "window_size": int(match[2])}
    if match := _BUFFERS.fullmatch(text.strip()):
        return {"buffers": f"{match[1].lower()}-{match[2].lower()}"}
    return None


class Row(NamedTuple):
    """A row: its cells as printed, one per column."""

    cells: tuple[str, ...]
    wrong: bool


def read_row(text: str, columns: Sequence[Column | None]) -> Row | None:
    """Read a row under columns; None if it is not a complete row."""
    cells = tuple(text.split())
    if len(cells) != len(columns):
        return None
    for cell, column in zip(cells, columns, strict=True):
        if _CELLS.get(column or NO_METRIC, _NUMBER).fullmatch(cell) is None:
            return None
    return Row(cells, any(c is CHECK and cell == "Fail" for cell, c in zip(cells, columns, strict=True)))


_ROW_BEGINS = lazy(r"\s*\d+(?:\.\d+)?(?:\s|$)")
_CUT_SIZE = lazy(r"[\w.]{0,18}\d[\w.]{0,18}", re.ASCII)
_CUT_ROW = lazy(r"\d+\.\d+")


def seems_row(text: str, columns: Sequence[Column | None]) -> bool:
    """Return whether a line begins like a row, or is the remains of one."""
    if _ROW_BEGINS.match(text) is not None:
        return True
    cells = text.split()
    if len(cells) == len(columns) == 2:
        # With so few columns, half of them would match any two words.
        return _CUT_SIZE.fullmatch(cells[0]) is not None and _CUT_ROW.fullmatch(cells[1]) is not None
    return is_damaged_row(cells, [_CELLS.get(column or NO_METRIC, _NUMBER) for column in columns])


_RANKS = lazy(r" -(?:np?|-ntasks)[ =](\d{1,9}) ")
_PROGRAM = lazy(r"(?:^|(?<=[\s/]))osu_(\w+)(?=\s|$)")
_SIZES = lazy(r"(?:^| )-(?:m|-message-size)[ =]?(?:(\d+):)?(\d*)(?: |$)")


def last_size(text: str) -> int | None:
    """Return the last size that a command line measures; None if a line does not show it.

    Sizes double from the first one. Without -m, tests between two ranks go up to 4 MB, and collectives up to 1 MB
    as long as their memory suffices.
    """
    command = read_words(text, _PROGRAM)
    if command is None:
        return None
    sizes = _SIZES.search(" ".join(command.words))
    low, high = (sizes[1], sizes[2]) if sizes is not None else ("", "")
    ranks = _RANKS.search(text)
    if not high and ranks is not None and int(ranks[1]) > 128:
        return None
    pair = command.program in _POINT_TO_POINT or command.program.startswith(("get_", "put_", "acc_"))
    size, end = max(int(low or 1), 1), int(high or (1 << 22 if pair else 1 << 20))
    while 2 * size <= end:
        size *= 2
    return size


_INVALID = lazy(r"\s*DATA VALIDATION ERROR: .*")
_FAILED = lazy(
    r"\s*(?:This (?:test|benchmark) requires .*|MPI_ABORT was invoked on rank .*"
    r"|\[[^\]]*\]\[MPIError\].*|Message too large\..*|Could not (?:allocate|open|initialize|bind) .*"
    r"|(?:\S*/)?osu_\w+: (?:error while loading|(?:command )?not found|No such file).*)"
)


def is_invalid(text: str) -> bool:
    """Return whether a line reports wrong data."""
    return _INVALID.fullmatch(text) is not None


def read_failure(text: str) -> str | None:
    """Return a sentence for a line that reports an error."""
    return f"OSU said: {text.strip()[:LONGEST_QUOTE]}" if _FAILED.fullmatch(text) else None
