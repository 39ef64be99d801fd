"""Summary lines of Modal's health checks, which run a benchmark on every device and print one figure. Pure.

`Mean BW peak: 734.26 Gb/s, Mean BW avg: 733.92 Gb/s` is the mean of `ib_write_bw` over all devices, in bits;
`Total BW: 278GB/s` is the sum of `fi_rma_bw` over all EFA domains, in bytes, both directions added
(modal-labs/multinode-training-guide, health-checks/modal_bw_ib.py and modal_bw_efa.py).
"""

import re
from decimal import Decimal

from fabbench.benchmarks.perftest import findings
from fabbench.benchmarks.perftest.points import Kind, Number, exact, points
from fabbench.model import Line, Point, Record

_MEAN = re.compile(r"\s*Mean BW peak: (\d+\.\d+) Gb/s, Mean BW avg: (\d+\.\d+) Gb/s\s*", re.ASCII)
_TOTAL = re.compile(r"\s*Total BW: (\d+(?:\.\d+)?) ?GB/s\s*", re.ASCII)
_GIGABIT, _GIGABYTE = Decimal(125_000_000), Decimal(1_000_000_000)


class Summary:
    """The summary lines of one run; the size is not stated, and is given as 0."""

    def __init__(self, benchmark: str) -> None:
        self.record = Record(benchmark=benchmark, finished=None, facts={"size": "unknown"})

    def take(self, line: Line) -> list[Point]:
        """Take in a line that `benchmark_of` knows."""
        mean, total = _MEAN.fullmatch(line.text), _TOTAL.fullmatch(line.text)
        if mean is not None:
            found = [
                Number("bandwidth", stat, "", exact(text, _GIGABIT))
                for stat, text in zip(("peak", ""), mean.groups(), strict=True)
            ]
            new = points(0, found, Kind(rank=line.stream.rank))
            said = "A script's summary: the mean over all devices."
        elif total is not None:
            found = [Number("bandwidth", "", "", exact(total[1], _GIGABYTE))]
            new = points(0, found, Kind(rank=line.stream.rank, direction="bi"))
            said = "A script's summary: the sum over all devices, both directions added."
        else:
            return []
        finding = findings.no_size(said, line.text.strip())
        if not any(known.meaning == finding.meaning for known in self.record.findings):
            self.record.findings.append(finding)
        self.record.points += new
        return new


def benchmark_of(text: str) -> str:
    """Name the benchmark whose figure a summary line gives; empty for any other line."""
    if _MEAN.fullmatch(text):
        return "perftest"
    return "fabtests" if _TOTAL.fullmatch(text) else ""
