"""AWS Neuron's nccom-test: collectives between NeuronCores. Read only: fabbench does not start it.

Its GB are 2³⁰ or 10⁹ bytes, by version: AWS Neuron's documentation has both, and the rows show
which.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fabbench.benchmarks import Signature, consistency, engine
from fabbench.benchmarks.standard import ReadBenchmark
from fabbench.model.patterns import lazy

_GIB, _GB = float(1 << 30), 1e9
_COLUMNS: Mapping[str, engine.Column] = {
    r"size\(b\)": engine.SIZE,
    r"count\(elems\)": engine.Column("count", cell=engine.COUNT),
    r"total_(?:in|out)put_size\(b\)": engine.Column(cell=engine.COUNT),
    "type": engine.Column(label="dtype", cell=r"[a-z][a-z0-9_]*"),
    r"time(?::avg)?\(us\)": engine.Column("time", 1e-6, decimals=2),
    r"time:(\w+)\(us\)": engine.Column("time", 1e-6, "{}", decimals=2),
    r"algbw\(gb/s\)": engine.Column("algbw", decimals=2),
    r"busbw\(gb/s\)": engine.Column("busbw", decimals=2),
    "algorithm": engine.Column(cell=r"[a-z]\w*"),
}
_AVERAGE = lazy(r"\s*Avg bus bandwidth:\s*(\d+\.\d+)\s?GB/s\s*")
_FAILED = lazy(
    r"\s*(?:(?:\d+\s+)?Failure running neuron-bench.*|\d+ errors found - test failed\s*"
    r"|Neuron DKMS Driver is not running!.*)"
)
_PROGRAM = lazy(r"(?:^|(?<=[\s/]))(nccom-test)(?=\s|$)")
_RANKS = lazy(r"(?:^| )(?:-r|--nworkers)[ =](\d{1,9})(?= |$)")
_COLLECTIVE = lazy(
    r"(?:^| )(allr|allg|redsct|all_reduce|all_gather|reduce_scatter|alltoallv?|permute|sendrecv)(?= |$)"
)
_SHORT = {
    "all_reduce": "allr",
    "all_gather": "allg",
    "reduce_scatter": "redsct",
}  # both names are its own
_SHAPES = (
    consistency.ALL_REDUCE,
    consistency.GATHERING,
    consistency.SAME,
)  # the table does not name its collective


def _statement(text: str, execution: engine.Execution | None) -> engine.Statement | None:
    if "size(B)" in text and text.split()[:2] == ["size(B)", "count(elems)"]:
        row = engine.read_columns(text.split(), _COLUMNS)
        end = None if row[-1].metric == "time" else False  # its JSON has no average
        return engine.Statement(
            begins=True, layouts=(row,), finished=end, finding=engine.unknown_columns(row, text)
        )
    if execution is not None and (match := _AVERAGE.fullmatch(text)) is not None:
        # Documents quote some of the rows, and the mean of all.
        busbws, count = (
            [row.figures[""]["busbw"] for row in execution.rows],
            max(len(execution.rows), 1),
        )
        low, high = (
            sum(busbw.low for busbw in busbws) / count,
            sum(busbw.high for busbw in busbws) / count,
        )
        if consistency.printed(match[1]).overlaps(low, high):
            return engine.Statement(finished=True)
        meaning = "The printed average is not that of the rows: rows are missing or were altered."
        found = consistency.warning("average-mismatch", meaning, line=text.strip())
        return engine.Statement(finished=None, finding=found)
    if "nccom-test" in text and (command := engine.read_words(text, _PROGRAM)) is not None:
        words = " ".join(command[1])
        ranks, collective = _RANKS.search(words), _COLLECTIVE.search(words)
        facts = {"ranks": int(ranks[1])} if ranks is not None else {}
        case = _SHORT.get(collective[1], collective[1]) if collective is not None else None
        return engine.Statement(above=True, end=0, facts=facts, case=case)
    return None


def _fits(row: engine.Row) -> bool:
    count = int(row.cell("count") or 0)
    if row.size % count if count else row.size:
        return False
    algbw, busbw = row.main("algbw"), row.main("busbw")
    if algbw is None or busbw is None:
        return False
    # The table names neither its collective nor, often, its ranks.
    allowed = consistency.ratios(0, consistency.ANYTHING, algbw, busbw)
    return consistency.choose_formula([allowed], _SHAPES, None) is not None and engine.is_ascending(
        row
    )


def _is_in(unit: float, row: engine.Row) -> bool:
    if (
        time := row.main("time")
    ) is None:  # --stats without avg, of releases whose GB are 10⁹ bytes
        return unit == _GB
    low, high = consistency.product(time, row.figures[""]["algbw"].times(unit))
    return low <= row.size <= high


def _settle(execution: engine.Execution) -> Sequence[engine.Row]:
    """Return the rows in bytes per second.

    A GB has the bytes that explain most rows, as one may fit either.
    """
    unit = max((_GB, _GIB), key=lambda unit: sum(_is_in(unit, row) for row in execution.rows))

    def read(row: engine.Row) -> engine.Row | None:
        main = {
            name: each.times(1.0 if name == "time" else unit)
            for name, each in row.figures[""].items()
        }
        return row._replace(figures={**row.figures, "": main}) if _is_in(unit, row) else None

    return execution.kept(read)


TABLE = engine.Table(
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
