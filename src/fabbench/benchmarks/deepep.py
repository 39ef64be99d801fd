"""DeepEP's tests of expert parallelism (test_intranode, test_internode, test_low_latency; UCCL-EP's are equal).

Each line with figures stands alone: `[tuning] Best dispatch (FP8): …`, or one line per rank. GB are 10⁹ bytes. No line
states how many bytes are sent; the times of send and recv alone are not read. Read only.
"""

from collections.abc import Iterator, Sequence

from fabbench.benchmarks import Reader, Reading, Signature
from fabbench.benchmarks.consistency import is_ordered, note, printed
from fabbench.benchmarks.standard import ReadBenchmark
from fabbench.model.compat import override
from fabbench.model.log import Damaged, Line, Point, Record
from fabbench.model.patterns import lazy

_F, _N = r"\d+\.\d\d", r"\d+(?:\.\d\d)?"
_PART = lazy(
    r"(?:\[tuning\] Best )?(?P<name>[Dd]ispatch \+ combine|[Dd]ispatch|[Cc]ombine)(?: \((?P<dtype>\w+)\)| bandwidth)?: "
    r"(?:SMs \d+, NVL chunk \d+(?:, RDMA chunk \d+)?[:,] )?"
    rf"(?:{_N} \+ (?P<t>{_N}) us, |transmit: (?P<transmit>{_F}) us, notify: {_F} us, BW: )?"
    rf"(?P<rate>{_F}) GB/s(?: \((?P<way>RDMA)\), (?P<nvl>{_F}) GB/s \(NVL\)| \(NVL\)(?:, t: (?P<best>{_F}) us)?"
    rf"|, avg_t=(?P<avg>{_F}) us(?:, min_t=(?P<min>{_F}) us, max_t=(?P<max>{_F}) us)?)"
)
_SIGN = lazy(r"(?:\[tuning\] Best |(?:\[rank (\d+)\] )?(?=Dispatch (?:\+ combine )?bandwidth))")
_MAY_GO_ON = lazy(r"\[tuning\](?!.*RDMA).*\(NVL\)\s*")  # newer releases print a time behind it


def _points(text: str, rank: str) -> Iterator[Point]:
    parts = [match for part in text.split(" | ") if (match := _PART.fullmatch(part)) is not None]
    whole = len(parts) == (2 if text.startswith("Dispatch b") else 1)
    for part in parts if whole else ():
        if not is_ordered(*(printed(part[each] or "nan") for each in ("min", "avg", "max"))):
            return
        if "+" in part["name"] and not part["max"]:
            return
        labels = {name: text for name, text in (("dtype", part["dtype"]), ("rank", rank)) if text}
        time = next(filter(None, (part["t"], part["transmit"], part["best"], part["avg"])), None)
        times = {"time": float(f"{time}e-6")} if time else {}
        for rate, way in ((part["rate"], part["way"] or ("NVL" if "(NVL)" in text else "")), (part["nvl"], "NVL")):
            if rate and float(rate):
                operation = f"{part['name'].lower()} {way}".strip()
                figures = {"bandwidth": float(f"{rate}e9"), **times}
                yield Point(0, {"operation": operation, **labels}, tuple(figures), tuple(figures.values()))


class DeepepReader(Reader):
    """Reads the lines of one stream group."""

    def __init__(self) -> None:
        self._case = ""
        self._rows: list[tuple[Line, list[Point]]] = []
        self._last = 0  # the number of the last line

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        text = line.text.strip()
        self._last = line.number
        if (match := _SIGN.match(text)) is None:
            return () if self._rows and text.startswith(("[tuning] ", "Dispatch send")) else None
        tuned = text.startswith("[tuning]")
        case = "test_low_latency" if not tuned else "test_internode" if "RDMA" in text else "test_intranode"
        before = self.close() if case != self._case else ()
        self._case = case
        self._rows.append((line, list(_points(text[0 if tuned else match.end() :], match[1] or line.stream.rank))))
        return before

    @override
    def close(self) -> Sequence[Reading]:
        rows, self._rows = self._rows, []
        if not rows:
            return ()
        record = Record(benchmark="deepep", case=self._case, finished=None)
        record.findings.append(note("size-unstated", "DeepEP prints no number of bytes: it is given as 0."))
        if self._case == "test_internode":
            own = "DeepEP counts what stays on the own node as RDMA traffic too: the NICs carried less."
            record.findings.append(note("rdma-includes-own-node", own))
        # Cut there, a line of the newer form looks like a whole one of the older form.
        may_be_cut = [line for line, _ in rows if _MAY_GO_ON.fullmatch(line.text.strip())]
        for line, points in rows:
            if points and not (may_be_cut == [line] and line.number == self._last):
                record.points += points
            else:
                record.damaged.append(Damaged(line.number, line.text))
        return (*record.points, record)


class Deepep(ReadBenchmark):
    """The benchmark ``deepep``."""

    name = "deepep"
    network_shown = "NVSHMEM_DEBUG=INFO, NVSHMEM prints it"
    default_metrics = ("bandwidth", "time")
    signatures = (Signature("ispatch", r"\[tuning\] Best dispatch \(|Dispatch \+ combine bandwidth: "),)
    first_words = ("[tuning] Best ", "Dispatch bandwidth", "combine bandwidth")


BENCHMARK = Deepep()
