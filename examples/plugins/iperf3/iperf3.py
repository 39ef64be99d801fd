"""iperf3: TCP between two processes. `bandwidth` is what the receiver got."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fabbench.benchmarks import Benchmark, Reading, Signature
from fabbench.benchmarks.events import Begin, End, Events, Header, Setting
from fabbench.benchmarks.executions import Assembler, Execution, Table
from fabbench.benchmarks.pairs import PORT, SERVER, pair_step
from fabbench.benchmarks.standard import Work
from fabbench.benchmarks.tables import Column
from fabbench.model.compat import override
from fabbench.model.hosts import Host, Needs
from fabbench.model.log import Line
from fabbench.model.options import SIZE, Whole, option
from fabbench.model.plan import Command, Step

_TEST = re.compile(r"Starting Test: protocol: TCP, 1 streams, (\d+) byte blocks, .*")
_ERROR = re.compile(r"iperf3: error - .*")
_BEFORE = Column(cell=r"\[ *\d+\] .* \w*Bytes")
_BEHIND = Column(cell="receiver")
_BITS = {"": 1.0, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def _layout(prefix: str) -> tuple[Column, ...]:
    rate = Column("bandwidth", _BITS[prefix] / 8)
    unit = Column(cell=f"{prefix}bits/sec")
    return (_BEFORE, rate, unit, _BEHIND)


_LAYOUTS = [_layout(prefix) for prefix in _BITS]


def _events(text: str, execution: Execution | None) -> Events | None:
    test = _TEST.fullmatch(text)
    if test is not None:
        setting = Setting(facts={"transport": "socket"}, size=int(test[1]))
        return (Begin(), setting, Header(_LAYOUTS))
    if execution is not None and text == "iperf Done.":
        return (End(),)
    return None


TABLE = Table(
    benchmark="iperf3",
    program="iperf3",
    case="iperf3",
    events=_events,
    failed=_ERROR,
    failing="iperf3: error",
    remains=lambda text, _: text.rstrip().endswith("receiver"),
    over_mpi=False,
    finished=False,
)


class Iperf3Reader(Assembler):
    """Reads the table of the client: the server prints the same one."""

    @override
    def feed(self, line: Line) -> Sequence[Reading] | None:
        is_read = line.stream.side != "server" or _ERROR.fullmatch(line.text)
        return super().feed(line) if is_read else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Iperf3Work(Work):
    """One pair of processes."""

    size: int = option(SIZE, "Size of blocks.", "--size", default="128K")
    seconds: int = option(Whole(1, 3600), "Seconds per size.", default="10")

    needs = Needs(programs=("iperf3",), install="sudo apt-get install iperf3")

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes that a whole log has."""
        del hosts
        return (self.size,)

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why a fabric cannot be measured; empty if it can."""
        del host
        return "" if fabric == "tcp" else "iperf3 measures TCP over sockets, and nothing else."

    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return the only step: the server on the first host, the client on the last."""
        del fabric
        words = ("iperf3", "--verbose", "--port", PORT)
        client = (
            *words,
            "--client",
            SERVER,
            "--length",
            str(self.size),
            "--time",
            str(self.seconds),
        )
        server = Command(argv=(*words, "--server", "--one-off"), role="server")
        sides = server, Command(argv=client, role="client", host=len(hosts) - 1)
        facts = {"benchmark": "iperf3", "size": self.size}
        return (pair_step(execution, sides, facts, timeout_s=self.seconds + 30.0),)


class Iperf3(Benchmark):
    """The benchmark ``iperf3``."""

    name = "iperf3"
    summary = "TCP throughput of iperf3 between two processes."
    help = """\
    Run iperf3: a server and a client process.

    Example: fabbench run iperf3 --on local --seconds 1
    """
    joins_groups = True
    between_two = True
    default_metrics = ("bandwidth",)
    signatures = (Signature("Starting Test", r"Starting Test: protocol: "),)

    @override
    def reader(self) -> Iperf3Reader:
        return Iperf3Reader(TABLE)

    @override
    def work_type(self) -> type[Iperf3Work]:
        return Iperf3Work


BENCHMARK = Iperf3()
