"""DeepEP's tests of expert parallelism (test_intranode, test_internode, test_low_latency; UCCL-EP's are equal).

Each line with figures stands alone: `[tuning] Best dispatch (FP8): …`, or one line per rank. GB are 10⁹ bytes. No line
states how many bytes are sent; the times of send and recv alone are not read. Read only.
"""

from collections.abc import Mapping, Sequence

from fabbench.benchmarks import Signature, engine
from fabbench.benchmarks.consistency import Printed, is_ordered, note, printed
from fabbench.benchmarks.standard import ReadBenchmark
from fabbench.model.patterns import lazy

_F, _N = r"\d+\.\d\d", r"\d+(?:\.\d\d)?"
_PART = lazy(
    r"(?:\[tuning\] Best |\[rank (?P<rank>\d+)\] )?(?P<name>[Dd]ispatch \+ combine|[Dd]ispatch|[Cc]ombine)"
    r"(?: \((?P<dtype>\w+)\)| bandwidth)?: (?:SMs \d+, NVL chunk \d+(?:, RDMA chunk \d+)?[:,] )?"
    rf"(?:{_N} \+ (?P<t>{_N}) us, |transmit: (?P<transmit>{_F}) us, notify: {_F} us, BW: )?"
    rf"(?P<rate>{_F}) GB/s(?: \((?P<way>RDMA)\), (?P<nvl>{_F}) GB/s \(NVL\)| \(NVL\)(?:, t: (?P<best>{_F}) us)?"
    rf"|, avg_t=(?P<avg>{_F}) us(?:, min_t=(?P<min>{_F}) us, max_t=(?P<max>{_F}) us)?)"
)
_LINES: Mapping[str, engine.Layout] = {
    "test_internode": (engine.Column(cell=r"\[tuning\] Best .*RDMA.*"),),
    "test_intranode": (engine.Column(cell=r"\[tuning\] Best (?!.*RDMA).*"),),
    "test_low_latency": (engine.Column(cell=r"(?:\[rank \d+\] )?Dispatch (?:\+ combine )?bandwidth.*"),),
}
_MAY_GO_ON = lazy(r"\[tuning\](?!.*RDMA).*\(NVL\)\s*")  # newer releases print a time behind it


def _statement(text: str, execution: engine.Execution | None) -> engine.Statement | None:
    text = text.strip()
    for case, layout in _LINES.items():
        if engine.cell_patterns(layout)[0].fullmatch(text):
            return engine.Statement(begins=True, case=case, layouts=(layout,), row=True)
    return engine.NO_MEANING if execution is not None and text.startswith(("[tuning] ", "Dispatch send")) else None


def _read(row: engine.Row) -> engine.Row | None:
    """Return a row with what its line says; None if it is not whole."""
    figures, labels, text = dict[str, dict[str, Printed]](), {"rank": row.line.stream.rank}, row.cells[0].strip()
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
        for rate, way in ((part["rate"], part["way"] or ("NVL" if "(NVL)" in text else "")), (part["nvl"], "NVL")):
            if rate and float(rate):
                figures[f"operation={part['name'].lower()} {way}".strip()] = {"bandwidth": printed(rate, 9), **times}
    return row._replace(labels={name: label for name, label in labels.items() if label}, figures=figures)


def _settle(execution: engine.Execution) -> Sequence[engine.Row]:
    record, rows = execution.record, list[engine.Row]()
    record.findings.append(note("size-unstated", "DeepEP prints no number of bytes: it is given as 0."))
    if record.case == "test_internode":
        own = "DeepEP counts what stays on the own node as RDMA traffic too: the NICs carried less."
        record.findings.append(note("rdma-includes-own-node", own))
    # Cut there, a line of the newer form looks like a whole one of the older form.
    may_be_cut = [row.line.number for row in execution.rows if _MAY_GO_ON.fullmatch(row.cells[0])]
    for row in execution.rows:
        read = _read(row) if may_be_cut != [row.line.number] or row.line.number != execution.last else None
        if read is not None and read.figures:
            rows.append(read)
        else:
            execution.damage(row.line)
    return rows


TABLE = engine.Table(benchmark="deepep", statement=_statement, settle=_settle, over_mpi=False)


class Deepep(ReadBenchmark):
    """The benchmark ``deepep``."""

    name = "deepep"
    network_shown = "NVSHMEM_DEBUG=INFO, NVSHMEM prints it"
    default_metrics = ("bandwidth", "time")
    signatures = (Signature("ispatch", r"\[tuning\] Best dispatch \(|Dispatch \+ combine bandwidth: "),)
    first_words = ("[tuning] Best ", "Dispatch bandwidth", "combine bandwidth")


BENCHMARK = Deepep()
