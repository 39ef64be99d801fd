"""`ucx_perftest`: latency and bandwidth of UCX between two processes. Read only: fabbench does not start it.

Its MB are 2²⁰ bytes (`ucx_perf_report` of libperf.c). The line ``Final:`` is the result; the lines of threads
before it are intermediate. UCX_LOG_LEVEL=info makes UCX print its transport.
"""

import re
from collections.abc import Sequence
from types import MappingProxyType

from fabbench.benchmarks import Benchmark, Reader, Reading, Signature
from fabbench.benchmarks.consistency import printed, product
from fabbench.benchmarks.mpi_transport import TransportLines
from fabbench.model.compat import override
from fabbench.model.log import Damaged, Finding, Line, Point, Record, Severity
from fabbench.model.patterns import lazy

_MIB = float(1 << 20)
_KIND = lazy(r"\| +\| +\| +(overhead|latency) \(usec\) +\| +bandwidth \(MB/s\) +\| +message rate .*")
_PARAMETER = lazy(r"\| (API|Test|Data layout|Send memory|Recv memory|Message size|Window size): +(\S.*?) +\|")
_FACTS = {"API": "api", "Test": "test", "Send memory": "send_memory", "Recv memory": "recv_memory"}
# With several threads only the overall figures are printed.
_FINAL = lazy(r"\s*Final:\s+\d{1,18}((?:\s+\d+(?:\.\d+)?){3}(?:(?:\s+\d+(?:\.\d+)?){4})?)\s*", re.ASCII)


class UcxReader(Reader):
    """Reads what one process prints."""

    def __init__(self) -> None:
        self._record: Record | None = None
        self._transport = TransportLines()
        self._size: int | None = None
        self._one_way = False
        self._client = False  # whether the client's table has started: the server prints no result

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        text = line.text
        if self._transport.read(text):
            return None if self._record is None else ()
        if "(usec)" in text and (match := _KIND.fullmatch(text.strip())) is not None:
            before = self.close() if self._record is not None and self._record.points else ()
            self._open_record()
            self._one_way, self._client = match[1] == "latency", True
            return before
        if text.startswith("| ") and (match := _PARAMETER.fullmatch(text.strip())) is not None:
            record, (name, value) = self._open_record(), match.groups()
            if name == "Message size":
                self._size = int(value) if re.fullmatch(r"[0-9]{1,18}", value) else None
            elif name in _FACTS:
                record.facts[_FACTS[name]] = value
            return ()
        return self._final(line, self._record) if self._record is not None and "Final:" in text else None

    def _final(self, line: Line, record: Record) -> Sequence[Reading]:
        """Read the result: a percentile, and the average and the overall figure of each column."""
        match = _FINAL.fullmatch(line.text)
        cells = match[1].split() if match is not None else []
        if not cells or not self._fits(cells):
            record.damaged.append(Damaged(line.number, line.text))
            return ()
        if self._size is None:
            record.findings.append(
                Finding(
                    code="size-unstated",
                    severity=Severity.NOTE,
                    meaning="ucx_perftest printed no message size, and it is given as 0.",
                    line=line.text.strip(),
                )
            )
        figures = [float(cell) for cell in cells]
        metric = "latency" if self._one_way else "time"
        metrics = (metric, "bandwidth", "message_rate")
        time, bandwidth, rate = figures[2::2] if len(figures) == 7 else figures
        point = Point(self._size or 0, {}, metrics, (time * 1e-6, bandwidth * _MIB, rate))
        record.points.append(point)
        record.finished = True
        return (point,)

    def _fits(self, cells: Sequence[str]) -> bool:
        # One thread sends one message per printed time; with several threads, their rates are added up.
        numbers = [printed(cell) for cell in cells]
        for time, bandwidth, rate in (numbers[1::2], numbers[2::2]) if len(numbers) == 7 else (numbers,):
            low, high = product(time.times(1e-6), rate)
            if not (low <= 1 <= high or high >= 2):
                return False
            size = self._size
            if size is not None and not bandwidth.times(_MIB).overlaps(rate.low * size, rate.high * size):
                return False
        return True

    def _open_record(self) -> Record:
        if self._record is None:
            self._record = Record(benchmark="ucx_perftest", case="ucx_perftest")
        return self._record

    @override
    def close(self) -> Sequence[Reading]:
        record, transport, client = self._record, self._transport, self._client
        self._record, self._transport, self._size, self._client = None, TransportLines(), None, False
        if record is None or not (client or record.failures):
            return ()
        record.facts = {**transport.facts(), **record.facts}
        record.hosts = frozenset(transport.nodes)
        record.evidence |= transport.evidence()
        return (record,)


class UcxPerftest(Benchmark):
    """The benchmark ``ucx_perftest``."""

    name = "ucx_perftest"
    between_two = True
    versions = ()
    default_metrics = ("bandwidth", "latency", "message_rate", "time")
    resolution = MappingProxyType({"bandwidth": (0.01 * _MIB,), "latency": (1e-9,), "message_rate": (1.0,)})

    signatures = (
        Signature("(usec)", r"\| +\| +\| +(?:overhead|latency) \(usec\)"),
        Signature("Final:", r"Final: +\d+ +\d+\.\d", begins=False),
    )

    first_words = (
        *("(usec)", "| API", "| Test", "| Data layout", "| Send memory", "| Recv memory", "| Message size"),
        *("| Window size", "btl for send", "mtl:ofi:prov", "UCX", "MPI startup"),
    )

    @override
    def reader(self) -> UcxReader:
        return UcxReader()


BENCHMARK = UcxPerftest()
