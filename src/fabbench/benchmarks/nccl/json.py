"""The JSON that nccl-tests writes with ``-J`` (2.17.3 and later).

Its figures are not rounded by a table. What stands around the rows is read as the text that says
the same. The file contains the whole process environment of rank 0: none of it is kept. The file of
an aborted run can end anywhere (before 2.18.4): it is not read, as the table of the run has more.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from fabbench.benchmarks.events import Remains, RowLine
from fabbench.benchmarks.executions import whole_row
from fabbench.benchmarks.nccl.lines import failure, read_line
from fabbench.benchmarks.nccl.reader import TABLE, NcclExecution
from fabbench.benchmarks.nccl.rows import exact_layout
from fabbench.benchmarks.tables import Layout
from fabbench.model.log import Line, Record
from fabbench.model.messages import quoted
from fabbench.model.patterns import lazy

_MAX_DAMAGED = 2000  # characters of a damaged row that are kept
_NO = ("false", False)
_BEGIN = lazy(r"(?m)^[ \t]*\{")  # A prompt or prose may stand above
_CUT = (
    "The JSON is not whole, and is not read: the run was aborted, or the file is a part. Its text "
    "output has the rows."
)
_LAYOUT = exact_layout(("out-of-place", "in-place"), "time", statistics=())
_STATISTICS = {
    "min_us": "min",
    "p50_us": "median",
    "p99_us": "p99",
    "max_us": "max",
    "stdev_us": "stdev",
}


def read_document(text: str) -> Record | None:
    """Read the text of a file; None if it is not nccl-tests' JSON."""
    begin = _BEGIN.search(text)
    is_result = '_version"' in text and '"results"' in text
    if begin is None or not is_result or "algbw" in text:  # a table of the same run tells more
        return None
    decoder = json.JSONDecoder(parse_float=str, parse_int=str)  # numbers as they are printed
    try:
        document, _ = decoder.raw_decode(text, begin.end() - 1)  # from its brace on
    except (ValueError, RecursionError):
        return Record(benchmark="nccl", incomplete=_CUT)
    library = "rccl" if "rccl_version" in document else "nccl"
    is_known = f"{library}_version" in document and isinstance(document.get("config"), dict)
    return _record(document, library) if is_known else None


def _record(document: dict[str, Any], library: str) -> Record:
    """Return the record of a document: the lines and rows that say the same, read as text."""
    execution = NcclExecution(TABLE, Record(benchmark="nccl"))
    _read_lines_into(execution, _head_lines(document, library))
    execution.layouts = [_LAYOUT]
    execution.has_checks = False  # unless a row has one
    results = enumerate(_as_list(document.get("results")), 1)
    execution.add_rows([_row(number, element) for number, element in results])
    _read_lines_into(execution, _foot_lines(document))
    for error in _as_list(document.get("errors")):
        if error and isinstance(error, str):
            execution.add(failure(quoted(error)))
    record = execution.finish()
    del record.facts[f"{library}_tests"]  # the file does not tell it
    return record


def _as_list(value: Any) -> list[Any]:
    """Return a list as it is, and any other value (of a damaged file) as a list of one."""
    return value if isinstance(value, list) else [value]


def _read_lines_into(execution: NcclExecution, lines: Iterator[str]) -> None:
    for line in lines:
        parsed = read_line(line)
        if parsed is not None:
            execution.add_line(parsed)


_VERSION = "# {0}-tests version ? {0}-headers=0 {0}-library={1}"
_CONFIG = (
    "nThread 1 nGpus 1 minBytes {minimum_bytes} maxBytes {maximum_bytes} step: {step} "
    "warmup iters: {warmup_iters} iters: {iterations}"
)
_DEVICE = "Rank {rank} Group {group} Pid {pid} on {hostname} device 0 [{device_hex}]"


def _head_lines(head: dict[str, Any], library: str) -> Iterator[str]:
    """Yield the lines above a table that say the same; a value that is missing is left blank."""
    config = defaultdict(str, head["config"])
    program, *_ = _as_list(head.get("args")) or ("",)
    if program:
        yield f"# Collective test starting: {program}"
    yield _VERSION.format(library, head[f"{library}_version"])
    kind = "factor" if "step_factor" in config else "bytes"
    config["step"] = "{}({})".format(config[f"step_{kind}"], kind)
    yield _CONFIG.format_map(config)
    for device in _as_list(config["devices"]):
        if isinstance(device, dict):
            yield _DEVICE.format_map(defaultdict(str, device))


def _foot_lines(footer: dict[str, Any]) -> Iterator[str]:
    """Yield both closing lines of a table; none if the document lacks either."""
    # Its key had a typo before 2.17.9.
    average = footer.get("average_bus_bandwidth", footer.get("average_bus_bandwidith"))
    bounds = footer.get("out_of_bounds")
    if isinstance(average, dict) and average and isinstance(bounds, dict):
        count = bounds.get("count")
        if count == "0" and bounds.get("okay") in _NO:
            count = "1"  # a failure without a count is one at least
        result = "OK" if count == "0" else "FAILED"
        yield f"Out of bounds values : {count} {result}"
        stated = average.get("bandwidth", average.get("bandwidith"))
        result = "FAILED" if average.get("okay") in _NO else "OK"
        yield f"Avg bus bandwidth : {stated} {result}"


def _row(number: int, element: Any) -> RowLine | Remains:
    """Read an element of the results as a row of a table. `number`: its position, from 1."""
    shown = Line(number, json.dumps(element)[:_MAX_DAMAGED])
    try:
        cells, layout = _cells(element)
        text = " ".join(cells)
    except (AttributeError, LookupError, TypeError):
        return Remains(shown)
    row = whole_row(Line(number, text), [layout])
    return Remains(shown) if row is None else row._replace(line=shown)


def _cells(row: Any) -> tuple[list[str], Layout]:
    """Return the cells that the row of a table with the same figures has, and their columns.

    Raise KeyError, AttributeError or TypeError where the element has another form.
    """
    sides = [name for name in ("out_of_place", "in_place") if row[name] is not None]  # measured
    is_timed = all("time" in row[name] for name in sides)
    time = "time" if is_timed else "cpu_time"
    statistics_of_first = row.get(f"{sides[0]}_per_iter") or {}
    statistics = [key for key in _STATISTICS if key in statistics_of_first]
    cells: list[str] = [row[name] for name in ("size", "count", "type", "redop")]
    cells.append(str(row["root"]).strip())
    for name in sides:
        side = row[name]
        cells += (_figure(side[key]) for key in (time, "alg_bw", "bus_bw"))
        cells.append(side["nwrong"] or "N/A")
        each_iteration = row.get(f"{name}_per_iter")
        cells += (_figure(each_iteration[key]) for key in statistics)
    placements = tuple(name.replace("_", "-") for name in sides)
    stats = tuple(_STATISTICS[key] for key in statistics)
    return cells, exact_layout(placements, time, stats)


def _figure(printed: str | None) -> str:
    """Return a figure as tables print it: with decimals, and `nan` for none."""
    if printed is None:
        return "nan"
    return f"{printed}.0" if printed.isdecimal() else printed.lower()
