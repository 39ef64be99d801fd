"""DeepEP's tests of expert parallelism (test_intranode, test_internode, test_low_latency.

UCCL-EP's are equal).

Each line with figures stands alone: `[tuning] Best dispatch (FP8): …`, or one line per rank. GB are
10⁹ bytes. Only V2 (test_ep, since April 2026) states how many: those of scale-up (SU), inside a
scale-out (SO) domain. The times of send and recv alone, and of copy and reduce, are not read. Read
only.
"""

import re
from collections.abc import Mapping, Sequence

from fabbench.benchmarks import Signature, engine
from fabbench.benchmarks.consistency import Printed, is_ordered, note, printed, product
from fabbench.benchmarks.standard import ReadBenchmark
from fabbench.model.patterns import lazy

_F, _N = r"\d+\.\d\d", r"\d+(?:\.\d\d)?"
_PART = lazy(
    r"(?:\[tuning\] Best |\[rank (?P<rank>\d+)\] )?(?P<name>[Dd]ispatch \+ "
    r"combine|[Dd]ispatch|[Cc]ombine)"
    r"(?: \((?P<dtype>\w+)\)| bandwidth)?: (?:SMs \d+, NVL chunk \d+(?:, RDMA chunk \d+)?[:,] )?"
    rf"(?:{_N} \+ (?P<t>{_N}) us, |transmit: (?P<transmit>{_F}) us, notify: {_F} us, BW: )?"
    rf"(?P<rate>{_F}) GB/s(?: \((?P<way>RDMA)\), (?P<nvl>{_F}) GB/s \(NVL\)| \(NVL\)(?:, t: "
    rf"(?P<best>{_F}) us)?"
    rf"|, avg_t=(?P<avg>{_F}) us(?:, min_t=(?P<min>{_F}) us, max_t=(?P<max>{_F}) us)?)"
)
_V2 = lazy(
    r"[*#@+-] EP: +(?P<rank>\d+)/\d+ \| (?P<name>(?:expanded |cached )?dispatch|(?:reduced "
    r")?combine): "
    r"(?P<SO>\d+) GB/s \(SO\), (?P<SU>\d+) GB/s \(SU\), (?P<t>\d+\.\d{3}) us, (?P<size>\d{1,18}) "
    r"bytes"
    r" \| (?:copy|reduce): \d+ GB/s, \d+\.\d{3} us"
)
_V2_DTYPE = lazy(r"(?:> )?Testing with .*\buse_fp8_dispatch=([01])\b.*")
_LINES: Mapping[str, engine.Layout] = {
    "test_internode": (engine.Column(cell=r"\[tuning\] Best .*RDMA.*"),),
    "test_intranode": (engine.Column(cell=r"\[tuning\] Best (?!.*RDMA).*"),),
    "test_ep": (engine.Column(cell=r"[*#@+-] EP: +\d+/\d+ \| .*"),),
    "test_low_latency": (
        engine.Column(cell=r"(?:\[rank \d+\] )?Dispatch (?:\+ combine )?bandwidth.*"),
    ),
}
_MAY_GO_ON = lazy(r"\[tuning\](?!.*RDMA).*\(NVL\)\s*")  # newer releases print a time behind it


def _statement(text: str, execution: engine.Execution | None) -> engine.Statement | None:
    text = text.strip()
    for case, layout in _LINES.items():
        if engine.cell_patterns(layout)[0].fullmatch(text):
            return engine.Statement(begins=True, case=case, layouts=(layout,), row=True)
    if (dtype := _V2_DTYPE.fullmatch(text)) is not None:
        return engine.Statement(
            above=execution is None, labels={"dtype": ("BF16", "FP8")[int(dtype[1])]}
        )
    return (
        engine.NO_MEANING
        if execution is not None and text.startswith(("[tuning] ", "Dispatch send"))
        else None
    )


def _read(row: engine.Row) -> engine.Row | None:
    """Return a row with what its line says; None if it is not whole."""
    figures, labels, text = (
        dict[str, dict[str, Printed]](),
        {"rank": row.line.stream.rank},
        row.cells[0].strip(),
    )
    if (match := _V2.fullmatch(text)) is not None:
        return _read_v2(row, match)
    parts = [match for part in text.split(" | ") if (match := _PART.fullmatch(part)) is not None]
    if len(parts) != (2 if "Dispatch bandwidth" in text else 1):
        return None
    for part in parts:
        ordered = is_ordered(*(printed(part[each] or "nan") for each in ("min", "avg", "max")))
        if not ordered or ("+" in part["name"] and not part["max"]):
            return None
        labels |= {name: part[name] for name in ("dtype", "rank") if part[name]}
        time = next(filter(None, (part["t"], part["transmit"], part["best"], part["avg"])), None)
        times = {"time": printed(time, -6)} if time else {}
        for rate, way in (
            (part["rate"], part["way"] or ("NVL" if "(NVL)" in text else "")),
            (part["nvl"], "NVL"),
        ):
            if rate and float(rate):
                figures[f"operation={part['name'].lower()} {way}".strip()] = {
                    "bandwidth": printed(rate, 9),
                    **times,
                }
    labels = {name: label for name, label in labels.items() if label}
    return row._replace(labels=labels, figures=figures) if figures else None


def _read_v2(row: engine.Row, match: re.Match[str]) -> engine.Row | None:
    name, size, time = match["name"], int(match["size"]), printed(match["t"], -6)
    rates = {way: printed(match[way], 9) for way in ("SO", "SU") if int(match[way])}
    low, high = product(printed(match["SU"], 9), time)
    figures = {
        f"operation={name} {way}": {"bandwidth": rate, "time": time} for way, rate in rates.items()
    }
    labels = {
        **row.labels,
        **({} if "dispatch" in name else {"dtype": "BF16"}),
        "rank": match["rank"],
    }
    return (
        row._replace(size=size, labels=labels, figures=figures)
        if figures and low <= size <= high
        else None
    )


def _settle(execution: engine.Execution) -> Sequence[engine.Row]:
    record = execution.record
    if record.case != "test_ep":
        record.findings.append(
            note("size-unstated", "DeepEP prints no number of bytes: it is given as 0.")
        )
    if record.case == "test_internode":
        own = "DeepEP counts what stays on the own node as RDMA traffic too: the NICs carried less."
        record.findings.append(note("rdma-includes-own-node", own))
    # Cut there, a line of the newer form looks like a whole one of the older form.
    may_be_cut = [row.line.number for row in execution.rows if _MAY_GO_ON.fullmatch(row.cells[0])]
    doubted = execution.last if may_be_cut == [execution.last] else None
    return execution.kept(lambda row: _read(row) if row.line.number != doubted else None)


TABLE = engine.Table(benchmark="deepep", statement=_statement, settle=_settle, over_mpi=False)


class Deepep(ReadBenchmark):
    """The benchmark ``deepep``."""

    name = "deepep"
    network_shown = "NVSHMEM_DEBUG=INFO (V2: NCCL_DEBUG=INFO), it is printed"
    default_metrics = ("bandwidth", "time")
    signatures = (
        Signature(
            "ispatch",
            r"\[tuning\] Best dispatch \(|Dispatch \+ combine b|(?<! ) *\* EP: +\d+/\d+ \| d",
        ),
    )
    first_words = (
        "[tuning] Best ",
        "Dispatch bandwidth",
        "combine bandwidth",
        " EP: ",
        "use_fp8_dispatch=",
    )


BENCHMARK = Deepep()
