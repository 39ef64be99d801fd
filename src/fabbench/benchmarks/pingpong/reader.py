"""Reads fi_pingpong's output: its tables, its ``-v`` text and its errors, of both sides of a pair."""

import re
from collections.abc import Iterator, Sequence

from fabbench.benchmarks import Shortcut
from fabbench.benchmarks.libfabric.reading import Executions
from fabbench.benchmarks.pingpong.commands import read_command
from fabbench.benchmarks.pingpong.execution import Execution, Process
from fabbench.benchmarks.pingpong.rows import is_header, may_be_cut, read_row
from fabbench.markers import Marker
from fabbench.model import Line, Point, Record, Stream

_DEBUG = re.compile(r"\[debug\] \S*pingpong\.c:\d+ ?: ?(.*)")
_ERROR = re.compile(
    r"\[error\] (?:\S*/)?pingpong\.c:\d+.*"
    r"|[\w/]+(?:\(\))?: (?:\S*/)?pingpong\.c:\d+ ?, ret=-?\d+.*"
    r"|(?:\S*/)?fi_pingpong: (?:error while loading|(?:command )?not found|invalid option|option requires"
    r"|unrecognized option|No such file).*"
    r"|(?:\S+: )+(?:line \d+: )?(?:\S*/)?fi_pingpong: (?:command not found|not found|No such file).*"
)
# These are too common to begin an execution, and say something inside one.
_ERROR_INSIDE = re.compile(
    r"Unknown endpoint : .*|Unknown transmit mode.*|Error at iteration=\d+ size=\d+ byte=\d+.*"
    r"|\d+s timeout expired.*|Usage:\s*"
)
_USAGE = re.compile(r"\s+fi_pingpong \[OPTIONS\].*")
_SIDE_TITLE = re.compile(r"\W*(server|client) (?:log|output)\W*", re.IGNORECASE)
# Any other line says nothing, unless a torn row or an fi_info block is waiting for its rest.
_MAY_MATTER = re.compile(r"^\s*\d|pingpong|#sent|\[debug\]|\[error\]|Unknown |Error at |timeout|Usage")
_MAY_BEGIN = re.compile(r"pingpong|#sent|\d +[=+-]\d")
_GLUED = re.compile(r"(?<=.)(?=\[(?:debug|error)\] )")
_JSON_TABLE = re.compile(r'bytes +#sent[^"]*?\\n[^"]*')


class PingpongReader:
    """Reads one stream group; see `fabbench.benchmarks.Reader`."""

    def __init__(self) -> None:
        self._executions = Executions("pingpong", Execution)
        self._side_title = ""

    # ------------------------------------------------------------ the protocol

    def feed(self, line: Line) -> Sequence[Point | Record] | None:
        """Read one line; None: it says nothing about a ping-pong."""
        text = line.text
        if self._executions.current is None:
            matters = _MAY_BEGIN.search(text) is not None
        else:
            matters = self._executions.current.waits(line.stream) or _MAY_MATTER.search(text) is not None
        if not matters:
            self._note_title(text)
            return None
        used = False
        for piece in _pieces(line):
            used = self._read(piece) or used
        if not used:
            self._note_title(text)
        return self._executions.given() if used or self._executions.out else None

    def shortcut(self, rank: str) -> Shortcut | None:
        """Give no quick way: a table has a few dozen rows."""
        del rank
        return None

    def mark(self, marker: Marker) -> Sequence[Point | Record]:
        """Begin or end a step. Steps of one trial are one execution."""
        return self._executions.mark(marker)

    def close(self) -> Sequence[Point | Record]:
        """End the execution that is open."""
        self._executions.finish()
        self._side_title = ""
        return self._executions.given()

    # ------------------------------------------------------------ lines

    def _read(self, line: Line) -> bool:
        """Read one line, or one of several that were printed as one; whether it is ours."""
        text, stream = line.text, line.stream
        if text[:1].isdigit() and self._inside(line, stream):
            return True
        debug = _DEBUG.fullmatch(text)
        if debug is not None:
            self._debug(debug[1], stream)
        elif _ERROR.fullmatch(text) or _USAGE.fullmatch(text):
            self._executions.begun().fail(text, stream)
        elif self._executions.current is not None and self._executions.current.info(text, stream):
            pass
        elif self._begins_table(text, stream):
            self._table(line)
        elif (asked := read_command(text)) is not None:
            self._executions.add(Process(stream=stream, side=asked.side, asked=asked))
        else:
            return self._inside(line, stream)
        return True

    def _begins_table(self, text: str, stream: Stream) -> bool:
        """Whether a table begins here: with its header, or with a row where the log left the header out."""
        if is_header(text):
            return True
        if self._executions.current is not None and self._executions.current.has_table(stream):
            return False
        row = read_row(text)
        return row is not None and row.layout() == text.strip()

    def _inside(self, line: Line, stream: Stream) -> bool:
        """Read what counts only while an execution is open."""
        execution = self._executions.current
        if execution is None:
            return False
        point = execution.row(line)
        if point is not None:
            self._executions.out.append(point)
            return True
        if _ERROR_INSIDE.fullmatch(line.text):
            execution.fail(line.text, stream)
            return True
        return may_be_cut(line.text) and execution.hold(line)

    def _debug(self, text: str, stream: Stream) -> None:
        """Read what ``-v`` says."""
        execution = self._executions.begun()
        side, starting = "", text.startswith("- dst_addr")
        if starting:
            side = "server" if "[None]" in text else "client"
        elif text.startswith(("SERVER:", "CLIENT:")):
            side = text[:6].lower()
        elif text.startswith("Selected endpoint: "):
            execution.tell("endpoint", text.removeprefix("Selected endpoint: ").strip().lower(), stream)
        elif text.startswith("Running pingpong test with fi_info"):
            execution.begin_info(stream)
        if side and not execution.has(side, stream, starting=starting):
            self._executions.add(Process(stream=stream, side=side))

    def _table(self, line: Line) -> None:
        """Begin a table, and with it a process unless one was waiting for its table."""
        stream = line.stream
        if self._executions.current is None or not self._executions.current.waiting(stream):
            self._executions.add(Process(stream=stream, side=stream.side or self._side_title))
        execution = self._executions.begun()
        execution.open_table(stream, self._side_title)
        self._side_title = ""
        point = execution.row(line)
        self._executions.out += [point] if point else []

    def _note_title(self, text: str) -> None:
        title = _SIDE_TITLE.fullmatch(text)
        if title:
            self._side_title = title[1].lower()


def _pieces(line: Line) -> Iterator[Line]:
    """Give the lines in a line: a table inside a JSON string, or debug text behind a torn row."""
    if "\\n" in line.text:
        table = _JSON_TABLE.search(line.text)
        if table is not None:
            for text in table[0].split("\\n"):
                yield line._replace(text=text.removesuffix("\\r"))
            return
    if "[debug] " in line.text or "[error] " in line.text:
        for text in _GLUED.split(line.text):
            yield line._replace(text=text)
        return
    yield line
