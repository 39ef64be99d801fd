"""Reads the runs of perftest: what its servers and clients print."""

from collections.abc import Sequence

from fabbench.benchmarks import LogReadings, processes
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.perftest import EFA_DATAGRAMS, lines
from fabbench.benchmarks.perftest.processes import TABLE, Process
from fabbench.model.compat import override
from fabbench.model.log import Line, Record
from fabbench.model.patterns import lazy
from fabbench.model.units import whole_or_text

# rdma-core names no other device like this: an InfiniBand device is ibp0s1, a RoCE device rocep0s1.
_EFA_DEVICES = lazy(r"(?:rdmap\d+s\d+|efa_\d+)(?:, (?:rdmap\d+s\d+|efa_\d+))*")


class PerftestReader(processes.ProcessesReader):
    """Reads all stream groups together."""

    table = TABLE
    process = Process

    @override
    def feed(self, line: Line) -> LogReadings | None:
        # Without the marks of documents.
        with_blanks = line.text.replace("\xa0", " ").replace("&nbsp;", " ")
        plain = line._replace(text=lines.MARKS.sub("", with_blanks))
        return processes.ProcessesReader.feed(self, plain)

    @override
    def judge(self, record: Record, processes: Sequence[processes.Process]) -> None:
        # These make sense only with a single value.
        rows = [row for process in processes for row in process.rows]
        for name in ("iterations", "cpu_util"):
            cells = {row.cell(name) for row in rows} - {""}  # empty: it has no such column
            match [*cells]:
                case [cell]:
                    record.facts[name] = whole_or_text(cell)
        _name_transport(record)
        _add_doubts(record)


def _name_transport(record: Record) -> None:
    """Tell apart what perftest prints alike: the transports called UD, and two programs."""
    facts = record.facts
    transport = facts.get("transport")
    if transport == "UD" and _EFA_DEVICES.fullmatch(str(facts.get("device"))):
        facts["transport"] = EFA_DATAGRAMS
    if lines.IWARP in str(transport):  # its connections are named as InfiniBand's are
        facts["transport"] = lines.IWARP
    # raw_ethernet_bw prints the title of ib_send_bw.
    if transport == "RawEth" and record.case in {"ib_send_bw", "ib_send_lat"}:
        record.case = record.case.replace("ib_send", "raw_ethernet")


def _add_doubts(record: Record) -> None:
    """Add findings about what is unknown: the way of a time, or the test."""
    latencies = [point for point in record.points if "latency" in point.metrics]
    # Only the summary of a script sets this fact, to unknown: its finding is there already.
    is_of_summary = "size" in record.facts
    # One way or round trip: nothing says it. That finding has the advice on an unknown test, too.
    if any("way" not in point.labels for point in latencies):
        record.facts["way"] = "ambiguous"
        record.findings.append(finding("way-ambiguous"))
    elif record.points and record.case is None and not is_of_summary:
        record.findings.append(finding("test-unknown"))
