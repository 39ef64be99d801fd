"""Intel MPI Benchmarks (IMB-MPI1, IMB-P2P, …): MPI between ranks. Read only: fabbench does not start them.

Their MB are 10⁶ or 2²⁰ bytes, by version: the rows show which, where the bytes of a transfer are known.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from fabbench.benchmarks import OF_MPI, Signature, engine
from fabbench.benchmarks.consistency import Printed, stopped_early
from fabbench.benchmarks.mpi_transport import WORDS
from fabbench.benchmarks.standard import ReadBenchmark
from fabbench.model.patterns import lazy

_F = r"\d{1,18}\.\d\d"  # the decimals tell a whole figure from a cut one
_COLUMNS: Mapping[str, engine.Column] = {
    "#bytes": engine.SIZE,
    "#repetitions": engine.Column(cell=engine.COUNT),
    r"t\[usec\]": engine.Column("latency", 1e-6, cell=_F),
    r"t_avg\[usec\]": engine.Column("time", 1e-6, cell=_F),
    r"t_(min|max|ovrl|pure|cpu)\[usec\]": engine.Column("time", 1e-6, "{}", cell=_F),
    r"overlap\[%\]": engine.Column(cell=_F),
    "mbytes/sec": engine.Column("bandwidth", cell=_F),
    "msg/sec": engine.Column("message_rate", cell=engine.COUNT),
    "defects": engine.Column("defects", cell=_F),
}
_BEGIN = lazy(r"# Benchmarking ([A-Z][\w-]*)\s*")
_HEADING = lazy(
    r"# +(?:#processes = (?P<ranks>\d{1,9})|\( (?P<groups>\d{1,9}) groups of (?P<each>\d{1,9}) processes each .*\)"
    r"|MODE: (?P<mode>[\w-]+)|Intel ?\(R\) MPI Benchmarks (?P<imb>\S+),.*"
    r"|Maximum message length in bytes: +(?P<largest>\d{1,18}))\s*"
)
_ABOVE = frozenset({"imb", "largest"})
_MESSAGES = {"PingPong": 1, "PingPing": 1, "Sendrecv": 2, "Exchange": 4}  # of a rank in the time of a row


def _statement(text: str, execution: engine.Execution | None) -> engine.Statement | None:
    # What stands above the first table is about all.
    kept = {name: fact for name, fact in execution.record.facts.items() if name in _ABOVE} if execution else {}
    if "#repetitions" in text and text.partition("#repetitions")[0].strip() in {"", "#bytes"}:
        layout = engine.read_columns(text.split(), _COLUMNS)
        begins, finding = execution is None or bool(execution.layouts), engine.unknown_columns(layout, text)
        return engine.Statement(begins=begins, layouts=(layout,), facts=kept, finding=finding)
    if text[:1] == "#" and (match := _BEGIN.fullmatch(text)) is not None:
        return engine.Statement(begins=True, case=match[1], facts=kept)
    facts: dict[str, str | int] = {}
    if match := _HEADING.fullmatch(text):
        each = int(match["ranks"] or match["each"] or 0)
        facts = {"ranks": each * int(match["groups"] or 1)} if each else {}
        facts |= {name: int(match[name]) for name in ("groups", "largest") if match[name]}
        facts |= {name: match[name].lower() for name in ("mode", "imb") if match[name]}
    if execution is None:
        return engine.Statement(above=True, facts=facts) if _ABOVE & facts.keys() else None
    mode = facts.pop("mode", "")
    return engine.Statement(facts=facts, labels={"operation": str(mode)} if mode else {}) if text[:1] == "#" else None


def _moves(row: engine.Row, case: str, unit: float) -> bool | None:
    """Return whether the bandwidth is that of the row's time or rate, in a unit; None: it cannot be said."""
    bandwidth, sent, messages = row.main("bandwidth"), row.main("message_rate"), _MESSAGES.get(case, 0)
    time = row.main("latency") or row.figures.get("max", {}).get("time")
    if sent is None and messages and time is not None and time.low:
        sent = Printed(0.0, messages / time.high, messages / time.low)
    if bandwidth is None or sent is None or not row.size:
        return None
    return bandwidth.times(unit).overlaps(sent.low * row.size, sent.high * row.size)


def _settle(execution: engine.Execution) -> Sequence[engine.Row]:
    """Return the rows in bytes per second; a bandwidth whose unit nothing shows is left out."""
    record = execution.record
    case, largest = record.case or "", int(record.facts.pop("largest", 0))
    unit = max((1e6, float(1 << 20)), key=lambda unit: sum(_moves(row, case, unit) or False for row in execution.rows))

    def read(row: engine.Row) -> engine.Row | None:
        moves, main = _moves(row, case, unit), dict(row.figures.get("", {}))
        # Nothing contradicts the rate of empty messages: the next line shows that it is whole.
        if moves is False or ("message_rate" in main and not row.size and row.line.number == execution.last):
            return None
        if (bandwidth := main.pop("bandwidth", None)) is not None and moves:
            main["bandwidth"] = bandwidth.times(unit)
        figures = {**row.figures, "": main}
        return row._replace(figures={stat: each for stat, each in figures.items() if each})

    rows = execution.kept(read)
    end = max((row.size for row in rows), default=0)
    record.incomplete = stopped_early(end, largest) if 0 < end < largest else record.incomplete
    return rows


TABLE = engine.Table(
    benchmark="imb",
    program="IMB",
    statement=lambda text, execution: _statement(text.strip(), execution),
    fits=lambda row: engine.is_ascending(row) and float(row.cell("defects") or 0) == 0,
    settle=_settle,
)


class Imb(ReadBenchmark):
    """The benchmark ``imb``."""

    name = "imb"
    network_shown = OF_MPI
    versions = ("imb",)
    default_metrics = ("bandwidth", "latency", "time", "message_rate")
    resolution = MappingProxyType({"latency": (1e-8,), "time": (1e-8,), "bandwidth": (1e4,), "message_rate": (1.0,)})
    signatures = (
        Signature("#repetitions", r"(?: {7})?(?:#bytes\s+)?#repetitions\s+(?:t|M)"),
        Signature("MPI Benchmarks", r"# +Intel ?\(R\) MPI Benchmarks", begins=False),
    )
    first_words = ("#repetitions", "# Benchmarking", "MPI Benchmarks", "# Maximum message", *WORDS)


BENCHMARK = Imb()
