"""What one perftest process prints, from its banner to the rule below its rows."""

from collections.abc import Callable, Mapping
from typing import ClassVar

from fabbench.benchmarks.perftest import arithmetic, findings
from fabbench.benchmarks.perftest import text as text_of
from fabbench.benchmarks.perftest.commands import Asked
from fabbench.benchmarks.perftest.found import Found
from fabbench.benchmarks.perftest.points import Kind, points, way_of_case
from fabbench.benchmarks.perftest.table import Table
from fabbench.benchmarks.perftest.tables import Layout
from fabbench.benchmarks.perftest.text import Stage, Statement
from fabbench.benchmarks.perftest.written import Written
from fabbench.markers import Marker
from fabbench.model import Damaged, Line, Point, Stream


class Block:
    """Grows line by line. Two processes that share a terminal without a tag may print into one."""

    def __init__(self, stream: Stream, *, side: str = "", step: Marker | None = None) -> None:
        self.stream = stream
        self._step = step
        self.stage = Stage.START
        self.case: str | None = None
        self.titled = False
        self.found = Found()
        self.addresses: dict[str, set[str]] = {"local": set(), "remote": set()}
        self.copies = 1
        """How many processes print into this block, as far as their titles and headers tell."""
        self.told_sides = [side] if side else []
        """What command line, banner and headings say of the side."""
        self.off_fabric = ""
        """A sentence, if the device is not the one of the step."""
        self._setup: list[str] = []
        self._both = False
        self._cycles = False
        self._table: Table | None = None
        self._finished: list[bool | None] = []
        self._share = ""
        self._last = ""
        self._at = ""
        self._json: tuple[Line, Written] | None = None

    # ------------------------------------------------------------ what is known of the process

    @property
    def side(self) -> str:
        """`server` or `client`; empty where the text does not tell, or tells both."""
        told = {*self.told_sides, self.stream.side} - {""}
        if self.copies > 1 or len(told) > 1:
            return ""
        return next(iter(told), "") or self._side_by_setup()

    def _side_by_setup(self) -> str:
        """Tell the side by the depths: TX is the sender's, RX the receiver's, both when both send."""
        if self._both or not self.case or not self.titled:
            return ""
        depths = {name for name in self._setup if name in {"TX depth", "RX depth"}}
        if len(depths) == 1:
            return "client" if "TX depth" in depths else "server"
        # What stands before and behind the missing line shows that it was not cut out.
        whole = {"Number of qps", "Connection type", "Mtu", "Link type"} <= set(self._setup)
        return "server" if not depths and whole and "send" not in self.case else ""

    def ask(self, asked: Asked) -> None:
        """Take in the command line that started the process."""
        self.case = asked.program
        self.told_sides = [asked.side]
        self._both, self._cycles = asked.both_directions, asked.cycles

    def side_told(self, side: str) -> None:
        """Take in a word on the side."""
        if side not in self.told_sides:
            self.told_sides.append(side)

    @property
    def announced_only(self) -> bool:
        """Whether there is nothing in it but its command line, or a word that announced it."""
        return self.stage is Stage.START and not self.found.failures

    @property
    def finished(self) -> bool | None:
        """Whether the rule below the rows was seen; None: there was none above the header either."""
        told = [*self._finished, *([self._table.finished] if self._table is not None else [])]
        return False if False in told else True if True in told else None

    def paired(self, other: "Block") -> bool:
        """Whether these two are the server and the client of one run."""
        if self.case != other.case and self.case and other.case:
            return False
        ends = (self.addresses["local"], self.addresses["remote"])
        others = (other.addresses["remote"], other.addresses["local"])
        if all((*ends, *others)):
            return ends == others
        if self.announced_only or other.announced_only:
            # All output of a server in the background may stand below the client's command.
            return {*self.told_sides[:1], *other.told_sides[:1]} == {"server", "client"}
        return {self.side, other.side} == {"server", "client"}

    # ------------------------------------------------------------ rows

    def header(self, layout: Layout, line: Line, *, ruled: bool) -> None:
        """Begin a table, or a second process's copy of one. `ruled`: a rule stood above it, outside."""
        self.stage = Stage.TABLE
        ruled, self._last = ruled or self._last == "rule", "header"
        if self._table is not None and not self._share:
            self.copies = max(self.copies, 2)
            self._table.another(layout, ruled=ruled)
            return
        self._end_table()
        self._table = Table(layout, self._kind(), self.found, indent=line.text, ruled=ruled)
        if self._cycles:
            self._table.without_times()

    def row(self, line: Line) -> list[Point] | None:
        """Read a line as a row of the open table; None if it is none."""
        if self._table is None:
            return None
        self._table.copies = self.copies
        found = self._table.row(line)
        if found is not None:
            self._last = "row"
        return found

    @property
    def rows(self) -> int:
        """How many whole rows the open table has."""
        return self._table.rows if self._table is not None else 0

    def _end_table(self) -> None:
        if self._table is not None:
            self._table.end()
            self._finished.append(self._table.finished)
            self._table = None

    def _kind(self) -> Kind:
        side, direction = self.side, ""
        if self.case and self.case.endswith("_bw"):
            direction = "bi" if self._both else "uni" if self.titled else ""
        if self._share:
            # What one side sent, in a test of both directions. Whose it is follows from who printed it.
            direction = "uni"
            other = {"server": "client", "client": "server"}
            side = side if self._share == "local" else other.get(side, "")
            side = side or self._share
        device = self._step.facts.get("device", "") if self._step is not None else ""
        return Kind(way_of_case(self.case), direction, side, self.stream.rank, device)

    # ------------------------------------------------------------ JSON

    @property
    def in_json(self) -> bool:
        """Whether a JSON file is being read."""
        return self._json is not None

    def begin_json(self, line: Line) -> None:
        """Begin to read a JSON file."""
        self._json = (line, Written())
        self.stage = Stage.TABLE

    def json(self, line: Line) -> list[Point]:
        """Read a line of a JSON file."""
        if self._json is None:
            return []
        _, written = self._json
        written.feed(line.text)
        if not written.done:
            return []
        self._json = None
        self._finished.append(True)
        return self._written(written, line)

    def _written(self, written: Written, line: Line) -> list[Point]:
        """Take in a JSON file that is whole."""
        title = text_of.read_title(written.title)
        if title is not None:
            self.case, self._both, self.titled = title.case, title.both_directions, True
        self.found.tell(written.setup)
        if written.is_bandwidth:
            self.found.fact("unit", written.unit or "ambiguous")
            if not written.unit:
                self.found.find(findings.AMBIGUOUS_UNIT)
        if written.size is None:
            self.found.find(findings.no_size("perftest's JSON has no row (--output was given).", line.text))
            return []
        if written.iterations is not None:
            self.found.fact("iterations", str(written.iterations))
        kind, both = self._kind(), written.latency_and_rate
        if both is not None and not kind.way:
            kind = kind._replace(way=arithmetic.way_of(*both))
        new = points(written.size, written.numbers(), kind, service_level=written.service_level)
        self.found.points += [(line.number, point) for point in new]
        return new

    def end(self) -> None:
        """End of the text: what is still open stays so."""
        self._end_table()
        if self._json is not None:
            line, written = self._json
            self.found.tell(written.setup)
            self.found.damaged.append(Damaged(line.number, line.text))
            self._json = None

    # ------------------------------------------------------------ statements

    def ended_by(self, statement: Statement) -> bool:
        """Whether a statement can only belong to another block, after this one."""
        if statement.stage is Stage.ANY:
            return False
        if statement.kind == "header":
            return self.rows > 0 and self.copies == 1 and not self._share
        if self.stage is Stage.TABLE:
            return not (statement.kind == "address" and self.copies > 1)
        if statement.kind == "title" and self.titled:
            return bool(self.found.failures)
        return statement.stage is Stage.START and self.stage > Stage.START

    def state(self, statement: Statement, line: Line) -> None:
        """Take in one statement."""
        passing = statement.kind in {"cpu", "warning", "noise"}
        if not passing:
            self._last = statement.kind
            if self._table is not None:
                self._table.interrupt()
        if statement.stage is not Stage.ANY:
            self.stage = max(self.stage, statement.stage)
        self._HANDLERS[statement.kind](self, statement, line)

    def _title(self, statement: Statement, line: Line) -> None:
        del line
        title = text_of.read_title(statement.words[0])
        if title is None:
            return
        if self.titled:
            self.copies += 1
        raw = self.case is not None and self.case.startswith("raw_ethernet")
        self.case = self.case if raw else title.case
        self.titled, self._both = True, title.both_directions

    def _waiting(self, statement: Statement, line: Line) -> None:
        del statement, line
        self.side_told("server")

    def _setup_line(self, statement: Statement, line: Line) -> None:
        del line
        self._setup += statement.facts
        if self._step is not None and (device := statement.facts.get("Device")):
            self.off_fabric = self.off_fabric or self._step.other("device", device, self.stream.side)
        self.found.tell(statement.facts)

    def _address(self, statement: Statement, line: Line) -> None:
        del line
        self.addresses[statement.words[0]].add(statement.words[1])

    def _results(self, statement: Statement, line: Line) -> None:
        del line
        self._share = statement.words[0]

    def _rule(self, statement: Statement, line: Line) -> None:
        del statement, line
        if self._table is not None:
            self._table.rule()

    def _cpu(self, statement: Statement, line: Line) -> None:
        del statement
        if not any(finding.code == "cpu-frequency" for finding in self.found.findings):
            self.found.find(findings.cpu_frequency(line.text.strip()))

    def _warning(self, statement: Statement, line: Line) -> None:
        if "BW peak won't be measured" not in statement.words[0]:
            self.found.find(findings.warning(statement.words[0], line.text.strip()))

    def _wrong(self, statement: Statement, line: Line) -> None:
        del line
        self.found.wrong += max(int(statement.words[0][:9]), 1)

    def _completion(self, statement: Statement, line: Line) -> None:
        self._at = statement.words[0]
        self.found.fail(f"The {self._at} reported: {statement.words[1]}.", line)

    def _status(self, statement: Statement, line: Line) -> None:
        number, syndrome = int(statement.words[0][:9]), statement.words[1]
        who = f"The {self._at}" if self._at else "perftest"
        sentence = f"{who} reported: {text_of.status_sentence(number, syndrome)}."
        general = f"The {self._at} reported: Completion with error at {self._at}."
        # It says more than the line above it does.
        self.found.failures = [failure for failure in self.found.failures if failure[1] != general]
        self.found.fail(sentence, line)
        self.found.fact("status", str(number))
        self.found.fact("syndrome", syndrome)

    def _failure(self, statement: Statement, line: Line) -> None:
        who = f"The {self.side}" if self.side else "perftest"
        self.found.fail(f"{who} said: {' '.join(statement.words[0].split())[:300]}", line)

    def _noise(self, statement: Statement, line: Line) -> None:
        """Nothing to note but that it is perftest's."""

    _HANDLERS: ClassVar[Mapping[str, Callable[["Block", Statement, Line], None]]] = {
        "title": _title,
        "waiting": _waiting,
        "setup": _setup_line,
        "address": _address,
        "results": _results,
        "rule": _rule,
        "cpu": _cpu,
        "warning": _warning,
        "wrong": _wrong,
        "at": _completion,
        "status": _status,
        "failure": _failure,
        "noise": _noise,
    }
