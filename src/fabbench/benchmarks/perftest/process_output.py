"""The output of one perftest process, from its banner to the rule below its rows, and the JSON it writes.

``--out_json`` (since 2021) has one test, one size, and no unit. It is read by its keys, line by line: with
QoS or ``--output=bandwidth`` the file is not valid JSON, and a truncated file can end anywhere.
"""

import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import ClassVar

from fabbench.benchmarks.perftest import findings
from fabbench.benchmarks.perftest import text as perftest_text
from fabbench.benchmarks.perftest.findings import consistent_unit, consistent_way
from fabbench.benchmarks.perftest.table_formats import (
    UNITS,
    Number,
    PerftestLayout,
    RowContext,
    exact,
    points,
    way_of_program,
)
from fabbench.benchmarks.perftest.table_reader import PerftestTable, ProcessResults
from fabbench.benchmarks.perftest.text import PerftestCommand, PerftestStatement, Stage
from fabbench.model.log import Damaged, Line, Marker, Point, Stream
from fabbench.model.messages import LONGEST_QUOTE
from fabbench.model.patterns import lazy

_BEGIN = lazy(r'"test_info"\s*:')
_RESULTS = lazy(r'"results"\s*:\s*\{')
_PAIR = lazy(r'"?([A-Za-z_][\w. *]{0,40})"?\s{0,9}:\s{0,9}(?:"([^"]*)"|(-?\d+(?:\.\d*)?)(?=\s*[,}\s]|$))', re.ASCII)

_SETUP = {
    "Device": "Device",
    "Number_of_qps": "Number of qps",
    "Connection_type": "Connection type",
    "Link_type": "Link type",
    "Mtu": "Mtu",
    "GID_index": "GID index",
    "TX_depth": "TX depth",
    "RX_depth": "RX depth",
}
"""Key in `test_info` → name in the set-up text."""

_US = Decimal("1e-6")
_LATENCIES = (
    ("t_min", "min"),
    ("t_max", "max"),
    ("t_typical", "median"),
    ("t_avg", ""),
    ("t_stdev", "stdev"),
    ("percentile_99", "p99"),
    ("percentile_99.9", "p99.9"),
)


def begins(text: str) -> bool:
    """Return whether a line begins such a file, after its first brace."""
    return _BEGIN.search(text) is not None


class JsonOutput:
    """Collects the keys of one file."""

    def __init__(self) -> None:
        self.done = False
        self._info: dict[str, str] = {}
        self._results: dict[str, str] = {}
        self._inside = False

    def feed(self, text: str) -> None:
        """Read a line."""
        results = None if self._inside else _RESULTS.search(text)
        if results is not None:
            self._add_row(text[: results.start()], self._info)
            text, self._inside = text[results.end() :], True
        rest, closed, _ = text.partition("}") if self._inside else (text, "", "")
        self._add_row(rest, self._results if self._inside else self._info)
        self.done = bool(closed)

    @staticmethod
    def _add_row(text: str, into: dict[str, str]) -> None:
        for key, word, number in _PAIR.findall(text):
            into[key] = word or number

    @property
    def title(self) -> str:
        """The title of the test, as the program prints it except for underscores."""
        return self._info.get("test", "")

    @property
    def setup(self) -> dict[str, str]:
        """The set-up, by its names in the text."""
        return {name: self._info[key] for key, name in _SETUP.items() if self._info.get(key)}

    @property
    def size(self) -> int | None:
        """The size in bytes; None: the file does not state it (--output)."""
        return _whole(self._results.get("MsgSize", ""))

    @property
    def iterations(self) -> int | None:
        """The number of iterations."""
        return _whole(self._results.get("n_iterations", ""))

    @property
    def service_level(self) -> str:
        """The `sl` of raw Ethernet with QoS."""
        return self._results.get("sl", "")

    @property
    def is_bandwidth(self) -> bool:
        """Return whether it is from a bandwidth test."""
        return bool({"BW_average", "bw_avg", "msgRate_avg"} & set(self._results))

    @property
    def way(self) -> str:
        """Return `one-way` or `round-trip`: what the latency of a duration run is; empty: unknown."""
        latency_us, per_second = self._results.get("t_avg", ""), self._results.get("tps_average", "")
        return consistent_way(Decimal(latency_us), Decimal(per_second)) if latency_us and per_second else ""

    @property
    def unit(self) -> str:
        """The unit of bandwidth, by arithmetic; empty: it cannot be determined."""
        average, rate = self._results.get("BW_average", ""), self._results.get("MsgRate", "")
        if not average or not rate or not self.size:
            return ""
        # Six decimals are printed for Gb/s only (REPORT_FMT_EXT_JSON).
        if len(average.partition(".")[2]) == 6:
            return "Gb/sec"
        return consistent_unit(Decimal(average), Decimal(rate), self.size)

    def numbers(self) -> list[Number]:
        """Return the numbers in base units; bandwidth only if its unit is certain."""
        measured = []
        factor = UNITS.get(self.unit)
        for key, stat in (("BW_peak", "peak"), ("BW_average", "")):
            if key in self._results and factor is not None:
                measured.append(Number("bandwidth", stat, "", exact(self._results[key], factor)))
        if "MsgRate" in self._results:
            measured.append(Number("message_rate", "", "", exact(self._results["MsgRate"], Decimal(1_000_000))))
        for key, stat in _LATENCIES:
            if key in self._results:
                measured.append(Number("latency", stat, "", exact(self._results[key], _US)))
        if "tps_average" in self._results:
            measured.append(Number("tps", "", "", exact(self._results["tps_average"], Decimal(1))))
        return measured


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


class ProcessOutput:
    """Output read line by line. Two processes that share a terminal without tags may print into one."""

    def __init__(self, stream: Stream, *, side: str = "", step: Marker | None = None) -> None:
        self.stream = stream
        self._step = step
        self.stage = Stage.START
        self.case: str | None = None
        self.titled = False
        self.has_preamble = False  # whether perftest, or the program that started it, printed anything above the set-up
        self.results = ProcessResults()
        self.addresses: dict[str, set[str]] = {"local": set(), "remote": set()}
        self.copies = 1  # number of processes that print into this text, as far as their titles and headers show
        self.stated_sides = [side] if side else []  # sides that the command line, banners and headings name
        self.off_fabric = ""  # a sentence if the device is not that of the step
        self._setup: list[str] = []
        self._both = False
        self._cycles = False
        self._table: PerftestTable | None = None
        self._finished: list[bool | None] = []
        self._results_of = ""
        self._last = ""
        self._failed_side = ""
        self._json: tuple[Line, JsonOutput] | None = None

    # ------------------------------------------------------------ what is known of the process

    @property
    def side(self) -> str:
        """`server` or `client`; empty if the text names neither or both."""
        sides = {*self.stated_sides, self.stream.side} - {""}
        if self.copies > 1 or len(sides) > 1:
            return ""
        shown = self._side_by_setup()
        # A truncated command line has no server address, and looks like that of the server.
        return "" if sides == {"server"} and shown == "client" else next(iter(sides), "") or shown

    def _side_by_setup(self) -> str:
        """Infer the side from the depths: TX is the sender's, RX the receiver's, both if both send."""
        if self._both or not self.case or not self.titled:
            return ""
        depths = {name for name in self._setup if name in {"TX depth", "RX depth"}}
        if len(depths) == 1:
            return "client" if "TX depth" in depths else "server"
        # The lines before and after the missing line show that it was not removed.
        whole = {"Number of qps", "Connection type", "Mtu", "Link type"} <= set(self._setup)
        return "server" if not depths and whole and "send" not in self.case else ""

    @property
    def incomplete(self) -> str:
        """Describe in a sentence what is missing; empty: nothing, or an excerpt begins further down.

        The title is between the first output and the set-up.
        """
        missing = self.results.points and self._setup and not self.titled and self.has_preamble
        return "The title above perftest's set-up is missing." if missing else ""

    def set_command(self, command: PerftestCommand) -> None:
        """Set the command line that started the process."""
        self.case = command.program
        self.has_preamble = True
        self.stated_sides = [command.side]
        self._both, self._cycles = command.both_directions, command.cycles

    def add_side(self, side: str) -> None:
        """Add a side that the text names."""
        if side not in self.stated_sides:
            self.stated_sides.append(side)

    @property
    def announced_only(self) -> bool:
        """Return whether it has nothing but its command line, or a line that announces it."""
        return self.stage is Stage.START and not self.results.failures

    @property
    def finished(self) -> bool | None:
        """Return whether the rule below the rows was seen; None: not seen above the header either."""
        verdicts = [*self._finished, *([self._table.finished] if self._table is not None else [])]
        return False if False in verdicts else True if True in verdicts else None

    def is_other_end(self, other: "ProcessOutput") -> bool:
        """Return whether the printed addresses are the two ends of the same queue pairs."""
        local, remote = self.addresses["local"], self.addresses["remote"]
        return bool(local and remote) and (remote, local) == (other.addresses["local"], other.addresses["remote"])

    def is_peer(self, other: "ProcessOutput") -> bool:
        """Return whether these two are the server and the client of one run."""
        if self.case != other.case and self.case and other.case:
            return False
        if all((*self.addresses.values(), *other.addresses.values())):
            return self.is_other_end(other)
        if self.announced_only or other.announced_only:
            # All output of a background server may be below the client's command.
            return {*self.stated_sides[:1], *other.stated_sides[:1]} == {"server", "client"}
        return {self.side, other.side} == {"server", "client"}

    # ------------------------------------------------------------ rows

    def begin_table(self, layout: PerftestLayout, line: Line, *, ruled: bool) -> None:
        """Begin a table, or a second process's copy of one. `ruled`: a rule was above it, outside."""
        self.stage = Stage.TABLE
        ruled, self._last = ruled or self._last == "rule", "header"
        if self._table is not None and not self._results_of:
            self.copies = max(self.copies, 2)
            self._table.add_header(layout, ruled=ruled)
            return
        self._end_table()
        self._table = PerftestTable(layout, self._context(), self.results, indent=line.text, ruled=ruled)
        if self._cycles:
            self._table.leave_times_out()

    def row(self, line: Line) -> list[Point] | None:
        """Return the points of a row of the open table; None if the line is not a row."""
        if self._table is None:
            return None
        self._table.copies, self._table.titled = self.copies, self.titled
        results = self._table.row(line)
        if results is not None:
            self._last = "row"
        return results

    @property
    def rows(self) -> int:
        """Number of complete rows in the open table."""
        return self._table.rows if self._table is not None else 0

    def _end_table(self) -> None:
        if self._table is not None:
            self._table.end()
            self._finished.append(self._table.finished)
            self._table = None

    def _context(self) -> RowContext:
        side, direction = self.side, ""
        if self.case and self.case.endswith("_bw"):
            direction = "bi" if self._both else "uni" if self.titled else ""
        if self._results_of:
            # What one side sent, in a test of both directions. Which side depends on who printed it.
            direction = "uni"
            other = {"server": "client", "client": "server"}
            side = side if self._results_of == "local" else other.get(side, "")
            side = side or self._results_of
        device = self._step.facts.get("device", "") if self._step is not None else ""
        return RowContext(way_of_program(self.case), direction, side, self.stream.rank, device)

    # ------------------------------------------------------------ JSON

    @property
    def reads_json(self) -> bool:
        """Return whether a JSON file is being read."""
        return self._json is not None

    def begin_json(self, line: Line) -> None:
        """Begin to read a JSON file."""
        self._json = (line, JsonOutput())
        self.has_preamble = True
        self.stage = Stage.TABLE

    def json(self, line: Line) -> list[Point]:
        """Return the points of the JSON file if this line ends it; else none."""
        if self._json is None:
            return []
        _, output = self._json
        output.feed(line.text)
        if not output.done:
            return []
        self._json = None
        self._finished.append(True)
        return self._add_json(output, line)

    def _add_json(self, output: JsonOutput, line: Line) -> list[Point]:
        """Return the points of a complete JSON file."""
        title = perftest_text.read_title(output.title)
        if title is not None:
            self.case, self._both, self.titled = title.case, title.both_directions, True
        self.results.add_setup(output.setup)
        self._setup += output.setup
        if output.is_bandwidth:
            self.results.add_fact("unit", output.unit or "ambiguous")
            if not output.unit:
                self.results.add_finding(findings.AMBIGUOUS_UNIT)
        if output.size is None:
            self.results.add_finding(findings.no_size("perftest's JSON has no row (--output was given).", line.text))
            return []
        if output.iterations is not None:
            self.results.add_fact("iterations", str(output.iterations))
        context = self._context()
        context = context._replace(way=context.way or output.way)
        new = points(output.size, output.numbers(), context, service_level=output.service_level)
        self.results.points += [(line.number, point) for point in new]
        return new

    def end(self) -> None:
        """End the text: anything still open is incomplete."""
        self._end_table()
        if self._json is not None:
            line, output = self._json
            self.results.add_setup(output.setup)
            self.results.damaged.append(Damaged(line.number, line.text))
            self._json = None

    # ------------------------------------------------------------ statements

    def ended_by(self, statement: PerftestStatement) -> bool:
        """Return whether a statement can only belong to a later process."""
        if statement.stage is Stage.ANY:
            return False
        if statement.context == "header":
            return self.rows > 0 and self.copies == 1 and not self._results_of
        if self.stage is Stage.TABLE:
            return not (statement.context == "address" and self.copies > 1)
        if statement.context == "title" and self.titled:
            return bool(self.results.failures)
        return statement.stage is Stage.START and self.stage > Stage.START

    def add_statement(self, statement: PerftestStatement, line: Line) -> None:
        """Read one statement."""
        passing = statement.context in {"cpu", "warning", "noise"}
        if not passing:
            self._last = statement.context
            if self._table is not None:
                self._table.interrupt()
        if statement.stage is not Stage.ANY:
            self.stage = max(self.stage, statement.stage)
        self._HANDLERS[statement.context](self, statement, line)

    def _title(self, statement: PerftestStatement, line: Line) -> None:
        del line
        title = perftest_text.read_title(statement.words[0])
        if title is None:
            return
        if self.titled:
            self.copies += 1
        raw = self.case is not None and self.case.startswith("raw_ethernet")
        self.case = self.case if raw else title.case
        self.titled, self._both = True, title.both_directions

    def _waiting(self, statement: PerftestStatement, line: Line) -> None:
        del statement, line
        self.add_side("server")

    def _setup_line(self, statement: PerftestStatement, line: Line) -> None:
        del line
        self._setup += statement.facts
        if self._step is not None and (device := statement.facts.get("Device")):
            self.off_fabric = self.off_fabric or self._step.other("device", device, self.stream.side)
        self.results.add_setup(statement.facts)

    def _address(self, statement: PerftestStatement, line: Line) -> None:
        del line
        self.addresses[statement.words[0]].add(statement.words[1])

    def _results(self, statement: PerftestStatement, line: Line) -> None:
        del line
        self._results_of = statement.words[0]

    def _rule(self, statement: PerftestStatement, line: Line) -> None:
        del statement, line
        if self._table is not None:
            self._table.add_rule()

    def _cpu(self, statement: PerftestStatement, line: Line) -> None:
        del statement
        if not any(finding.code == "cpu-frequency" for finding in self.results.findings):
            self.results.add_finding(findings.cpu_frequency(line.text.strip()))

    def _warning(self, statement: PerftestStatement, line: Line) -> None:
        if "BW peak won't be measured" not in statement.words[0]:
            self.results.add_finding(findings.warning(statement.words[0], line.text.strip()))

    def _wrong(self, statement: PerftestStatement, line: Line) -> None:
        del line
        self.results.wrong += max(int(statement.words[0][:9]), 1)

    def _completion(self, statement: PerftestStatement, line: Line) -> None:
        self._failed_side = statement.words[0]
        self.results.add_failure(f"The {self._failed_side} reported: {statement.words[1]}.", line)

    def _status(self, statement: PerftestStatement, line: Line) -> None:
        number, syndrome = int(statement.words[0][:9]), statement.words[1]
        source = f"The {self._failed_side}" if self._failed_side else "perftest"
        sentence = f"{source} reported: {perftest_text.status_sentence(number, syndrome)}."
        general = f"The {self._failed_side} reported: Completion with error at {self._failed_side}."
        # It is more specific than the line above it.
        self.results.failures = [failure for failure in self.results.failures if failure[1] != general]
        self.results.add_failure(sentence, line)
        self.results.add_fact("status", str(number))
        self.results.add_fact("syndrome", syndrome)

    def _failure(self, statement: PerftestStatement, line: Line) -> None:
        source = f"The {self.side}" if self.side else "perftest"
        message = " ".join(statement.words[0].split())[:LONGEST_QUOTE]
        self.results.add_failure(f"{source} said: {message}", line)

    def _noise(self, statement: PerftestStatement, line: Line) -> None:
        """Ignore a line: only that it comes from perftest matters."""

    _HANDLERS: ClassVar[Mapping[str, Callable[["ProcessOutput", PerftestStatement, Line], None]]] = {
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
