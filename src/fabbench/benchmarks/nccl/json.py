"""The JSON that nccl-tests writes with ``-J`` (2.17.3 and later).

Its figures are not rounded by a table. What stands around the rows is read as the text that says
the same. The file contains the whole process environment of rank 0: none of it is kept. The file of
an aborted run can end anywhere (before 2.18.4): rows are read up to that point.
"""

import json
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, cast

from fabbench.benchmarks.events import Remains, RowLine
from fabbench.benchmarks.nccl.lines import failure, read_line
from fabbench.benchmarks.nccl.reader import TABLE, NcclExecution
from fabbench.benchmarks.nccl.rows import exact_layout, read_row
from fabbench.benchmarks.tables import Layout
from fabbench.model.log import Line, Record
from fabbench.model.messages import quoted
from fabbench.model.patterns import lazy

_MAX_DAMAGED = 2000  # characters of a damaged row that are kept
_NO = ("false", False)
_GAP = lazy(r"[ \n\t\r,]*")
_BEGIN = lazy(r"(?m)^[ \t]*\{")  # A prompt or prose may stand above
_RESULTS = lazy(r'"results"\s*:\s*\[')
_LAYOUT = exact_layout(("out-of-place", "in-place"), "time", ())
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
    results = _RESULTS.search(text)
    if begin is None or results is None or "algbw" in text:  # a table of the same run tells more
        return None
    decoder = json.JSONDecoder(parse_float=str, parse_int=str)
    try:
        above_rows = text[begin.start() : results.end()]
        head = decoder.decode(f"{above_rows}]}}")
    except (ValueError, RecursionError):
        return None
    library = "rccl" if "rccl_version" in head else "nccl"
    if f"{library}_version" not in head or not isinstance(head.get("config"), dict):
        return None
    execution = NcclExecution(TABLE, Record(benchmark="nccl"))
    _add_lines(execution, _head(head, library))
    execution.layouts = [_LAYOUT]
    execution.has_checks = False
    rest = _read_rows(execution, text, results.end(), decoder)
    footer = head | _read_footer(rest, decoder)  # jq -S sorts all keys
    _add_lines(execution, _foot(footer))
    errors = footer.get("errors")
    for error in errors if isinstance(errors, list) else [errors]:
        if error and isinstance(error, str):
            execution.add(failure(quoted(error)))
    record = execution.finish()
    del record.facts[f"{library}_tests"]  # the file does not tell it
    return record


def _add_lines(execution: NcclExecution, lines: Iterator[str]) -> None:
    for line in lines:
        parsed = read_line(line)
        if parsed is not None:
            execution.add_line(parsed)


def _read_footer(rest: str, decoder: json.JSONDecoder) -> dict[str, Any]:
    """Read what follows the rows; empty if the file ends before its last brace."""
    keys = "" if '"results"' in rest else rest.strip().removeprefix(",")
    try:
        footer, _ = decoder.raw_decode("{" + keys)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", footer)


_VERSION = "# {0}-tests version ? {0}-headers=0 {0}-library={1}"
_CONFIG = (
    "nThread 1 nGpus 1 minBytes {minimum_bytes} maxBytes {maximum_bytes} step: {step} "
    "warmup iters: {warmup_iters} iters: {iterations}"
)
_DEVICE = "Rank {rank} Group {group} Pid {pid} on {hostname} device 0 [{device_hex}]"


def _head(head: dict[str, Any], library: str) -> Iterator[str]:
    config = defaultdict(str, head["config"])
    args = head.get("args")
    if isinstance(args, list) and args:
        yield f"# Collective test starting: {args[0]}"
    yield _VERSION.format(library, head[f"{library}_version"])
    kind = "factor" if "step_factor" in config else "bytes"
    config["step"] = "{}({})".format(config[f"step_{kind}"], kind)
    yield _CONFIG.format_map(config)
    devices = config["devices"]
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict):
            yield _DEVICE.format_map(defaultdict(str, device))


def _foot(footer: dict[str, Any]) -> Iterator[str]:
    # Its key had a typo before 2.17.9.
    average = footer.get("average_bus_bandwidth", footer.get("average_bus_bandwidith"))
    bounds = footer.get("out_of_bounds")
    if isinstance(average, dict) and average and isinstance(bounds, dict):
        count = bounds.get("count")
        if count == "0" and bounds.get("okay") in _NO:
            count = "1"
        result = "OK" if count == "0" else "FAILED"
        yield f"Out of bounds values : {count} {result}"
        stated = average.get("bandwidth", average.get("bandwidith"))
        result = "FAILED" if average.get("okay") in _NO else "OK"
        yield f"Avg bus bandwidth : {stated} {result}"


def _read_rows(execution: NcclExecution, text: str, at: int, decoder: json.JSONDecoder) -> str:
    """Read the elements of `results`; return what follows them, if the list is closed."""
    while True:
        at = _end_of_gap(text, at)
        if text[at : at + 1] == "]":
            return text[at + 1 :]
        number = 1 + text.count("\n", 0, at)
        try:
            element, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return ""
        shown = Line(number, text[at:end][:_MAX_DAMAGED])
        execution.take([_row(element, shown)])
        at = end


def _end_of_gap(text: str, at: int) -> int:
    gap = _GAP.match(text, at)
    return gap.end() if gap is not None else at


def _row(element: Any, shown: Line) -> RowLine | Remains:
    """Read an element as the cells of a row."""
    try:
        cells, layout = _cells(element)
        text = " ".join(cells)
    except (AttributeError, LookupError, TypeError):
        return Remains(shown)
    row = read_row(Line(shown.number, text), [layout])
    return Remains(shown) if row is None else row._replace(line=shown)


def _cells(row: Any) -> tuple[list[str], Layout]:
    """Return the cells of a row that says the same, and their columns.

    Raise KeyError, AttributeError or TypeError where the element has another form.
    """
    sides = [name for name in ("out_of_place", "in_place") if row[name] is not None]
    is_timed = all("time" in row[name] for name in sides)
    time = "time" if is_timed else "cpu_time"
    given = row.get(f"{sides[0]}_per_iter") or {}
    statistics = [key for key in _STATISTICS if key in given]
    cells: list[str] = [row[name] for name in ("size", "count", "type", "redop")]
    cells.append(str(row["root"]).strip())
    for name in sides:
        side = row[name]
        cells += (_figure(side[each]) for each in (time, "alg_bw", "bus_bw"))
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
