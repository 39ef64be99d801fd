"""Intel MPI Benchmarks (IMB-MPI1, IMB-P2P, …): MPI between ranks.

Read only: fabbench does not start them.

Their MB are 10⁶ or 2²⁰ bytes, by version: the rows show which, where the bytes of a transfer are
known.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from types import MappingProxyType

from fabbench.benchmarks import OF_MPI, Signature, engine
from fabbench.benchmarks.consistency import Printed, stopped_early
from fabbench.benchmarks.mpi_transport import WORDS
from fabbench.benchmarks.standard import ReadBenchmark
from fabbench.model.patterns import lazy

_F = r"\d{1,18}\.\d\d"  # the decimals tell a whole figure from a cut one
_COLUMNS: Mapping[str, engine.Column] = {
    "group": engine.Column(label="group", cell=engine.COUNT),
    "#bytes": engine.SIZE,
    "#repetitions": engine.Column(cell=engine.COUNT),
    r"t\[usec\]": engine.Column("latency", 1e-6, cell=_F),
    r"t_(?:avg|ovrl)\[usec\]": engine.Column("time", 1e-6, cell=_F),
    r"t_(min|max|pure|cpu)\[usec\]": engine.Column("time", 1e-6, "{}", cell=_F),
    r"overlap\[%\]": engine.Column(cell=_F),
    "mbytes/sec": engine.Column("bandwidth", cell=_F),
    "msg/sec": engine.Column("message_rate", cell=engine.COUNT),
    "defects": engine.Column("check", cell=_F),
}
_BEGIN = lazy(r"# Benchmarking ([A-Z][\w-]*)\s*")
_HEADING = lazy(
    r"#\s+(?:\(? ?#processes = (?P<ranks>\d{1,9})(?: \(threads: (?P<threads>\d{1,9})\)|; rank "
    r"order .*| \))?"
    r"|\( (?P<groups>\d{1,9}) groups of (?P<each>\d{1,9}) processes each .*\)|window_size = "
    r"(?P<window_size>\d{1,9})"
    r"|MODE: (?P<mode>[\w-]+)|Intel ?\(R\) MPI Benchmark(?:s| Suite) V?(?P<imb>[^,]+),.*"
    r"|Maximum message length in bytes: +(?P<largest>\d{1,18}))\s*"
)
_SKIPPED = lazy(
    r"(?:\d+\s+){1,2}(?:out-of-|time-out|int-overflow).*|(?P<wrong>CHECK FAILURES|\d+: Error "
    r"\w+,).*"
)
_ABOVE = frozenset({"imb", "largest"})  # what stands above the first table and is about all
_UNITS = tuple(
    product((1e6, float(1 << 20)), (1, 2, 4))
)  # bytes of a MB, messages in the time of a row


def _statement(text: str, execution: engine.Execution | None) -> engine.Statement | None:
    text = text.strip().replace("#- ", "# ", 1)
    kept = (
        {name: fact for name, fact in execution.record.facts.items() if name in _ABOVE}
        if execution
        else {}
    )
    if "#repetitions" in text and {"Group", "#bytes"}.issuperset(
        text.partition("#repetitions")[0].split()
    ):
        layout = engine.read_columns(text.split(), _COLUMNS)
        begins, finding = (
            execution is None or bool(execution.layouts),
            engine.unknown_columns(layout, text),
        )
        return engine.Statement(begins=begins, layouts=(layout,), facts=kept, finding=finding)
    if text[:1] == "#" and (match := _BEGIN.fullmatch(text)) is not None:
        return engine.Statement(above=True, ends=True, case=match[1], facts=kept)
    facts: dict[str, str | int] = {}
    if match := _HEADING.fullmatch(text):
        each = int(match["ranks"] or match["each"] or 0)
        facts = {"ranks": each * int(match["groups"] or 1)} if each else {}
        facts |= {
            name: int(match[name])
            for name in ("groups", "largest", "threads", "window_size")
            if match[name]
        }
        facts |= {name: match[name].lower() for name in ("mode", "imb") if match[name]}
    if execution is not None and (match := _SKIPPED.fullmatch(text)):
        return engine.Statement(
            wrong=bool(match["wrong"]), notes=(engine.Note("", " ".join(text.split())),)
        )
    labels = {"operation": str(facts.pop("mode"))} if "mode" in facts else {}
    return (
        engine.Statement(above=execution is None, facts=facts, labels=labels)
        if facts or labels
        else None
    )


def _moves(row: engine.Row, unit: float, messages: int) -> bool | None:
    """Return whether the bandwidth is that of the row's time or rate, in a unit.

    None: it cannot be said.
    """
    bandwidth, sent = row.main("bandwidth"), row.main("message_rate")
    time = row.main("latency") or row.figures.get("max", {}).get("time")
    if sent is None and time is not None and time.low:
        sent = Printed(0.0, messages / time.high, messages / time.low)
    # Of threads, the bandwidth is that of the slowest, and the rate the mean.
    if bandwidth is None or sent is None or not row.size or "threads" in row.record.facts:
        return None
    return bandwidth.times(unit).overlaps(sent.low * row.size, sent.high * row.size)


def _settle(execution: engine.Execution) -> Sequence[engine.Row]:
    """Return the rows in bytes per second; a bandwidth whose unit nothing shows is left out."""
    record, seen = (
        execution.record,
        [row for row in execution.rows if _moves(row, *_UNITS[0]) is not None],
    )
    largest, version = int(record.facts.pop("largest", 0)), str(record.facts.get("imb", ""))
    fitting = {units: sum(bool(_moves(row, *units)) for row in seen) for units in _UNITS}
    units = max(_UNITS, key=fitting.__getitem__)
    known = 0 < len(seen) <= fitting[units] * 2

    def read(row: engine.Row) -> engine.Row | None:
        moves, main = _moves(row, *units) if known else None, dict(row.figures.get("", {}))
        # Where nothing contradicts a rate, the next line shows that it is whole.
        if moves is False or (
            moves is None and "message_rate" in main and row.line.number == execution.last
        ):
            return None
        bandwidth = main.pop("bandwidth", None)
        if bandwidth is not None and (moves or (not seen and version[:4] >= "2018")):
            main["bandwidth"] = bandwidth.times(units[0])
        return row._replace(
            figures={stat: each for stat, each in {**row.figures, "": main}.items() if each}
        )

    rows = execution.kept(read)
    end = max((row.size for row in rows), default=0)
    record.incomplete = stopped_early(end, largest) if 0 < end < largest else record.incomplete
    record.incomplete = next(
        (f"IMB said: {note.value}" for note in execution.notes), record.incomplete
    )
    return rows


TABLE = engine.Table(
    benchmark="imb", program="IMB", statement=_statement, fits=engine.is_ascending, settle=_settle
)


class Imb(ReadBenchmark):
    """The benchmark ``imb``."""

    name = "imb"
    network_shown = OF_MPI
    versions = ("imb", "libfabric")
    default_metrics = ("bandwidth", "latency", "time", "message_rate")
    resolution = MappingProxyType(
        {"latency": (1e-8,), "time": (1e-8,), "bandwidth": (1e4,), "message_rate": (1.0,)}
    )
    signatures = (
        Signature("#repetitions", r"(?: {7})?(?:Group\s+)?(?:#bytes\s+)?#repetitions\s+(?:t|M)"),
        Signature("# Benchmarking", r"# Benchmarking [A-Z][\w-]*\s*$"),
        Signature("MPI Benchmark", r"# +Intel ?\(R\) MPI Benchmark", begins=False),
    )
    first_words = ("#repetitions", "Benchmarking ", "MPI Benchmark", "# Maximum message", *WORDS)


BENCHMARK = Imb()
