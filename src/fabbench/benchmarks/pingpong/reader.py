"""Reads the output of fi_pingpong: tables, ``-v`` text and errors, of both sides of a pair.

A row is ``%-8s%-8s=%-8s%-8s%8.2fs%10.2f%11.2f%11.2f``. MB/sec is 1e6 bytes per second, both
directions added; usec/xfer is one-way.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import groupby

from fabbench.benchmarks import processes
from fabbench.benchmarks.events import Ahead, Error, Events, Header, Setting, Wrong
from fabbench.benchmarks.executions import Execution, Table
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.libfabric import reader as libfabric
from fabbench.benchmarks.libfabric.reader import COLUMNS, PairReader, Process, count_range
from fabbench.benchmarks.tables import Layout, Row, is_rest_of_row, read_columns
from fabbench.model.compat import override
from fabbench.model.log import NO_STEP, Record, fact_text
from fabbench.model.mappings import distinct
from fabbench.model.patterns import lazy
from fabbench.model.units import format_size

PROGRAM = "fi_pingpong"
_COLUMNS = {**COLUMNS, "time": COLUMNS["time"]._replace(label="time")}
_LAYOUT = read_columns(
    ["bytes", "#sent", "#ack", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec"], _COLUMNS
)
_HEADER = lazy(r"\s*bytes\s+#sent(?!\S)")
"""It may be cut off."""
_COMMAND = lazy(r"(?:^|(?<=[\s/]))(?:lt-)?(fi_pingpong)(?=\s|$)")
_OPTIONS = ("B:P:d:p:f:e:s:I:S:m:chv6", "", "")
_DEBUG = lazy(r"\[debug\] \S*pingpong\.c:\d+ ?: ?(.*)")
_ERROR = libfabric.error_lines(PROGRAM, r"pingpong\.c")
# Too common to begin an execution, but meaningful inside one.
_ERROR_INSIDE = lazy(
    r"Unknown endpoint : .*|Unknown transmit mode.*|\d+s timeout expired.*|Usage:\s*"
)
_WRONG = lazy(r"Error at iteration=\d+ size=\d+ byte=\d+.*")
_SIDE_TITLE = lazy(r"\W*(server|client) (?:log|output)\W*", re.IGNORECASE)

# set-up of a reliable datagram endpoint over a network, as measured with libfabric 1.17 and 2.4
USUAL_SETUP_S = 0.035
SHARED_MEMORY_SETUP_S = 0.0002
SETUP_SHARE = 0.01  # a figure with a larger share of set-up than this is flagged


def setup_s(endpoint: str, provider: str) -> float:
    """Return the seconds of set-up that the first row of a process includes: only of ``rdm``.

    Connected (``msg``) endpoints connect before timing starts, datagrams do not connect at all.
    """
    if endpoint != "rdm":
        return 0.0
    return SHARED_MEMORY_SETUP_S if provider == "shm" else USUAL_SETUP_S


def _events(text: str, execution: Execution | None) -> Events | None:
    # A header, a line that names fi_pingpong, wrong data, or a heading; None: any other line.
    if "#sent" in text and _HEADER.match(text):
        return (Header((_LAYOUT,)),)
    if "pingpong" in text:
        return _events_of_named_line(text)
    if execution is not None and _WRONG.fullmatch(text):
        return _wrong_data(text, execution)
    title = _SIDE_TITLE.fullmatch(text)
    if title is None:
        return None
    facts = {"side": title[1].lower()}  # a heading of the output below: `Server log`
    return (Ahead((Setting(facts=facts),)),)


def _events_of_named_line(text: str) -> Events | None:
    """Read a line with the name of the program: debug text, an error, or a command line."""
    debug = _DEBUG.fullmatch(text)
    if debug is not None:  # only ``-v`` prints them
        side = ""
        if debug[1].lstrip().startswith("- dst_addr"):  # only a client has one
            side = "server" if "[None]" in text else "client"
        return (Setting("pingpong", {"side": side}),)
    if _ERROR.fullmatch(text):
        return (Error(text),)
    return libfabric.read_command(text, _COMMAND, _OPTIONS, case="pingpong")


def _wrong_data(text: str, execution: Execution) -> Events:
    # Both sides of a step check data alike (-c), so the network is at fault. By hand it may be that
    # only one side was told to.
    is_step = isinstance(execution, Process) and execution.step is not NO_STEP
    return (Error(text), Wrong()) if is_step else (Error(text),)


# ---------------------------------------------------------------- rows


def _is_acknowledged(row: Row) -> bool:
    """Return whether as many messages were acknowledged as sent, where it says so."""
    _, sent, acknowledged, *_ = row.cells
    return acknowledged == f"={sent}" or not acknowledged.startswith("=")


def _remains(text: str, layout: Layout) -> bool:
    return text.strip() != "0" and is_rest_of_row(text, layout)  # a lone 0 may be an exit status


_TABLE = Table(
    benchmark="pingpong",
    program=PROGRAM,
    case="pingpong",
    events=libfabric.with_information(_events),
    failed=_ERROR_INSIDE,
    fits=_is_acknowledged,
    cells=libfabric.cells,
    remains=_remains,
)


def _add_loss(row: Row, record: Record) -> None:
    """Add messages that were not acknowledged, or were although not sent."""
    _, sent, acknowledged, *_ = row.cells
    # `=` is as many as were sent; `-12` is 12 acknowledged too many, `+12` 12 too few.
    sign = acknowledged[0]
    count = acknowledged[1:]
    messages = f"messages of {format_size(row.size)} were"
    if sign == "=" or count == "0":
        return
    if sign == "+":
        before = int(record.facts.get("unacknowledged", 0))
        record.facts["unacknowledged"] = before + count_range(count, requested=None).low
        record.failures.append(f"{count} of {sent} {messages} not acknowledged.")
    else:
        record.failures.append(f"{count} more {messages} acknowledged than the {sent} sent.")


def _early_rows(process: Execution, setup: float) -> Iterator[Row]:
    """Return the rows that may include the set-up: only the first one of a table can."""
    for _, rows in groupby(process.rows, key=lambda row: row.table):
        row = next(rows)
        latency = row.main("latency")
        count = count_range(row.cell("count"), process.iterations)
        if latency is None:
            continue
        measured_s = latency.value * 2 * count.low  # a round trip takes twice the latency
        if setup > SETUP_SHARE * measured_s:
            yield row


class PingpongReader(PairReader):
    """Reads one stream group."""

    table = _TABLE

    @override
    def judge(self, record: Record, run: Sequence[processes.Process]) -> None:
        # Losses, and figures that include the set-up.
        PairReader.judge(self, record, run)
        for process in run:
            for row in process.rows:
                _add_loss(row, record)
        provider, _, _ = fact_text(record.facts, "transport").partition(";")
        setup = setup_s(fact_text(record.facts, "endpoint"), provider)
        early = [row.size for process in run for row in _early_rows(process, setup)]
        if early:
            sizes = ", ".join(map(format_size, distinct(early)))
            record.findings.append(finding("setup-time", sizes=sizes))
