"""`ucx_perftest`: latency and bandwidth of UCX between two processes.

Read only: fabbench does not start it.

Its MB are 2²⁰ bytes (`ucx_perf_report` of libperf.c). Rows of threads are progress; the result is
the row `Final:` (since UCX 1.9), or the last row (before that, and with -f and -v).
UCX_LOG_LEVEL=info makes UCX print its transport.
"""

from collections.abc import Sequence
from itertools import chain
from types import MappingProxyType

from fabbench.benchmarks.commands import CommandLine, read_command_line, whole_number
from fabbench.benchmarks.consistency import Printed, printed, product
from fabbench.benchmarks.events import Ahead, Begin, Command, End, Events, Header, Setting
from fabbench.benchmarks.executions import MIXED_TABLES, Execution, Table
from fabbench.benchmarks.findings import finding
from fabbench.benchmarks.standard import ReadBenchmark
from fabbench.benchmarks.tables import COUNT, Cells, Column, Layout, Row
from fabbench.model.patterns import lazy
from fabbench.model.units import parse_whole

_MIB = float(1 << 20)
_HEADER = lazy(
    r"\|(?:\s+\|)?\s+\|\s+(overhead|latency) \(usec\)\s+\|\s+bandwidth \(MB/s\)\s+\|\s+message "
    r"rate .*"
)
_CSV_HEADER = lazy(r"(?:[^,\s]+,)*iterations,[\w.]+_lat,avg_lat,overall_lat,.*")
_PARAMETER = lazy(
    r"\| (API|Test|Data layout|Send memory|Recv memory|Message size|Window size):\s+"
    r"(\S++(?:\s++\S++)*?)\s+\|"
)
_FACTS = {"API": "api", "Test": "test", "Send memory": "send_memory", "Recv memory": "recv_memory"}
_FINAL_ONLY = lazy(r"\| +Test +\|")
"""With -f only the result is printed."""
_NAME = lazy(r"\+(?![-+])(\S*[^\s+-])[-+]{8,}")
_PROGRAM = lazy(r"(?:^|(?<=[\s/]))(ucx_perftest)(?=\s|$)")
_OPTION = lazy(r"(?:^| )-([tsn])[ =]?([\w.]+)(?= |$)")
_DEFAULT_ITERATIONS = 1_000_000

# The decimals tell the figures apart, and a cut one from a whole one.
_COUNT = Column(cell=COUNT)
_US = Column(cell=r"(?:0|[1-9]\d{0,17})\.\d{3}")
_MB = Column(cell=r"(?:0|[1-9]\d{0,17})\.\d\d")
_BANDWIDTH = _MB._replace(metric="bandwidth", factor=_MIB)
_MESSAGES = _COUNT._replace(metric="message_rate")


def _layouts(time_metric: str) -> Sequence[Layout]:
    """Return the columns of a thread, and those of several: only the overall figures."""
    time = _US._replace(metric=time_metric, factor=1e-6)
    of_thread = (_COUNT, _US, _US, time, _MB, _BANDWIDTH, _COUNT, _MESSAGES)
    return (of_thread, (_COUNT, time, _BANDWIDTH, _MESSAGES))


_LAYOUTS = {"latency": _layouts("latency"), "overhead": _layouts("time")}
_ROW = lazy(r"\s*(?:(\[thread \d+\]|Final:)|([A-Za-z]\S*)(?=\s))?(.*)")
_NO_FIGURE = lazy(r"^((?:[\d.]+\s+){7}\d+)\s+(?![\d\s.-]).*|(?<=\d),(?=\d{3}(?:,\d{3}){0,6}(?!\S))")
"""With -e, the protocol behind the figures; with -N, a comma in a number."""


def _cells(text: str) -> Cells:
    # What stands before the cells: `Final:` or `[thread 0]`, else the name of a test in a batch.
    stage, test, rest = _ROW.findall(text)[0]
    final = stage == "Final:" if stage else None
    return Cells(_NO_FIGURE.sub(r"\1", rest.strip()), test, final)


def _events(text: str, execution: Execution | None) -> Events | None:
    """Return what a line that is no row says; None: it is none of ucx_perftest's.

    A header, of the usual table or of CSV; a parameter in the frame above a table; a command line;
    or, within an execution, another part of the frame.
    """
    stripped = text.strip()
    header = _HEADER.fullmatch(stripped)
    if header is not None:
        return (Begin(), Header(_LAYOUTS[header[1]]))
    if _CSV_HEADER.fullmatch(stripped):
        return (Begin(), finding("csv-unread"))
    if stripped.startswith("| "):
        parameter = _PARAMETER.fullmatch(stripped)
        if parameter is not None:
            statement = _parameter_setting(*parameter.groups())
            # Parameters below rows are those of the next table.
            is_ahead = execution is None or execution.rows
            return (Ahead((statement,)),) if is_ahead else (statement,)
    if "ucx_perftest" in text:
        command = read_command_line(text, _PROGRAM)
        if command is not None:
            return (_command_event(command),)
    return None if execution is None else _frame_events(stripped)


def _parameter_setting(name: str, value: str) -> Setting:
    facts = {_FACTS[name]: value} if name in _FACTS else {}
    return Setting(facts=facts, size=parse_whole(value) if name == "Message size" else None)


def _command_event(command: CommandLine) -> Command:
    given = dict(_OPTION.findall(command.arguments))  # -t: test, -s: message size, -n: iterations
    setting = Setting(
        facts={"test": given["t"]} if "t" in given else {},
        size=whole_number(given, "s"),
        iterations=whole_number(given, "n") or _DEFAULT_ITERATIONS,
    )
    return Command((setting,))


def _frame_events(line: str) -> Events | None:
    # The frame of a table means nothing; a heading `| Test |` shows that all rows are results.
    name = _NAME.fullmatch(line)
    if name is not None:  # -b: several tests in one table
        return (Setting(labels={"operation": name[1]}),)
    if not line.startswith(("+--", "|")):
        return None
    return (End(),) if _FINAL_ONLY.match(line) else ()


def _fits(row: Row) -> bool:
    return all(_is_one_measurement(row.size, *figures) for figures in _figures(row))


def _figures(row: Row) -> Sequence[Sequence[Printed]]:
    """Return time, bandwidth and message rate: of the last interval and overall, or only these."""
    numbers = [printed(cell) for cell in row.cells]
    # 8 numbers: two others, then each of the three for the interval and overall. 4 numbers, of
    # several threads: one other, then each of the three overall.
    count = len(numbers) // 4
    first = len(numbers) - 3 * count
    return [numbers[at::count] for at in range(first, first + count)]


def _is_one_measurement(size: int, time: Printed, bandwidth: Printed, rate: Printed) -> bool:
    """Return whether one message was sent per printed time, or by several threads together."""
    low, high = product(time.times(1e-6), rate)  # messages sent in the printed time
    # That is one, or, of several threads, two or more.
    if high < 1 or (low > 1 and high < 2):
        return False
    return not size or bandwidth.times(_MIB).agrees(rate.times(size))


def _are_of_one_test(execution: Execution) -> bool:
    """Return whether rows can be of one test: their iterations add up, and their size is one."""
    # Each thread counts its own iterations: one of them is enough.
    rows = [row for row in execution.progress if "[thread 0]" in row.line.text]
    rows += execution.rows
    counts = [int(row.cells[0]) for row in rows]  # the iterations so far
    smallest: list[float] = []
    largest: list[float] = []
    for _, bandwidth, rate in chain.from_iterable(map(_figures, rows)):
        smallest.append(bandwidth.low / rate.high)
        largest.append(bandwidth.high / (rate.low or 1e-9))  # of a rate of 0, any size
    have_one_size = max(smallest, default=0) <= min(largest, default=0)
    return have_one_size and counts == sorted(counts)


def _settle(execution: Execution) -> Sequence[Row]:
    # Return the row with the result of each test.
    is_batch = any(row.labels for row in execution.rows)  # whose tests each count from the start
    if not is_batch and not _are_of_one_test(execution):
        execution.record.findings.append(finding(MIXED_TABLES))
        return execution.reread_rows(lambda row: None)  # noqa: ARG005
    results: dict[str, Row] = {}  # test → its last row; the name of a single one is empty
    for row in execution.rows:
        name = row.labels.get("operation", "")
        # A later row counts, but none takes the place of a row `Final:` unless it is one, too.
        if name not in results or row.final or not results[name].final:
            results[name] = row
    if results:
        execution.record.finished = _is_finished(execution, results)
        if execution.size is None:
            execution.record.findings.append(finding("size-unstated", "ucx_perftest"))
    return [*results.values()]


def _is_finished(execution: Execution, results: dict[str, Row]) -> bool | None:
    """Return whether the last row of each test is its result; None: how many tests is not known."""
    first, *others = results.values()
    # Without a row `Final:`, the last row is the result if it counts all iterations.
    if not others and not first.final and execution.iterations:
        iterations = int(first.cells[0])
        return iterations >= execution.iterations
    # A test of a batch has begun, and has no row.
    if execution.labels and execution.labels["operation"] not in results:
        return False
    has_result = bool(execution.record.finished or first.final)
    return True if "" in results and has_result else None


TABLE = Table(
    benchmark="ucx_perftest",
    case="ucx_perftest",
    events=_events,
    fits=_fits,
    cells=_cells,
    settle=_settle,
    finished=False,
)


class UcxPerftest(ReadBenchmark):
    """The benchmark ``ucx_perftest``."""

    name = "ucx_perftest"
    network_shown = "UCX_LOG_LEVEL=info, UCX prints it"
    between_two = True
    default_metrics = ("bandwidth", "latency", "message_rate", "time")
    resolution = MappingProxyType(
        {"bandwidth": (0.01 * _MIB,), "latency": (1e-9,), "message_rate": (1.0,)}
    )


BENCHMARK = UcxPerftest()
