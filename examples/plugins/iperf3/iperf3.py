"""iperf3: TCP between two processes. `bandwidth` is what the receiver got."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fabbench.benchmarks import Benchmark, Reader, Reading, Signature
from fabbench.model.compat import override
from fabbench.model.hosts import Host, Needs
from fabbench.model.log import Damaged, Line, Marker, Point, Record
from fabbench.model.option_types import Size, Whole
from fabbench.model.options import option, unique
from fabbench.model.plan import Command, Proof, Shape, Step
from fabbench.model.units import format_size

_TEST = re.compile(r"Starting Test: protocol: TCP, 1 streams, (\d+) byte blocks, .*")
_RECEIVED = re.compile(r"\[ *\d+\] .* ([\d.]+) ([KMGT]?)bits/sec +receiver *")
_ERROR = re.compile(r"iperf3: error - (.*)")
_SCALES = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


class Iperf3Reader(Reader):
    """Reads `iperf3 --verbose`."""

    def __init__(self) -> None:
        self._record: Record | None = None
        self._execution = ""
        """The execution whose steps are one record; empty: a log that fabbench did not write."""
        self._size = 0

    def feed(self, line: Line) -> Sequence[Reading] | None:
        """Read one line; None: it is not ours."""
        if match := _ERROR.fullmatch(line.text):
            self._open_record().failures.append(f"iperf3 reported: {match[1]}.")
            return ()
        if line.stream.side == "server":
            return None
        if match := _TEST.fullmatch(line.text):
            before = () if self._execution else self.close()
            record = self._open_record()
            record.facts["transport"] = "socket"
            record.evidence["transport"] = line.text
            record.finished = False
            self._size = int(match[1])
            return before
        return self._inside(line) if self._record is not None else None

    def _inside(self, line: Line) -> Sequence[Reading] | None:
        record = self._open_record()
        if match := _RECEIVED.fullmatch(line.text):
            bandwidth = float(match[1]) * _SCALES[match[2]] / 8
            point = Point(self._size, {}, ("bandwidth",), (bandwidth,))
            record.points.append(point)
            return (point,)
        if line.text.rstrip().endswith("receiver"):
            record.damaged.append(Damaged(line.number, line.text))
        elif line.text == "iperf Done.":
            record.finished = True
        else:
            return None
        return ()

    def mark(self, marker: Marker) -> Sequence[Reading]:
        """Begin a record with the first step of an execution, and end it with the execution."""
        before = self.close() if marker.execution != self._execution else ()
        if marker.kind == "begin" and marker.facts.get("benchmark") == "iperf3":
            self._execution = marker.execution
            self._open_record()
        return before

    def close(self) -> Sequence[Reading]:
        """End what is open."""
        record, self._record, self._execution = self._record, None, ""
        return () if record is None else (record,)

    def _open_record(self) -> Record:
        self._record = self._record or Record(benchmark="iperf3", case="iperf3")
        return self._record


@dataclass(frozen=True, slots=True, kw_only=True)
class Iperf3Work:
    """One pair of processes for each size of block; see `fabbench.plan.request.Work`."""

    sizes: tuple[int, ...] = option(
        Size(), "Size of blocks. Can be given several times.", "--size", many=unique, default=("128K",)
    )
    seconds: int = option(Whole(1, 3600), "Seconds per size.", default="10")

    needs = Needs(programs=("iperf3",), install="sudo apt-get install iperf3")
    together = False

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes that a whole log has."""
        del hosts
        return self.sizes

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why a fabric cannot be measured; empty if it can."""
        del host
        return "" if fabric == "tcp" else "iperf3 measures TCP over sockets, and nothing else."

    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        """Return what a log must show: for tcp the fact `transport` must be `socket`."""
        del hosts
        return Proof(fabric=fabric)

    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return one step per size: the server on the first host, the client on the last."""
        del fabric
        return tuple(self._step(execution, size, len(hosts) - 1) for size in self.sizes)

    def _step(self, execution: str, size: int, last: int) -> Step:
        common = ("iperf3", "--verbose", "--port", "{port}")
        to = ("--client", "{server}", "--length", str(size), "--time", str(self.seconds))
        return Step(
            id=f"{execution}/{size}",
            label=format_size(size),
            shape=Shape.PAIR,
            commands=(
                Command(argv=(*common, "--server", "--one-off"), role="server"),
                Command(argv=(*common, *to), role="client", host=last),
            ),
            timeout_s=self.seconds + 30.0,
            facts={"benchmark": "iperf3", "size": size},
        )


class Iperf3(Benchmark):
    """The benchmark ``iperf3``."""

    name = "iperf3"
    summary = "TCP throughput of iperf3 between two processes."
    help = """\
    Run iperf3: a server and a client process for each size of block.

    Example: fabbench run iperf3 --on local --size 64K --seconds 1
    """
    joins_groups = True
    between_two = True
    default_metrics = ("bandwidth",)
    signatures = (Signature("Starting Test", r"Starting Test: protocol: "),)

    @override
    def reader(self) -> Iperf3Reader:
        return Iperf3Reader()

    @override
    def work_type(self) -> type[Iperf3Work]:
        return Iperf3Work


BENCHMARK = Iperf3()
