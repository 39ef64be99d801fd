"""The JSON that nccl-tests writes with ``-J`` (2.17.3 and later): figures not rounded by a table.

The file contains the whole process environment of rank 0: none of it is kept. The file of an aborted run can
end anywhere (before 2.18.4): rows are read up to that point.
"""

import json
import math
import re
from typing import Any

from fabbench.benchmarks.consistency import ANYTHING, Printed, printed, unmeasured
from fabbench.benchmarks.nccl.findings import PrintedSweep, conclude, place_facts
from fabbench.benchmarks.nccl.rows import DTYPE_BYTES, Layout, Row, Side
from fabbench.benchmarks.nccl.statements import case_of, nccl_version
from fabbench.benchmarks.nccl.table import Table
from fabbench.model.log import Point, Record
from fabbench.model.messages import quoted
from fabbench.model.patterns import lazy

_MAX_DAMAGED = 2000  # characters of a damaged row that are kept
_NO = ("false", False)
_NO_NUMBER = frozenset({"nan", "inf"})
_REDOP, _ROOT = lazy(r"[a-z]\w*|", re.ASCII), lazy(r"-?\d{1,6}", re.ASCII)
_GAP = lazy(r"[ \n\t\r,]*")
_RESULTS = lazy(r'"results"\s*:\s*\[')
_NUMBER = lazy(r"\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII)


def read_json(text: str) -> Record | None:
    """Read the text of a file; None if it is not nccl-tests' JSON."""
    results = _RESULTS.search(text)
    if results is None:
        return None
    decoder = json.JSONDecoder(parse_float=str, parse_int=str)
    try:
        head = decoder.decode(text[: results.end()] + "]}")
    except (ValueError, RecursionError):
        return None
    if not isinstance(head, dict) or "nccl_version" not in head or not isinstance(head.get("config"), dict):
        return None
    args = head.get("args")
    case = case_of(str(args[0])) if isinstance(args, list) and args else None
    record = Record(benchmark="nccl", case=case, facts=_facts(head), hosts=frozenset(_hosts(head)))
    ranks = record.facts.get("ranks")
    table = Table(Layout(), lambda: (case, ranks if isinstance(ranks, int) else None))
    at, closed = _read_rows(table, text, results.end(), decoder)
    table.settle()
    footer = _footer(text[at:], decoder) if closed else None
    record.points, record.damaged, record.wrong = table.points, sorted(table.damaged), table.wrong
    record.finished, record.facts["checked"] = footer is not None, "no"
    sweep = PrintedSweep(requested=_sweep(head["config"]), exact=True)
    if footer is not None:
        _judge(footer, record, sweep)
    conclude(record, sweep, [table], None)
    record.findings += unmeasured(point.size for point in record.points if not point.metrics)
    return record


def _footer(text: str, decoder: json.JSONDecoder) -> dict[str, Any] | None:
    """Read what follows the rows; None if the file ends before its last brace, or has no average."""
    try:
        footer = decoder.decode("{" + text.strip().removeprefix(","))
    except (ValueError, RecursionError):
        return None
    whole = isinstance(footer, dict) and _average(footer) and isinstance(footer.get("out_of_bounds"), dict)
    return footer if whole else None


def _average(footer: dict[str, Any]) -> dict[str, Any]:
    """Return the average; its key had a typo before 2.17.9."""
    average = footer.get("average_bus_bandwidth", footer.get("average_bus_bandwidith"))
    return average if isinstance(average, dict) else {}


def _judge(footer: dict[str, Any], record: Record, sweep: PrintedSweep) -> None:
    bounds, average = footer["out_of_bounds"], _average(footer)
    count = int(bounds["count"]) if _is_whole(bounds.get("count")) else 0
    record.wrong = count or record.wrong or int(bounds.get("okay") in _NO)
    stated = average.get("bandwidth", average.get("bandwidith"))
    sweep.average = sweep.average_line = str(stated)
    if average.get("okay") in _NO:
        record.failures.append(f"The average bus bandwidth is below NCCL_TESTS_MIN_BW: {stated} GB/s.")
    errors = footer.get("errors")
    for error in errors if isinstance(errors, list) else [errors]:
        if error and isinstance(error, str):
            record.failures.append(f"nccl-tests reported an error: {quoted(error)}")


def _sweep(config: dict[str, Any]) -> tuple[int, int, int, str] | None:
    kind = "factor" if "step_factor" in config else "bytes"
    limits = [config.get(key) for key in ("minimum_bytes", "maximum_bytes", f"step_{kind}")]
    if not all(map(_is_whole, limits)):
        return None
    low, high, step = (int(str(number)) for number in limits)
    return low, high, step, kind


def _read_rows(table: Table, text: str, at: int, decoder: json.JSONDecoder) -> tuple[int, bool]:
    """Read the elements of `results`; return where they end, and whether the list is closed.

    A row that cannot be read, or contradicts itself, is damaged.
    """
    line, counted = 1, 0
    while True:
        at = match.end() if (match := _GAP.match(text, at)) else at
        if text[at : at + 1] == "]":
            return at + 1, True
        line, counted = line + text.count("\n", counted, at), at
        try:
            element, end = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return at, False
        printed_, row = text[at:end][:_MAX_DAMAGED], _row(element)
        if row is not None:
            table.accept(line, printed_, row)
        else:
            table.damage(line, printed_)
        at = end


def _row(row: Any) -> Row | None:
    """Read an element; None if it is incomplete."""
    if not isinstance(row, dict) or not _is_whole(row.get("size")) or not _is_whole(row.get("count")):
        return None
    dtype, size = row.get("type"), int(row["size"])
    if not isinstance(dtype, str) or dtype not in DTYPE_BYTES:
        return None
    names = {"dtype": dtype, "redop": str(row.get("redop", "?")), "root": str(row.get("root", "")).strip()}
    if not _REDOP.fullmatch(names["redop"]) or not _ROOT.fullmatch(names["root"]):
        return None
    points: list[Point] = []
    sides: list[Side] = []
    wrong, checked = 0, False
    for side, placement in (("out_of_place", "out-of-place"), ("in_place", "in-place")):
        values = row.get(side, "")
        if values is None:
            continue
        figures = _figures(values)
        if figures is None:
            return None
        labels = {"placement": placement, **{name: value for name, value in names.items() if value}}
        known = {metric: figure.value for metric, figure in figures.items() if figure is not None}
        points.append(Point(size, labels, tuple(known), tuple(known.values())))
        time, algbw, busbw = (figures.get(name) or ANYTHING for name in ("time", "algbw", "busbw"))
        sides.append((time, algbw, busbw))
        statistics = _statistics(points[-1], row.get(f"{side}_per_iter"))
        if statistics is None:
            return None
        points += statistics
        wrong, checked = wrong + bool(known.get("wrong")), checked or "wrong" in known
    unit = int(row["count"]) * DTYPE_BYTES[dtype]
    return Row(size, unit, tuple(points), tuple(sides), checked, wrong) if points else None


_METRICS = (
    ("time", "time", -6),
    ("cpu_time", "cpu_time", -6),
    ("alg_bw", "algbw", 9),
    ("bus_bw", "busbw", 9),
    ("nwrong", "wrong", 0),
)


def _figures(values: Any) -> dict[str, Printed | None] | None:
    """Read the figures of one side, None for nan and inf. Return None if one is missing or damaged."""
    if not isinstance(values, dict) or not {"alg_bw", "bus_bw", "nwrong"} <= values.keys():
        return None
    if "time" not in values and "cpu_time" not in values:
        return None
    figures: dict[str, Printed | None] = {}
    for key, metric, exponent in _METRICS:
        if key in values:
            text = values[key]
            figure = figures[metric] = _scaled(text, exponent)
            if figure is None and text is not None and str(text).strip("-").lower() not in _NO_NUMBER:
                return None
    return figures


def _statistics(point: Point, values: Any) -> list[Point] | None:
    """Read the per-iteration report (-I); None if it contradicts itself."""
    if not isinstance(values, dict):
        return []
    keys = (("min_us", "min"), ("p50_us", "median"), ("p99_us", "p99"), ("max_us", "max"), ("stdev_us", "stdev"))
    known = [(stat, _scaled(values.get(key), -6)) for key, stat in keys]
    ordered = [number.value for _, number in known[:-1] if number is not None]
    if ordered != sorted(ordered):
        return None
    return [
        Point(point.size, {**point.labels, "stat": stat}, ("time",), (number.value,))
        for stat, number in known
        if number is not None
    ]


def _scaled(text: Any, exponent: int) -> Printed | None:
    """Read a number exactly, shifting its exponent; NaN and null are None. All have six decimals."""
    if not isinstance(text, str) or not _NUMBER.fullmatch(text):
        return None
    number = printed(text, exponent, decimals=6)
    return number if math.isfinite(number.high) else None


def _is_whole(text: Any) -> bool:
    return isinstance(text, str) and len(text) <= 18 and text.isascii() and text.isdigit()


def _hosts(head: dict[str, Any]) -> list[str]:
    devices = head["config"].get("devices")
    known = devices if isinstance(devices, list) else ()
    return [str(device.get("hostname")) for device in known if isinstance(device, dict)]


def _facts(head: dict[str, Any]) -> dict[str, str | int]:
    facts: dict[str, str | int] = {}
    if _is_whole(head["nccl_version"]):
        facts["nccl"] = nccl_version(head["nccl_version"])
    for key, name in (("iterations", "iterations"), ("warmup_iters", "warmup")):
        if _is_whole(head["config"].get(key)):
            facts[name] = int(head["config"][key])
    return facts | place_facts(len(_hosts(head)), _hosts(head))
