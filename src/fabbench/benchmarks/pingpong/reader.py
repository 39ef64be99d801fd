"""Reads the output of fi_pingpong: tables, ``-v`` text and errors, of both sides of a pair.

A row is ``%-8s%-8s=%-8s%-8s%8.2fs%10.2f%11.2f%11.2f``. MB/sec is 1e6 bytes per second, both
directions added; usec/xfer is one-way.
"""

import re
from itertools import groupby

from fabbench.benchmarks.consistency import warning
from fabbench.benchmarks.engine import Execution, Statement, Table, is_left, read_columns
from fabbench.benchmarks.libfabric import reader as libfabric
from fabbench.benchmarks.libfabric.reader import COLUMNS, Pair, PairReader, Process, count_range
from fabbench.model.compat import override
from fabbench.model.patterns import lazy
from fabbench.model.units import format_size

PROGRAM = "fi_pingpong"
_COLUMNS = {**COLUMNS, "time": COLUMNS["time"]._replace(label="time")}
_LAYOUT = read_columns(
    ["bytes", "#sent", "#ack", "total", "time", "MB/sec", "usec/xfer", "Mxfers/sec"], _COLUMNS
)
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
    """Return the seconds of set-up that the first row of a process includes.

    Connected (``msg``) endpoints connect before timing starts, datagrams do not connect at all.
    """
    if endpoint != "rdm":
        return 0.0
    return SHARED_MEMORY_SETUP_S if provider == "shm" else USUAL_SETUP_S


def _statement(text: str, execution: Execution | None) -> Statement | None:
    if "#sent" in text and text.split()[:2] == ["bytes", "#sent"]:  # it may be cut off
        return Statement(layouts=(_LAYOUT,))
    if "pingpong" in text:
        if (debug := _DEBUG.fullmatch(text)) is not None:  # only ``-v`` prints them
            side = (
                ("server" if "[None]" in text else "client")
                if debug[1].lstrip().startswith("- dst_addr")
                else ""
            )
            return Statement(case="pingpong", facts={"side": side})
        if _ERROR.fullmatch(text):
            return Statement(failure=text)
        said = libfabric.read_command(text, _COMMAND, _OPTIONS)
        return said._replace(case="pingpong") if said is not None else None
    if execution is not None and text.startswith("Error at ") and _WRONG.fullmatch(text):
        # Both sides of a step check the same data, so the network is at fault, not the command
        # line.
        return Statement(
            failure=text, wrong=isinstance(execution, Process) and execution.step is not None
        )
    title = _SIDE_TITLE.fullmatch(text) if "erver" in text or "lient" in text else None
    return Statement(above=True, facts={"side": title[1].lower()}) if title is not None else None


_TABLE = Table(
    benchmark="pingpong",
    program=PROGRAM,
    case="pingpong",
    statement=_statement,
    failed=_ERROR_INSIDE,
    failing="\n",  # never outside of an execution
    fits=lambda row: row.cells[2][0] != "=" or row.cells[2][1:] == row.cells[1],
    cells=libfabric.cells,
    remains=lambda text, layout: text.strip() != "0" and is_left(text, layout),
)


class PingpongReader(PairReader):
    """Reads one stream group."""

    table, newest = _TABLE, _LAYOUT

    @override
    def judge(self, pair: Pair) -> None:
        record, early = pair.record, dict[int, None]()
        setup = setup_s(pair.first("endpoint"), pair.first("provider").partition(";")[0])
        for process in pair.processes:
            for row in process.rows:
                _, sent, ack, *_ = row.cells
                if ack[0] == "=" or ack[1:] == "0":
                    continue
                number, messages = (
                    count_range(ack[1:], None).low,
                    f"messages of {format_size(row.size)} were",
                )
                if ack[0] == "+":
                    record.facts["unacknowledged"] = number + int(
                        record.facts.get("unacknowledged", 0)
                    )
                    record.failures.append(f"{ack[1:]} of {sent} {messages} not acknowledged.")
                else:
                    record.failures.append(
                        f"{ack[1:]} more {messages} acknowledged than the {sent} sent."
                    )
            # Only the first row of a table can include the set-up.
            for _, (row, *_) in groupby(process.rows, key=lambda row: row.table):
                latency, fewest = (
                    row.main("latency"),
                    count_range(row.cell("count"), process.end).low,
                )
                if latency is not None and setup > SETUP_SHARE * latency.value * 2 * fewest:
                    early[row.size] = None
        if early:
            meaning = (
                "Connection set-up may be more than 1 % of the figure at "
                f"{', '.join(map(format_size, early))}."
            )
            advice = "Use more iterations, or -e msg where the provider has it."
            record.findings.append(warning("setup-time", meaning, advice))
