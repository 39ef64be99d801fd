"""AWS Neuron's nccom-test: collectives between NeuronCores. Read only: fabbench does not start it.

Its GB are 2³⁰ or 10⁹ bytes, by version: AWS Neuron's documentation has both, and the rows show
which.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fabbench.benchmarks import Signature, consistency
from fabbench.benchmarks.commands import CommandLine, read_command_line
from fabbench.benchmarks.events import Begin, Command, End, Events, Header, Setting
from fabbench.benchmarks.executions import Execution, Table
from fabbench.benchmarks.standard import ReadBenchmark
from fabbench.benchmarks.tables import (
    COUNT,
    SIZE,
    Column,
    Row,
    is_ascending,
    read_columns,
    unknown_columns,
)
from fabbench.model.patterns import lazy

_GIB = float(1 << 30)
_GB = 1e9
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
_COLLECTIVE = lazy(
    r"(?:^| )(allr|allg|redsct|all_reduce|all_gather|reduce_scatter|alltoallv?|permute|sendrecv)"
    r"(?= |$)"
)
_ALTERED = "The printed average is not that of the rows: rows are missing or were altered."
_SHORT = {"all_reduce": "allr", "all_gather": "allg", "reduce_scatter": "redsct"}
"""Both names are its own."""
_SHAPES = (consistency.ALL_REDUCE, consistency.GATHERING, consistency.SAME)
"""The table does not name its collective."""


def _events(text: str, execution: Execution | None) -> Events | None:
    # The names of columns; within an execution its last line, the average; a command line. None:
    # any other line.
    if "size(B)" in text:
        names = text.split()
        if names[:2] == ["size(B)", "count(elems)"]:
            return _header_events(names, text)
    if execution is not None:
        average = _AVERAGE.fullmatch(text)
        if average is not None:
            return _average_events(average[1], text, execution)
    if "nccom-test" in text:
        command = read_command_line(text, _PROGRAM)
        return None if command is None else (_command_event(command),)
    return None


def _header_events(names: Sequence[str], text: str) -> Events:
    layout = read_columns(names, _COLUMNS)
    events: Events = (Begin(), Header([layout]), *unknown_columns(layout, text))
    # The JSON, which is read as a table, has a time last. It has no average: its end is not known.
    is_json = layout[-1].metric == "time"
    return (*events, End(complete=None)) if is_json else events


def _average_events(stated: str, text: str, execution: Execution) -> Events:
    """Compare the printed mean with that of the rows: documents quote some of the rows.

    Only a mean that agrees proves that no row is missing.
    """
    busbws = [row.figures[""]["busbw"] for row in execution.rows]  # "": the usual statistic
    count = max(len(busbws), 1)
    low = sum(busbw.low for busbw in busbws) / count
    high = sum(busbw.high for busbw in busbws) / count
    if consistency.printed(stated).overlaps(low, high):
        return (End(),)
    return (
        End(complete=None),
        consistency.warning("average-mismatch", _ALTERED, line=text.strip()),
    )


def _command_event(command: CommandLine) -> Command:
    # The ranks, and the case: collectives have short names in options (`allr`).
    ranks = _RANKS.search(command.arguments)
    facts = {"ranks": int(ranks[1])} if ranks is not None else {}
    collective = _COLLECTIVE.search(command.arguments)
    if collective is None:
        return Command((Setting(facts=facts),))
    case = _SHORT.get(collective[1], collective[1])
    return Command((Setting(case, facts),))


def _fits(row: Row) -> bool:
    """Return whether a row's elements have whole bytes, and its rates the ratio of a collective."""
    count = int(row.cell("count") or 0)
    bytes_beside_elements = row.size % count if count else row.size
    if bytes_beside_elements:
        return False
    algbw = row.main("algbw")
    busbw = row.main("busbw")
    if algbw is None or busbw is None:
        return False
    # The table names neither its collective nor, often, its ranks.
    allowed = consistency.ratios(size=0, time=consistency.ANYTHING, rate=algbw, bus=busbw)
    formula = consistency.choose_formula([allowed], _SHAPES, ranks=None)
    return formula is not None and is_ascending(row)


def _fits_unit(unit: float, row: Row) -> bool:
    """Return whether time x algbw is the size, if a printed GB has `unit` bytes."""
    time = row.main("time")
    if time is None:  # --stats without avg; only releases have it whose GB are 10⁹ bytes
        return unit == _GB
    algbw = row.figures[""]["algbw"]
    low, high = consistency.product(time, algbw.times(unit))
    return low <= row.size <= high


def _count_explained(unit: float, rows: Sequence[Row]) -> int:
    return sum(_fits_unit(unit, row) for row in rows)


def _settle(execution: Execution) -> Sequence[Row]:
    """Return the rows in bytes per second.

    A GB has the bytes that explain most rows, as one may fit either.
    """
    rows = execution.rows
    unit = _GIB if _count_explained(_GIB, rows) > _count_explained(_GB, rows) else _GB

    def read(row: Row) -> Row | None:
        if not _fits_unit(unit, row):
            return None
        main = {  # all but the time are rates, in GB/s as printed
            name: figure if name == "time" else figure.times(unit)
            for name, figure in row.figures[""].items()
        }
        return row._replace(figures={**row.figures, "": main})

    if any(finding.meaning == _ALTERED for finding in execution.record.findings):
        execution.record.incomplete = _ALTERED
    return execution.reread_rows(read)


TABLE = Table(
    benchmark="nccom",
    program="nccom-test",
    case="nccom-test",
    events=_events,
    failed=_FAILED,
    failing="euron",
    fits=_fits,
    settle=_settle,
    finished=False,
)


class Nccom(ReadBenchmark):
    """The benchmark ``nccom``."""

    name = "nccom"
    network_shown = "FI_LOG_LEVEL=info and NCCL_DEBUG=INFO, the plugin prints it"
    resolution = MappingProxyType(
        {"busbw": (0.01 * _GIB,), "algbw": (0.01 * _GIB,), "time": (1e-8,)}
    )
    signatures = (
        Signature("count(elems)", r"(?<! ) *size\(B\)\s+count\(elems\)\s"),
        Signature("Avg bus bandwidth:", r"Avg bus bandwidth:", begins=False),
    )
    first_words = ("size(B)", "nccom-test", "Neuron DKMS Driver", "neuron-bench")


BENCHMARK = Nccom()
