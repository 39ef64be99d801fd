"""`ucx_perftest`: latency and bandwidth of UCX between two processes.

Read only: fabbench does not start it.

Its MB are 2²⁰ bytes (`ucx_perf_report` of libperf.c). Rows of threads are progress; the result is
the row `Final:` (since UCX 1.9), or the last row (before that, and with -f and -v).
UCX_LOG_LEVEL=info makes UCX print its transport.
"""

import re
from collections.abc import Sequence
from types import MappingProxyType

from fabbench.benchmarks import Signature, engine
from fabbench.benchmarks.consistency import note, printed, product
from fabbench.benchmarks.mpi_transport import WORDS
from fabbench.benchmarks.standard import ReadBenchmark
from fabbench.model.patterns import lazy

_MIB = float(1 << 20)
_HEADER = lazy(
    r"\|(?:\s+\|)?\s+\|\s+(overhead|latency) \(usec\)\s+\|\s+bandwidth \(MB/s\)\s+\|\s+message "
    r"rate .*"
    r"|(?:[^,\s]+,)*iterations,[\w.]+_lat,avg_lat,overall_lat,avg_bw,overall_bw,avg_mr,overall_mr"
)
_PARAMETER = lazy(
    r"\| (API|Test|Data layout|Send memory|Recv memory|Message size|Window size):\s+"
    r"(\S++(?:\s++\S++)*?)\s+\|"
)
_FACTS = {"API": "api", "Test": "test", "Send memory": "send_memory", "Recv memory": "recv_memory"}
_FINAL_ONLY = lazy(r"\| +Test +\|")  # -f: only the result is printed
_NAME = lazy(r"\+(?![-+])(\S*[^\s+-])[-+]{8,}")
_PROGRAM = lazy(r"(?:^|(?<=[\s/]))(ucx_perftest)(?=\s|$)")
_OPTION = lazy(r"(?:^| )-([tsn])[ =]?([\w.]+)(?= |$)")
_COUNT = engine.Column(cell=engine.COUNT)
# The decimals tell the figures apart, and a cut one from a whole one.
_US, _MB = engine.Column(cell=r"\d{1,18}\.\d{3}"), engine.Column(cell=r"\d{1,18}\.\d\d")
_RATES = _MB._replace(metric="bandwidth", factor=_MIB), _COUNT._replace(metric="message_rate")

_LAYOUTS = {  # the columns of a thread, and those of several: only the overall figures
    heading: ((_COUNT, _US, _US, time, _MB, _RATES[0], _COUNT, _RATES[1]), (_COUNT, time, *_RATES))
    for heading, metric in (("latency", "latency"), ("overhead", "time"))
    for time in (_US._replace(metric=metric, factor=1e-6),)
}
_ROW = lazy(
    r"\s*(?P<names>(?:[A-Za-z][^,\s]*,|[^,\s]+,(?=\S*(?:Final:|\[thread )))*)\s*"
    r"(?:(?P<stage>\[thread \d+\]|Final:)|(?P<test>[A-Za-z]\S*)(?=\s))?(?P<rest>.*)"
)
# With -e, the protocol behind the figures; with -N, a comma in a number.
_NO_FIGURE = lazy(r"^((?:[\d.]+\s+){7}\d+)\s+(?![\d\s.-]).*|(?<=\d),(?=\d{3}(?:,\d{3}){0,6}(?!\S))")


def _cells(text: str) -> engine.Cells:
    names, stage, test, rest = _ROW.findall(text)[0]
    rest = rest.strip()
    figures = rest.split(",") if "," in rest and " " not in rest else [_NO_FIGURE.sub(r"\1", rest)]
    name = (
        "/".join((*filter(None, names.split(",")), *figures[:-8])) or test
    )  # some names are numbers
    return engine.Cells(" ".join(figures[-8:]), name, stage == "Final:" if stage else None)


def _statement(text: str, execution: engine.Execution | None) -> engine.Statement | None:
    stripped = text.strip()
    if (match := _HEADER.fullmatch(stripped)) is not None:
        return engine.Statement(begins=True, layouts=_LAYOUTS[match[1] or "overhead"])
    if stripped.startswith("| ") and (match := _PARAMETER.fullmatch(stripped)) is not None:
        name, value = match.groups()
        size = (
            int(value) if name == "Message size" and re.fullmatch(r"[0-9]{1,18}", value) else None
        )
        above = execution is None or bool(execution.rows)
        return engine.Statement(
            above=above, facts={_FACTS[name]: value} if name in _FACTS else {}, size=size
        )
    if "ucx_perftest" in text and (command := engine.read_words(text, _PROGRAM)) is not None:
        given = dict(_OPTION.findall(" ".join(command[1])))
        return engine.Statement(
            above=True,
            facts={"test": given["t"]} if "t" in given else {},
            size=int(given["s"]) if given.get("s", "").isdecimal() else None,
            end=int(given["n"]) if given.get("n", "").isdecimal() else 1_000_000,
        )
    if (
        execution is not None and (name := _NAME.fullmatch(stripped)) is not None
    ):  # -b: several tests in one table
        return engine.Statement(labels={"operation": name[1]})
    if execution is None or not stripped.startswith(("+--", "|")):
        return None
    return engine.Statement(finished=True) if _FINAL_ONLY.match(stripped) else engine.NO_MEANING


def _fits(row: engine.Row) -> bool:
    # One thread sends one message per printed time; with several threads, their rates are added up.
    numbers = [printed(cell) for cell in row.cells]
    for time, bandwidth, rate in (
        (numbers[2::2], numbers[3::2]) if len(numbers) == 8 else (numbers[1:],)
    ):
        low, high = product(time.times(1e-6), rate)
        moved = bandwidth.times(_MIB).overlaps(rate.low * row.size, rate.high * row.size)
        if not (low <= 1 <= high or high >= 2) or (row.size and not moved):
            return False
    return True


def _sized(row: engine.Row) -> engine.Row:
    """Return a row with the size that its figures show: the one in its name, or the only one."""
    bandwidth, rate = row.main("bandwidth"), row.main("message_rate")
    if row.size or bandwidth is None or rate is None or rate.low <= 0:
        return row
    low, high = bandwidth.low / rate.high, bandwidth.high / rate.low
    names = row.labels.get("operation", "").split("/")
    likely = [*map(int, filter(str.isdecimal, names)), int(high) if high - low < 1 else 0]
    size = next((size for size in likely if low <= size <= high), 0)
    name = "/".join(name for name in names if name != str(size))
    return row._replace(size=size, labels={"operation": name} if name else {})


def _settle(execution: engine.Execution) -> Sequence[engine.Row]:
    record, last = execution.record, dict[str, engine.Row]()
    for row in execution.rows:
        name = row.labels.get("operation", "")
        if name not in last or row.final or not last[name].final:
            last[name] = row
    results = [_sized(row) for row in last.values()]
    if results and execution.size is None:
        known, line = all(row.size for row in results), results[0].line.text.strip()
        meaning = (
            "ucx_perftest printed no message size: "
            f"{'the rates show it' if known else 'it is given as 0'}."
        )
        record.findings.append(note("size-unstated", meaning, line=line))
    if len(results) == 1 and not results[0].final and execution.end:
        iterations = int(results[0].cells[0])
        record.finished = iterations >= execution.end
    elif results:
        # How many tests a batch has is not known.
        whole = "" in last and (record.finished or results[0].final)
        record.finished = (
            False
            if execution.labels and execution.labels["operation"] not in last
            else whole or None
        )
    return results


TABLE = engine.Table(
    benchmark="ucx_perftest",
    case="ucx_perftest",
    statement=_statement,
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
    signatures = (
        Signature("(usec)", r"\|(?:\s+\|)?\s+\|\s+(?:overhead|latency) \(usec\)"),
        Signature("overall_mr", r"(?<!\S)\S*iterations,[\w.]+_lat,avg_lat,"),
        Signature("Final:", r"Final:\s+\d+\s+\d+\.\d", begins=False),
    )
    first_words = (
        *(
            "(usec)",
            "| API",
            "| Test",
            "| Data layout",
            "| Send memory",
            "| Recv memory",
            "| Message size",
        ),
        *("| Window size", "overall_mr", "ucx_perftest", *WORDS),
    )


BENCHMARK = UcxPerftest()
