"""Reads ep_bench's summaries (NCCL EP, June and August 2026: the labels of lines differ).

Rates stand below the time of their operation.
"""

from dataclasses import dataclass, field

from fabbench.benchmarks.consistency import printed
from fabbench.benchmarks.events import Begin, End, Events, Header, Setting, Wrong
from fabbench.benchmarks.executions import Execution
from fabbench.benchmarks.tables import Column, Row, is_ascending
from fabbench.model.patterns import lazy

CASE = "ep_bench"
_FIGURES = (
    r"(?:Dispatch|Combine|Total)(?: \([\w+]+\))?: +"
    r"(?:avg=<> us, min=<> us, max=<> us|total=<> us \(min=<>, max=<>\)|kernel=<> us)"
    r"|(?:(?:bus|algorithm) bandwidth|throughput)(?: \(excl\. protocol headers\))?: "
    r"avg=<> GB/s, min=<> GB/s(?: \(rank (\d+)\))?, max=<> GB/s(?(1) \(rank \d+\))"
    r"|(?:recv|send): total_bw=<>  nvl_bw=<>  rdma_bw=<> GB/s"
)
_WHOLE = lazy(_FIGURES.replace("<>", r"\d+\.\d\d"))
"""A whole line with figures, and the slowest rank."""
_FIGURE = lazy(r"\b(\w{1,9})=(\d{1,12}\.\d\d)")
_ROW = Column(
    cell=r"(?:(?:Dispatch|Combine|Total)(?: \([\w+]+\))?:|(?:bus|algorithm) bandwidth\b"
    r"|throughput: .*rank|(?:recv|send): total_bw).*"
)
_OPERATIONS = {"Dispatch": "dispatch", "Combine": "combine", "Total": "dispatch + combine"}
_STATS = {
    "min": "min",
    "max": "max",
    "nvl_bw": "operation={} NVL",
    "rdma_bw": "operation={} RDMA",
}
"""A figure's name → its statistic, or a label of it alone; others are the main figures."""
_TIMES = dict.fromkeys(_OPERATIONS, ("time", -6))
_METRICS = {"algorithm bandwidth": ("algbw", 9), **_TIMES}
"""What a line has, and the power of ten of its unit; others have a bandwidth."""
_SETTING = lazy(r"(?:Dispatch )?(Algorithm|Tokens|Hidden|Top-k|Experts|dtype): +([\w-]+).*")
_SUMMARY = lazy(r"=== Summary \((?:Low Latency|High Throughput)\b.*\bacross (\d{1,7}) ranks\) ===")
_BEGIN = (Begin(), Setting(CASE))


def events(text: str, execution: Execution | None) -> Events | None:
    """Return what a line means; None for a line that is not ep_bench's."""
    is_other = execution is None or execution.record.case != CASE
    summary = _SUMMARY.fullmatch(text)
    if summary is not None:
        # Its heading has begun the execution, unless that is cut off, or of the summary above.
        begin = _BEGIN if execution is None or is_other or execution.rows else ()
        ranks = Setting(facts={"ranks": int(summary[1])})
        return (*begin, ranks, Header([(_ROW,)]))
    if text.startswith("=== NCCL EP Performance"):
        return _BEGIN
    return None if is_other else _inside(text)


def _inside(text: str) -> Events | None:
    """Return what a line of an open execution means."""
    setting = _SETTING.fullmatch(text)
    if setting is not None:
        name, value = setting.groups()
        fact = name.lower().replace("-", "_")
        return (Setting(facts={fact: value.lower()}),)
    if text.startswith("--- "):  # a heading: times below it are of kernels alone, or not
        return (Setting(title="kernel" if "ernel" in text else ""),)
    if text.startswith("Validate mode:   enabled"):  # then a validation has to close it
        return (Setting(facts={"checked": "yes"}), End(complete=False))
    if text.startswith("Global validation: Dispatch="):
        return (End(), *[Wrong()] * text.count("FAILED"))
    return None


@dataclass(slots=True)
class Summary:
    """Reads the rows of a summary in their order."""

    operation: str = ""
    """That of the time above; empty: its line cannot be read."""
    kinds: set[str] = field(default_factory=set)
    """Those of the lines since then: each stands there once."""
    slowest: list[str] = field(default_factory=list)
    """The slowest rank of each operation, in words."""

    def read(self, row: Row) -> Row | None:
        """Return a row with its figures; None if it is not whole, or its operation not known."""
        text = row.cells[0].strip()
        whole = _WHOLE.fullmatch(text)
        kind = text.partition(":")[0].partition(" (")[0]
        if kind in _OPERATIONS:
            operation = f"{_OPERATIONS[kind]} {row.title}".strip()
            self.operation = operation if whole else ""
            self.kinds.clear()
        # Below one time each kind of line stands once: a second is of another operation.
        if whole is None or not self.operation or kind in self.kinds:
            return None
        self.kinds.add(kind)
        operation = f"{self.operation} {kind}" if kind in {"recv", "send"} else self.operation
        metric, exponent = _METRICS.get(kind, ("bandwidth", 9))  # in GB/s
        # Statistic → the figure; the main one, such as the mean, has an empty statistic.
        figures = {
            _STATS.get(name, "").format(operation): {metric: printed(number, exponent)}
            for name, number in _FIGURE.findall(text)
            if float(number)  # one of 0 moved nothing
        }
        if whole[1] and metric == "bandwidth":  # the rank that is printed with the minimum
            self.slowest.append(f"rank {whole[1]} in {operation}")
        with_figures = row._replace(labels={"operation": operation}, figures=figures)
        return with_figures if is_ascending(with_figures) else None
