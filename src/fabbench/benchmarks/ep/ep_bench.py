"""Reads ep_bench's summaries (NCCL EP, June and August 2026: the labels of lines differ).

Rates stand below the time of their operation.
"""

from dataclasses import dataclass, field

from fabbench.benchmarks.consistency import Printed, printed
from fabbench.benchmarks.events import Begin, End, Events, Header, Setting, Wrong
from fabbench.benchmarks.executions import Execution
from fabbench.benchmarks.tables import Column, Row, is_ascending
from fabbench.model.patterns import lazy

CASE = "ep_bench"
_F = r"\d+\.\d\d"
_RANK = r" \(rank (\d+)\)"
_WHOLE = lazy(
    r"(?:Dispatch|Combine|Total)(?: \([\w+]+\))?: +"
    rf"(?:avg={_F} us, min={_F} us, max={_F} us|total={_F} us \(min={_F}, max={_F}\)|kernel={_F} us)"
    r"|(?:(?:bus|algorithm) bandwidth|throughput)(?: \(excl\. protocol headers\))?: "
    rf"avg={_F} GB/s, min={_F} GB/s(?:{_RANK})?, max={_F} GB/s(?(1){_RANK})"
    rf"|(?:recv|send): total_bw={_F}  nvl_bw={_F}  rdma_bw={_F} GB/s"
)
_FIGURE = lazy(rf"(\w+)=({_F})")
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
_SETTING = lazy(r"(?:Dispatch )?(Algorithm|Tokens|Hidden|Top-k|Experts|dtype): +([\w-]+).*")
_SUMMARY = lazy(r"=== Summary \((?:Low Latency|High Throughput)\b.*\bacross (\d{1,7}) ranks\) ===")


def events(text: str, execution: Execution | None) -> Events | None:
    """Return what a line means; None for a line that is not ep_bench's."""
    is_own = execution is not None and execution.record.case == CASE
    begin = (Begin(), Setting(CASE))
    summary = _SUMMARY.fullmatch(text)
    if summary is not None:
        is_inside = is_own and execution is not None and not execution.rows
        ranks = Setting(facts={"ranks": int(summary[1])})
        return (*(() if is_inside else begin), ranks, Header([(_ROW,)]))
    if text.startswith("=== NCCL EP Performance"):
        return begin
    return _inside(text) if is_own else None


def _inside(text: str) -> Events | None:
    """Return what a line of an open execution means."""
    if setting := _SETTING.fullmatch(text):
        name, value = setting.groups()
        number = int(value) if value.isdecimal() else value.lower()
        return (Setting(facts={name.lower().replace("-", "_"): number}),)
    if text.startswith("--- "):
        return (Setting(title="kernel" if "ernel" in text else ""),)
    if text.startswith("Validate mode:") and text.endswith("enabled"):
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
            self.operation = f"{_OPERATIONS[kind]} {row.title}".strip() if whole else ""
            self.kinds.clear()
        if whole is None or not self.operation or kind in self.kinds:
            return None
        self.kinds.add(kind)
        of_kind = f"{self.operation} {kind}" if kind in {"recv", "send"} else self.operation
        figures = _figures(text, kind, of_kind)
        read = row._replace(labels={"operation": of_kind}, figures=figures)
        if whole[1] and kind != "algorithm bandwidth":
            rate = _FIGURE.findall(text)[1][1]
            self.slowest.append(f"rank {whole[1]} in {of_kind} ({rate} GB/s)")
        return read if is_ascending(read) else None


def _figures(text: str, kind: str, operation: str) -> dict[str, dict[str, Printed]]:
    """Return the figures of a line; rates of 0 are left out."""
    metric = "algbw" if kind == "algorithm bandwidth" else "bandwidth"
    figures: dict[str, dict[str, Printed]] = {}
    for name, number in _FIGURE.findall(text):
        figure = printed(number, 9)
        if kind in _OPERATIONS:
            metric, figure = "time", printed(number, -6)
        if figure.value:
            figures[_STATS.get(name, "").format(operation)] = {metric: figure}
    return figures
