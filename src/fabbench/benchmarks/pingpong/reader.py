"""Reads the output of fi_pingpong: tables, ``-v`` text and errors, of both sides of a pair.

A row is ``%-8s%-8s=%-8s%-8s%8.2fs%10.2f%11.2f%11.2f``. MB/sec is 1e6 bytes per second, both directions added;
usec/xfer is one-way.
"""

import re
from collections.abc import Sequence

from fabbench.benchmarks.consistency import warning
from fabbench.benchmarks.engine import Execution, Row, Statement, Table, read_columns
from fabbench.benchmarks.libfabric import reader as libfabric
from fabbench.benchmarks.libfabric.figures import COLUMNS, count_range
from fabbench.benchmarks.libfabric.reader import Pair, PairReader, Process
from fabbench.model.compat import override
from fabbench.model.patterns import lazy
from fabbench.model.units import format_size

PROGRAM = "fi_pingpong"
_COLUMNS = {**COLUMNS, "time": COLUMNS["time"]._replace(label="time")}
_HEADER = ("bytes", "#sent", "#ack", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec")
_LAYOUT = read_columns(_HEADER, _COLUMNS)
_COMMAND = lazy(r"(?:^|(?<=[\s/]))(?:lt-)?(fi_pingpong)(?=\s|$)")
_OPTIONS = libfabric.Options("B:P:d:p:f:e:s:I:S:m:chv6")
_DEBUG = lazy(r"\[debug\] \S*pingpong\.c:\d+ ?: ?(.*)")
_ERROR = libfabric.error_lines(PROGRAM, r"pingpong\.c")
# Too common to begin an execution, but meaningful inside one.
_ERROR_INSIDE = lazy(r"Unknown endpoint : .*|Unknown transmit mode.*|\d+s timeout expired.*|Usage:\s*")
_WRONG = lazy(r"Error at iteration=\d+ size=\d+ byte=\d+.*")
_SIDE_TITLE = lazy(r"\W*(server|client) (?:log|output)\W*", re.IGNORECASE)

USUAL_SETUP_S = 0.035  # set-up of a reliable datagram endpoint over a network, as measured with libfabric 1.17 and 2.4
SHARED_MEMORY_SETUP_S = 0.0002
SETUP_SHARE = 0.01  # a figure with a larger share of set-up than this is flagged


def setup_s(endpoint: str, provider: str) -> float:
    """Return the seconds of set-up that the first row of a process includes.

    Connected (``msg``) endpoints connect before timing starts, datagrams do not connect at all.
    """
    if endpoint != "rdm":
        return 0.0
    return SHARED_MEMORY_SETUP_S if provider == "shm" else USUAL_SETUP_S


def _statement(text: str, execution: Execution | None) -> Statement | None:
    if "#sent" in text and text.split()[:2] == ["bytes", "#sent"]:  # it may be cut off
        return Statement(begins=True, layouts=(_LAYOUT,))
    if "pingpong" in text:
        if (debug := _DEBUG.fullmatch(text)) is not None:
            return _debug(debug[1])
        return Statement(failure=text) if _ERROR.fullmatch(text) else libfabric.read_command(text, _COMMAND, _OPTIONS)
    if execution is not None and text.startswith("Error at ") and _WRONG.fullmatch(text):
        # Both sides of a step check the same data, so the network is at fault, not the command line.
        return Statement(failure=text, wrong=isinstance(execution, Process) and execution.step is not None)
    title = _SIDE_TITLE.fullmatch(text) if "erver" in text or "lient" in text else None
    return Statement(above=True, facts={"side": title[1].lower()}) if title is not None else None


def _debug(text: str) -> Statement:
    """Read a line that only ``-v`` prints."""
    facts: dict[str, str | int] = {}
    if text.lstrip().startswith("- dst_addr"):
        facts = {"side": "server" if "[None]" in text else "client"}
    elif text.startswith("Selected endpoint: "):
        facts = {"endpoint": text.removeprefix("Selected endpoint: ").strip().lower()}
    return Statement(case=PROGRAM, facts=facts)


def _fits(row: Row) -> bool:
    _, sent, ack, *_ = row.cells
    return ack[0] != "=" or ack[1:] == sent


_TABLE = Table(
    benchmark="pingpong",
    program=PROGRAM,
    case="pingpong",
    statement=_statement,
    failed=_ERROR_INSIDE,
    failing="\n",  # never outside of an execution
    fits=_fits,
    cells=libfabric.cells,
    remains=lambda text, layout: text.strip() != "0" and libfabric.is_left(text, layout),
)


class PingpongReader(PairReader):
    """Reads one stream group."""

    newest, width = _LAYOUT, 74

    def __init__(self) -> None:
        super().__init__(_TABLE)

    @override
    def judge(self, pair: Pair, processes: Sequence[Process]) -> None:
        record, early = pair.record, dict[int, None]()
        setup = setup_s(pair.first("endpoint"), pair.first("provider").partition(";")[0])
        for process in processes:
            for row in process.rows:
                _, sent, ack, *_ = row.cells
                if ack[0] == "=" or ack[1:] == "0":
                    continue
                number, messages = count_range(ack[1:], None).low, f"messages of {format_size(row.size)} were"
                if ack[0] == "+":
                    record.facts["unacknowledged"] = number + int(record.facts.get("unacknowledged", 0))
                    record.failures.append(f"{ack[1:]} of {sent} {messages} not acknowledged.")
                else:
                    record.failures.append(f"{ack[1:]} more {messages} acknowledged than the {sent} sent.")
            # Only the first row can include the set-up.
            for row in process.rows[:1]:
                latency, fewest = row.main("latency"), count_range(row.cell("count"), process.end).low
                if latency is not None and setup > SETUP_SHARE * latency.value * 2 * fewest:
                    early[row.size] = None
        if early:
            record.findings.append(
                warning(
                    "setup-time",
                    f"Connection set-up may be more than 1 % of the figure at {', '.join(map(format_size, early))}.",
                    "Use more iterations, or -e msg where the provider has it.",
                )
            )
