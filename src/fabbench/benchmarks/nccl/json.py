"""The JSON that nccl-tests writes with ``-J`` (2.17.3 and later): figures not rounded by a table.

The file contains the whole process environment of rank 0: none of it is kept. The file of an aborted run can
end anywhere (before 2.18.4): rows are read up to that point.
"""

import json
import math
import re
from collections.abc import Iterator
from typing import Any

from fabbench.benchmarks.consistency import ANYTHING, Printed, printed, unmeasured
from fabbench.benchmarks.nccl.findings import PrintedSweep, conclude, place_facts
from fabbench.benchmarks.nccl.rows import DTYPE_BYTES, Layout, Row, Side
from fabbench.benchmarks.nccl.statements import case_of, nccl_version
from fabbench.benchmarks.nccl.table import Table
from fabbench.model.log import Labels, Point, Record
from fabbench.model.messages import quoted
from fabbench.model.patterns import lazy

_MAX_DAMAGED = 2000  # characters of a damaged row that are kept
_NO = ("false", False)
_REDOP, _ROOT = lazy(r"[a-z]\w*|", re.ASCII), lazy(r"-?\d{1,6}", re.ASCII)
_GAP = lazy(r"[ \n\t\r,]*")
_RESULTS = lazy(r'"results"\s*:\s*\[')
_NUMBER = lazy(r"\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE = lazy(r"\d{1,18}", re.ASCII)
_METRICS = {
    "time": ("time", -6), "cpu_time": ("cpu_time", -6),
    "alg_bw": ("algbw", 9), "bus_bw": ("busbw", 9), "nwrong": ("wrong", 0),
}  # fmt: skip
_STATISTICS = {"min_us": "min", "p50_us": "median", "p99_us": "p99", "max_us": "max", "stdev_us": "stdev"}


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
    # The key had a typo before 2.17.9.
    average = footer.get("average_bus_bandwidth", footer.get("average_bus_bandwidith"))
    whole = isinstance(average, dict) and average and isinstance(footer.get("out_of_bounds"), dict)
    return {**footer, "average": average} if whole else None


def _judge(footer: dict[str, Any], record: Record, sweep: PrintedSweep) -> None:
    bounds, average = footer["out_of_bounds"], footer["average"]
    record.wrong = (_whole(bounds.get("count")) or 0) or record.wrong or int(bounds.get("okay") in _NO)
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
    low, high, step = (_whole(config.get(key)) for key in ("minimum_bytes", "maximum_bytes", f"step_{kind}"))
    return None if low is None or high is None or step is None else (low, high, step, kind)


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
        shown = text[at:end][:_MAX_DAMAGED]
        try:
            table.accept(line, shown, _row(element))
        except (KeyError, TypeError, ValueError):
            table.damage(line, shown)
        at = end


def _row(row: Any) -> Row:
    """Read an element. Raise KeyError, TypeError or ValueError if it is incomplete or contradicts itself."""
    size, count = _whole(row["size"]), _whole(row["count"])
    names = {"dtype": row["type"], "redop": row["redop"], "root": str(row["root"]).strip()}
    if size is None or count is None or not (_REDOP.fullmatch(names["redop"]) and _ROOT.fullmatch(names["root"])):
        raise ValueError
    points: list[Point] = []
    sides: list[Side] = []
    for side, placement in (("out_of_place", "out-of-place"), ("in_place", "in-place")):
        if (values := row[side]) is None:
            continue
        figures = {name: _figure(values[key], power) for key, (name, power) in _METRICS.items() if key in values}
        if not {"algbw", "busbw", "wrong"} <= figures.keys() or not {"time", "cpu_time"} & figures.keys():
            raise ValueError
        labels = {"placement": placement, **{name: value for name, value in names.items() if value}}
        points += _points(size, labels, figures, row.get(f"{side}_per_iter"))
        sides.append((figures.get("time", ANYTHING), figures["algbw"], figures["busbw"]))
    checks = [point.values[-1] for point in points if point.metrics[-1:] == ("wrong",)]
    if not points:
        raise ValueError
    return Row(
        size, count * DTYPE_BYTES[names["dtype"]], tuple(points), tuple(sides), bool(checks), sum(map(bool, checks))
    )


def _points(size: int, labels: Labels, figures: dict[str, Printed], statistics: Any) -> Iterator[Point]:
    """Yield the points of one side; statistics are those of -I."""
    known = {name: figure.value for name, figure in figures.items() if figure.high < math.inf}
    yield Point(size, labels, tuple(known), tuple(known.values()))
    given = statistics if isinstance(statistics, dict) else {}
    read = {stat: _figure(given[key], -6) for key, stat in _STATISTICS.items() if key in given}
    known = {stat: figure.value for stat, figure in read.items() if figure.high < math.inf}
    rising = [value for stat, value in known.items() if stat != "stdev"]
    if rising != sorted(rising):
        raise ValueError
    for stat, value in known.items():
        yield Point(size, {**labels, "stat": stat}, ("time",), (value,))


def _figure(given: Any, exponent: int) -> Printed:
    """Read a number, which has six decimals; null, nan and inf are ANYTHING. Raise ValueError for anything else."""
    if given is None or str(given).strip("-").lower() in {"nan", "inf"}:
        return ANYTHING
    if isinstance(given, str) and _NUMBER.fullmatch(given):
        number = printed(given, exponent, decimals=6)
        if math.isfinite(number.high):
            return number
    raise ValueError


def _whole(given: Any) -> int | None:
    return int(given) if isinstance(given, str) and _WHOLE.fullmatch(given) else None


def _hosts(head: dict[str, Any]) -> list[str]:
    devices = head["config"].get("devices")
    known = devices if isinstance(devices, list) else ()
    return [str(device.get("hostname")) for device in known if isinstance(device, dict)]


def _facts(head: dict[str, Any]) -> dict[str, str | int]:
    facts: dict[str, str | int] = {}
    if _whole(head["nccl_version"]) is not None:
        facts["nccl"] = nccl_version(head["nccl_version"])
    for key, name in (("iterations", "iterations"), ("warmup_iters", "warmup")):
        if (number := _whole(head["config"].get(key))) is not None:
            facts[name] = number
    return facts | place_facts(len(_hosts(head)), _hosts(head))
