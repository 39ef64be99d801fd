"""DeepEP's tests of expert parallelism (test_intranode, test_internode, test_low_latency). Read only.

Each line with figures stands alone: `[tuning] Best dispatch (FP8): …`, or one line per rank. GB are 10⁹ bytes. No line
states how many bytes are sent; the times of send and recv alone are not read.
"""

from collections.abc import Iterator, Sequence

from fabbench.benchmarks import Benchmark, Reader, Reading, Signature
from fabbench.benchmarks.consistency import is_ordered, note, printed
from fabbench.model.compat import override
from fabbench.model.log import Damaged, Line, Point, Record
from fabbench.model.patterns import lazy

_F = r"\d+\.\d\d"
_PART = lazy(
    r"(?:\[tuning\] Best )?(?P<name>[Dd]ispatch \+ combine|[Dd]ispatch|[Cc]ombine)(?: \((?P<dtype>\w+)\)| bandwidth)?: "
    r"(?:SMs \d+, NVL chunk \d+(?:, RDMA chunk \d+)?[:,] )?"
    rf"(?:\d+ \+ (?P<t>\d+) us, |transmit: (?P<transmit>{_F}) us, notify: {_F} us, BW: )?"
    rf"(?P<rate>{_F}) GB/s(?: \((?P<way>RDMA)\), (?P<nvl>{_F}) GB/s \(NVL\)| \(NVL\))?(?:, t: (?P<best>{_F}) us)?"
    rf"(?:, avg_t=(?P<avg>{_F}) us(?:, min_t=(?P<min>{_F}) us, max_t=(?P<max>{_F}) us)?)?"
)
_SIGN = lazy(r"(?:\[tuning\] Best |(?:\[rank (\d+)\] )?(?=Dispatch (?:\+ combine )?bandwidth))")


def _points(text: str, rank: str) -> Iterator[Point]:
    """Yield the points of a line; none if it is not whole."""
    parts = [_PART.fullmatch(part) for part in text.split(" | ")]
    whole = len(parts) > 1 or not text.startswith("Dispatch b")
    for part in parts if whole and all(parts) else ():
        times_ = [printed(part[each] or "nan") for each in ("min", "avg", "max")] if part is not None else []
        if part is None or not is_ordered(*times_) or ("+" in part["name"] and not part["max"]):
            return
        labels = {name: text for name, text in (("dtype", part["dtype"]), ("rank", rank)) if text}
        time = next(filter(None, (part["t"], part["transmit"], part["best"], part["avg"])), None)
        times = {"time": float(f"{time}e-6")} if time else {}
        for rate, way in ((part["rate"], part["way"] or ("NVL" if "(NVL)" in text else "")), (part["nvl"], "NVL")):
            if rate and float(rate):
                name = f"{part['name'].lower()} {way}".strip()
                figures = {"bandwidth": float(f"{rate}e9"), **times}
                yield Point(0, {"name": name, **labels}, tuple(figures), tuple(figures.values()))


class DeepepReader(Reader):
    """Reads the lines of one stream group."""

    def __init__(self) -> None:
        self._record: Record | None = None

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        text = line.text.strip()
        if (match := _SIGN.match(text)) is None:
            return () if self._record is not None and text.startswith(("[tuning] ", "Dispatch send")) else None
        tuned = text.startswith("[tuning]")
        case = "test_low_latency" if not tuned else "test_internode" if "RDMA" in text else "test_intranode"
        before = self.close() if self._record is not None and self._record.case != case else ()
        if self._record is None:
            self._record = Record(benchmark="deepep", case=case, finished=None)
            own = "DeepEP counts what stays on the own node as RDMA traffic too: the NICs carried less."
            self._record.findings = [note("size-unstated", "DeepEP prints no number of bytes: it is given as 0.")]
            self._record.findings += [note("rdma-includes-own-node", own)] if case == "test_internode" else []
        points = list(_points(text[match.end() if not tuned else 0 :], match[1] or line.stream.rank))
        self._record.points += points
        if not points:
            self._record.damaged.append(Damaged(line.number, line.text))
        return [*before, *points]

    @override
    def close(self) -> Sequence[Reading]:
        record, self._record = self._record, None
        return (record,) if record is not None else ()


class Deepep(Benchmark):
    """The benchmark ``deepep``."""

    name = "deepep"
    versions = ()
    default_metrics = ("bandwidth", "time")
    signatures = (Signature("ispatch", r"\[tuning\] Best dispatch \(|Dispatch \+ combine bandwidth: "),)
    first_words = ("[tuning] Best ", "Dispatch bandwidth", "combine bandwidth")

    @override
    def reader(self) -> DeepepReader:
        return DeepepReader()


BENCHMARK = Deepep()
