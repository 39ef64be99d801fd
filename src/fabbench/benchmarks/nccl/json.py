"""The JSON that nccl-tests writes with ``-J`` (2.17.3 and later).

The figures of nccl-tests are not rounded by a table: it is read as the text that says the same. The file contains the
whole process environment of rank 0: none of it is kept. The file of an aborted run can end anywhere (before 2.18.4):
rows are read up to that point.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fabbench.benchmarks.nccl import ras
from fabbench.benchmarks.nccl.reader import NcclExecution, read_statement
from fabbench.benchmarks.nccl.table import Layout, Row, RowReader, Table
from fabbench.model.log import Record
from fabbench.model.messages import quoted
from fabbench.model.patterns import lazy

_MAX_DAMAGED = 2000  # characters of a damaged row that are kept
_NO = ("false", False)
_GAP = lazy(r"[ \n\t\r,]*")
_BEGIN = lazy(r"(?m)^[ \t]*\{")  # A prompt or prose may stand above
_RESULTS = lazy(r'"results"\s*:\s*\[')
_EXACT = Layout(check="exact", left=("redop", "root"))
_STATISTICS = {
    "min_us": "min",
    "p50_us": "median",
    "p99_us": "p99",
    "max_us": "max",
    "stdev_us": "stdev",
}


def read_document(text: str) -> Record | None:
    """Read the text of a file; None if it is neither nccl-tests' JSON nor that of NCCL's RAS."""
    if ras.SIGN in text:
        return ras.read_ras(text)
    begin, results = _BEGIN.search(text), _RESULTS.search(text)
    if begin is None or results is None or "algbw" in text:  # a table of the same run tells more
        return None
    decoder = json.JSONDecoder(parse_float=str, parse_int=str)
    try:
        head = decoder.decode(text[begin.start() : results.end()] + "]}")
    except (ValueError, RecursionError):
        return None
    library = "rccl" if "rccl_version" in head else "nccl"
    if f"{library}_version" not in head or not isinstance(head.get("config"), dict):
        return None
    execution = NcclExecution(None)
    _say(execution, _head(head, library))
    table = execution.table = Table(_EXACT, execution.context)
    table.checked = False
    rest = _read_rows(table, text, results.end(), decoder)
    try:
        footer, _ = decoder.raw_decode(
            "{" + rest.strip().removeprefix(",") * ('"results"' not in rest)
        )
    except (ValueError, RecursionError):
        footer = {}  # the file ends before its last brace
    _say(execution, _foot(footer := head | footer))  # jq -S sorts all keys
    errors = footer.get("errors")
    for error in errors if isinstance(errors, list) else [errors]:
        if error and isinstance(error, str):
            execution.fail(f"nccl-tests reported an error: {quoted(error)}")
    record = execution.finish()
    del record.facts[f"{library}_tests"]  # the file does not tell it
    return record


def _say(execution: NcclExecution, lines: Iterator[str]) -> None:
    for statement in map(read_statement, lines):
        if statement is not None:
            execution.state(statement)


def _head(head: dict[str, Any], library: str) -> Iterator[str]:
    config, args = head["config"], head.get("args")
    if isinstance(args, list) and args:
        yield f"# Collective test starting: {args[0]}"
    yield (
        f"# {library}-tests version ? {library}-headers=0 "
        f"{library}-library={head[f'{library}_version']}"
    )
    sizes = f"minBytes {config.get('minimum_bytes')} maxBytes {config.get('maximum_bytes')}"
    kind = "factor" if "step_factor" in config else "bytes"
    counts = f"warmup iters: {config.get('warmup_iters')} iters: {config.get('iterations')}"
    yield f"nThread 1 nGpus 1 {sizes} step: {config.get(f'step_{kind}')}({kind}) {counts}"
    devices = config.get("devices")
    for device in devices if isinstance(devices, list) else ():
        if isinstance(device, dict):
            where = (
                f"Pid {device.get('pid')} on {device.get('hostname')} device 0 "
                f"[{device.get('device_hex')}]"
            )
            yield f"Rank {device.get('rank')} Group {device.get('group')} {where}"


def _foot(footer: dict[str, Any]) -> Iterator[str]:
    # Its key had a typo before 2.17.9.
    average = footer.get("average_bus_bandwidth", footer.get("average_bus_bandwidith"))
    bounds = footer.get("out_of_bounds")
    if isinstance(average, dict) and average and isinstance(bounds, dict):
        count, failed = bounds.get("count"), bounds.get("okay") in _NO
        wrong = "1" if failed and count == "0" else count
        yield f"Out of bounds values : {wrong} {'OK' if wrong == '0' else 'FAILED'}"
        stated = average.get("bandwidth", average.get("bandwidith"))
        yield f"Avg bus bandwidth : {stated} {'FAILED' if average.get('okay') in _NO else 'OK'}"


def _read_rows(table: Table, text: str, at: int, decoder: json.JSONDecoder) -> str:
    """Read the elements of `results`; return what follows them, if the list is closed."""
    readers: dict[Layout, RowReader] = {}
    while (match := _GAP.match(text, at)) is not None and text[(at := match.end()) : at + 1] != "]":
        line = 1 + text.count("\n", 0, at)
        try:
            element, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return ""
        shown = text[at:end][:_MAX_DAMAGED]
        if (row := _row(element, readers)) is not None:
            table.accept(line, shown, row)
        else:
            table.damage(line, shown)
        at = end
    return text[at + 1 :]


def _row(row: Any, readers: dict[Layout, RowReader]) -> Row | None:
    """Read an element as the cells of a row; None if it is incomplete or contradicts itself."""
    try:
        sides = {name: row[name] for name in ("out_of_place", "in_place") if row[name] is not None}
        time = "time" if all("time" in side for side in sides.values()) else "cpu_time"
        given = next((row.get(f"{name}_per_iter") for name in sides), None) or {}
        statistics = [key for key in _STATISTICS if key in given]
        cells = [row["size"], row["count"], row["type"], row["redop"], str(row["root"]).strip()]
        for name, side in sides.items():
            cells += (side[time], side["alg_bw"], side["bus_bw"], side["nwrong"])
            cells += (row[f"{name}_per_iter"][key] for key in statistics)
        placement, names = (
            next(iter(sides)).replace("_", "-"),
            tuple(_STATISTICS[key] for key in statistics),
        )
        layout = replace(
            _EXACT,
            sides=len(sides),
            placement=placement,
            time=time,
            columns=(*_EXACT.columns, *names),
        )
        reader = readers.setdefault(layout, RowReader(layout))
        return reader.read(
            ["nan" if cell is None else cell.lower() for cell in cells if cell != ""]
        )
    except (AttributeError, KeyError, TypeError, StopIteration):
        return None
