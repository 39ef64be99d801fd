"""AWS Neuron's nccom-test: collectives between NeuronCores. Read only: fabbench does not start it.

Its GB are 2³⁰ or 10⁹ bytes, by version: 33554432 bytes in 768 us were printed as 40.69 GB/s, and 33554432 bytes in
894.24 us as 37.52 GB/s (AWS Neuron's documentation). The rows show which.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fabbench.benchmarks import Benchmark, Signature
from fabbench.benchmarks.command_line import read_words
from fabbench.benchmarks.consistency import (
    ALL_REDUCE,
    ANYTHING,
    GATHERING,
    SAME,
    choose_formula,
    printed,
    product,
    ratios,
    warning,
)
from fabbench.benchmarks.engine import (
    COUNT,
    SIZE,
    Column,
    Execution,
    Row,
    Statement,
    Table,
    TableReader,
    is_ascending,
    read_columns,
    unknown_columns,
)
from fabbench.model.compat import override
from fabbench.model.patterns import lazy

_GIB, _GB = float(1 << 30), 1e9
_COLUMNS: Mapping[str, Column] = {
    r"size\(b\)": SIZE,
    r"count\(elems\)": Column("count", cell=COUNT),
    r"total_(?:in|out)put_size\(b\)": Column(cell=COUNT),
    "type": Column(label="dtype", cell=r"[a-z][a-z0-9_]*"),
    r"time(?::avg)?\(us\)": Column("time", 1e-6, decimals=2),
    r"time:(\w+)\(us\)": Column("time", 1e-6, "{}", decimals=2),
    r"algbw\(gb/s\)": Column("algbw", decimals=2),
    r"busbw\(gb/s\)": Column("busbw", decimals=2),
    "algorithm": Column(cell=r"[a-z]\w*"),
}
_AVERAGE = lazy(r"\s*Avg bus bandwidth:\s*(\d+\.\d+)\s?GB/s\s*")
_FAILED = lazy(
    r"\s*(?:(?:\d+\s+)?Failure running neuron-bench.*|\d+ errors found - test failed\s*"
    r"|Neuron DKMS Driver is not running!.*)"
)
_PROGRAM = lazy(r"(?:^|(?<=[\s/]))(nccom-test)(?=\s|$)")
_RANKS = lazy(r"(?:^| )(?:-r|--nworkers)[ =](\d{1,9})(?= |$)")
_COLLECTIVE = lazy(r"(?:^| )(allr|allg|redsct|alltoallv?|permute|sendrecv)(?= |$)")
_SHAPES = (ALL_REDUCE, GATHERING, SAME)  # the table does not name its collective


def _statement(text: str, execution: Execution | None) -> Statement | None:
    if "size(B)" in text and text.split()[:2] == ["size(B)", "count(elems)"]:
        layout = read_columns(text.split(), _COLUMNS)
        return Statement(begins=True, layouts=(layout,), finding=unknown_columns(layout, text))
    if execution is not None and (match := _AVERAGE.fullmatch(text)) is not None:
        return _average(match[1], text, execution)
    if "nccom-test" in text and (command := read_words(text, _PROGRAM)) is not None:
        words = " ".join(command.words)
        ranks, collective = _RANKS.search(words), _COLLECTIVE.search(words)
        facts = {"ranks": int(ranks[1])} if ranks is not None else {}
        return Statement(above=True, end=0, facts=facts, case=collective[1] if collective is not None else None)
    return None


def _average(cell: str, text: str, execution: Execution) -> Statement:
    """Compare the rows with the printed mean: documents quote some of the rows, and the mean of all."""
    unit = _unit(execution.rows)
    rows = (row for row in execution.rows if _is_in(unit, row))
    busbws = [busbw for row in rows if (busbw := row.main("busbw")) is not None]
    count = max(len(busbws), 1)
    low, high = sum(busbw.low for busbw in busbws) / count, sum(busbw.high for busbw in busbws) / count
    if printed(cell).overlaps(low, high):
        return Statement(finished=True)
    meaning = "The printed average is not that of the rows: rows are missing or were altered."
    return Statement(finished=None, finding=warning("average-mismatch", meaning, line=text.strip()))


def _fits(row: Row) -> bool:
    count = int(row.cell("count") or 0)
    if row.size % count if count else row.size:
        return False
    algbw, busbw = row.main("algbw"), row.main("busbw")
    if algbw is None or busbw is None:
        return False
    # The table names neither its collective nor, often, its ranks.
    return choose_formula([ratios(0, ANYTHING, algbw, busbw)], _SHAPES, None) is not None and is_ascending(row)


def _is_in(unit: float, row: Row) -> bool:
    """Return whether the rate of a row, in GB of so many bytes, is its size in its time."""
    time, algbw = row.main("time"), row.main("algbw")
    if time is None or algbw is None:
        return False
    low, high = product(time, algbw.times(unit))
    return low <= row.size <= high


def _unit(rows: Sequence[Row]) -> float:
    """Return the bytes of a GB that explain most rows: a rate of few digits may be in either unit."""
    return max((_GB, _GIB), key=lambda unit: sum(_is_in(unit, row) for row in rows))


def _settle(execution: Execution) -> Sequence[Row]:
    """Return the rows in bytes per second."""
    unit, rows = _unit(execution.rows), list[Row]()
    for row in execution.rows:
        if not _is_in(unit, row):
            execution.damage(row.line)
            continue
        main = {name: each.times(1.0 if name == "time" else unit) for name, each in row.figures[""].items()}
        rows.append(row._replace(figures={**row.figures, "": main}))
    return rows


_TABLE = Table(
    benchmark="nccom",
    program="nccom-test",
    case="nccom-test",
    statement=_statement,
    failed=_FAILED,
    failing="euron",
    fits=_fits,
    settle=_settle,
    finished=False,
)


class Nccom(Benchmark):
    """The benchmark ``nccom``."""

    name = "nccom"
    versions = ()
    resolution = MappingProxyType({"busbw": (0.01 * _GIB,), "algbw": (0.01 * _GIB,), "time": (1e-8,)})

    signatures = (
        Signature("count(elems)", r"(?: {4})?size\(B\)\s+count\(elems\)\s"),
        Signature("Avg bus bandwidth:", r"Avg bus bandwidth:", begins=False),
    )

    first_words = ("size(B)", "nccom-test", "Neuron DKMS Driver", "neuron-bench")

    @override
    def reader(self) -> TableReader:
        return TableReader(_TABLE)


BENCHMARK = Nccom()
