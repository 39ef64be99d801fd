"""The output of one perftest process, from its banner to the rule below its rows, and the JSON it writes.

``--out_json`` (since 2021) has one test, one size, and no unit. It is read by its keys, line by line: with
QoS, ``--output=bandwidth`` or until 2023 (no quotes) it is not valid JSON, and a truncated file can end anywhere.
"""

import re
from collections.abc import Sequence
from decimal import Decimal

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

_BEGIN = lazy(r'"?\btest_info"?\s*:')
_RESULTS = lazy(r'"?\bresults"?\s*:\s*\{')
_WORD = r'"([^"]*)"|(-?\d+(?:\.\d*)?|[A-Z]\w*)(?=\s*[,}\s]|$)'
_PAIR = lazy(rf'"?([A-Za-z_][\w. *]{{0,40}})"?\s{{0,9}}:\s{{0,9}}(?:{_WORD})', re.ASCII)

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

_FIGURES = (
    ("BW_peak", "bandwidth", "peak"),
    ("BW_average", "bandwidth", ""),
    ("MsgRate", "message_rate", ""),
    ("t_min", "latency", "min"),
    ("t_max", "latency", "max"),
    ("t_typical", "latency", "median"),
    ("t_avg", "latency", ""),
    ("t_stdev", "latency", "stdev"),
    ("percentile_99", "latency", "p99"),
    ("percentile_99.9", "latency", "p99.9"),
    ("tps_average", "tps", ""),
)
"""Key in `results`, metric and stat."""


def begins(text: str) -> bool:
    """Return whether a line begins such a file, after its first brace."""
    return _BEGIN.search(text) is not None


class JsonOutput:
    """Collects the keys of one file: those of `test_info`, and those of `results`."""

    def __init__(self) -> None:
        self.done = False
        self.info: dict[str, str] = {}
        self.results: dict[str, str] = {}
        self._inside = False

    def feed(self, text: str) -> None:
        """Read a line."""
        results = None if self._inside else _RESULTS.search(text)
        if results is not None:
            self.info |= _pairs(text[: results.start()])
            text, self._inside = text[results.end() :], True
        if self._inside:
            rest, closed, _ = text.partition("}")
            self.results |= _pairs(rest)
            self.done = bool(closed)
        else:
            self.info |= _pairs(text)

    @property
    def setup(self) -> dict[str, str]:
        """The set-up, by its names in the text."""
        return {name: self.info[key] for key, name in _SETUP.items() if self.info.get(key)}

    @property
    def size(self) -> int | None:
        """The size in bytes; None: the file does not state it (--output)."""
        return _whole(self.results.get("MsgSize", ""))

    @property
    def unit(self) -> str:
        """The unit of bandwidth, by arithmetic; empty: it cannot be determined."""
        average, rate = self.results.get("BW_average", ""), self.results.get("MsgRate", "")
        if not average or not rate or not self.size:
            return ""
        # Six decimals are printed for Gb/s only (REPORT_FMT_EXT_JSON).
        if len(average.partition(".")[2]) == 6:
            return "Gb/sec"
        return consistent_unit(Decimal(average), Decimal(rate), self.size)

    def numbers(self) -> list[Number]:
        """Return the numbers in base units; bandwidth only if its unit is certain."""
        factors = {"bandwidth": UNITS.get(self.unit), "message_rate": Decimal(1_000_000), "latency": Decimal("1e-6")}
        return [
            Number(metric, stat, "", exact(self.results[key], factor))
            for key, metric, stat in _FIGURES
            if key in self.results and (factor := factors.get(metric, Decimal(1))) is not None
        ]


def _pairs(text: str) -> dict[str, str]:
    return {key.strip(): word or number for key, word, number in _PAIR.findall(text)}


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
        """Describe in a sentence what is missing; empty: nothing, or an excerpt begins further down."""
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
            if self._results_of == "remote":
                side = {"server": "client", "client": "server"}.get(side, "")
            side = side or self._results_of
        device = self._step.facts.get("device", "") if self._step is not None else ""
        return RowContext(way_of_program(self.case), direction, side, self.stream.rank, device)

    def begin_json(self, line: Line) -> None:
        """Begin to read a JSON file."""
        self._json = (line, JsonOutput())
        self.has_preamble, self.stage = True, Stage.TABLE

    def json(self, line: Line) -> list[Point] | None:
        """Return the points of the JSON file that this line ends, none within it; None outside of one."""
        if self._json is None:
            return None
        _, output = self._json
        output.feed(line.text)
        if not output.done:
            return []
        self._json = None
        self._finished.append(True)
        return self._add_json(output, line)

    def _add_json(self, output: JsonOutput, line: Line) -> list[Point]:
        results = output.results
        title = perftest_text.read_title(output.info.get("test", ""))
        if title is not None:
            (self.case, self._both), self.titled = title, True
        self.results.add_setup(output.setup)
        self._setup += output.setup
        if not results.keys().isdisjoint(("BW_average", "bw_avg", "msgRate_avg")):
            self.results.add_fact("unit", output.unit or "ambiguous")
            if not output.unit:
                self.results.add_finding(findings.AMBIGUOUS_UNIT)
        if output.size is None:
            self.results.add_finding(findings.no_size("perftest's JSON has no row (--output was given).", line.text))
            return []
        if (iterations := _whole(results.get("n_iterations", ""))) is not None:
            self.results.add_fact("iterations", str(iterations))
        context, latency_us, per_second = self._context(), results.get("t_avg", ""), results.get("tps_average", "")
        if not context.way and latency_us and per_second:
            context = context._replace(way=consistent_way(Decimal(latency_us), Decimal(per_second)))
        new = points(output.size, output.numbers(), context, service_level=results.get("sl", ""))
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

    def ended_by(self, statement: PerftestStatement) -> bool:
        """Return whether a statement can only belong to a later process."""
        if statement.stage is Stage.ANY:
            return False
        if statement.context == "header":
            return self._table is not None and self._table.rows > 0 and self.copies == 1 and not self._results_of
        if self.stage is Stage.TABLE:
            return not (statement.context == "address" and self.copies > 1)
        if statement.context == "title" and self.titled:
            return bool(self.results.failures)
        return statement.stage is Stage.START and self.stage > Stage.START

    def add_statement(self, statement: PerftestStatement, line: Line) -> None:
        """Read one statement."""
        if statement.context not in {"cpu", "warning", "noise"}:
            self._last = statement.context
            if self._table is not None:
                self._table.interrupt()
        if statement.stage is not Stage.ANY:
            self.stage = max(self.stage, statement.stage)
        self._describe(statement, line)
        self._fail(statement.context, statement.words, line)

    def _describe(self, statement: PerftestStatement, line: Line) -> None:
        """Record what was run, and where."""
        context, words = statement.context, statement.words
        if context == "title" and (title := perftest_text.read_title(words[0])) is not None:
            if self.titled:
                self.copies += 1
            case, self._both = title
            raw = self.case is not None and self.case.startswith("raw_ethernet")
            self.case, self.titled = self.case if raw else case, True
        elif context == "waiting":
            self.add_side("server")
        elif context == "setup":
            self._setup += statement.facts
            if self._step is not None and (device := statement.facts.get("Device")):
                self.off_fabric = self.off_fabric or self._step.other("device", device, self.stream.side)
            self.results.add_setup(statement.facts)
        elif context == "address":
            self.addresses[words[0]].add(words[1])
        elif context == "results":
            self._results_of = words[0]
        elif context == "rule" and self._table is not None and self._table.rows:
            self._table.closed = True
        elif context == "cpu" and not any(known.code == "cpu-frequency" for known in self.results.findings):
            self.results.add_finding(findings.cpu_frequency(line.text.strip()))
        elif context == "warning" and "BW peak won't be measured" not in words[0]:
            self.results.add_finding(findings.warning(words[0], line.text.strip()))

    def _fail(self, context: str, words: Sequence[str], line: Line) -> None:
        results = self.results
        if context == "wrong":
            results.wrong += max(int(words[0][:9]), 1)
        elif context == "at":
            self._failed_side = words[0]
            results.add_failure(f"The {self._failed_side} reported: {words[1]}.", line)
        elif context == "status":
            number, syndrome = int(words[0][:9]), words[1]
            source = f"The {self._failed_side}" if self._failed_side else "perftest"
            general = f"The {self._failed_side} reported: Completion with error at {self._failed_side}."
            # It is more specific than the line above it.
            results.failures = [failure for failure in results.failures if failure[1] != general]
            results.add_failure(f"{source} reported: {perftest_text.status_sentence(number, syndrome)}.", line)
            results.add_fact("status", str(number))
            results.add_fact("syndrome", syndrome)
        elif context == "failure":
            source = f"The {self.side}" if self.side else "perftest"
            results.add_failure(f"{source} said: {' '.join(words[0].split())[:LONGEST_QUOTE]}", line)
