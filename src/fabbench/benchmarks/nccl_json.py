"""The JSON that nccl-tests writes with ``-J`` (2.17.3 and later): figures that no print has rounded.

The file holds the whole process environment of rank 0: none of it is kept. A file of an aborted run ends
anywhere (before 2.18.4): rows are read until it does.
"""

import json
import math
import re
from typing import Any

from fabbench.benchmarks.nccl_text import case_of, nccl_version
from fabbench.model import Labels, Point, Record

SIGN = b'"args"'
"""Stands near the beginning of each such file."""

_RESULTS = re.compile(r'"results"\s*:\s*\[')
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII)


def read(text: str) -> Record | None:
    """Read the file's text; None if it is not nccl-tests' JSON."""
    sign = _RESULTS.search(text)
    if sign is None:
        return None
    decoder = json.JSONDecoder(parse_float=str, parse_int=str)
    try:
        head = decoder.decode(text[: sign.end()] + "]}")
    except (ValueError, RecursionError):
        return None
    if not isinstance(head, dict) or "nccl_version" not in head or not isinstance(head.get("config"), dict):
        return None
    record = Record(benchmark="nccl", case=_case(head), facts=_facts(head))
    at, finished = _rows(text, sign.end(), decoder, record)
    footer = _footer(text[at:], decoder) if finished else None
    record.finished = footer is not None
    checks = [point.values[-1] for point in record.points if point.metrics[-1] == "wrong"]
    record.facts["checked"] = "yes" if checks else "no"
    bounds = (footer or {}).get("out_of_bounds")
    failed = bounds.get("count") if isinstance(bounds, dict) and bounds.get("okay") == "false" else None
    record.wrong = int(str(failed)) if _is_whole(failed) else sum(1 for wrong in checks if wrong)
    return record


def _footer(text: str, decoder: json.JSONDecoder) -> dict[str, Any] | None:
    """Read what stands behind the rows; None if the file ends before its last brace."""
    try:
        footer = decoder.decode("{" + text.strip().removeprefix(","))
    except (ValueError, RecursionError):
        return None
    return footer if isinstance(footer, dict) else None


def _rows(text: str, at: int, decoder: json.JSONDecoder, record: Record) -> tuple[int, bool]:
    """Read the elements of `results`; give where they end, and whether the list is closed."""
    while True:
        at = _skip(text, at)
        if text[at : at + 1] == "]":
            return at + 1, True
        try:
            row, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return at, False
        record.points += _points(row)


def _skip(text: str, at: int) -> int:
    while text[at : at + 1] in {" ", "\n", "\t", "\r", ","}:
        at += 1
    return at


def _points(row: Any) -> list[Point]:
    if not isinstance(row, dict) or not _is_whole(row.get("size")):
        return []
    names = {"dtype": row.get("type"), "redop": row.get("redop"), "root": str(row.get("root", "")).strip()}
    found = []
    for side, placement in (("out_of_place", "out-of-place"), ("in_place", "in-place")):
        values = row.get(side)
        if not isinstance(values, dict):
            continue
        labels = {
            "placement": placement,
            **{name: value for name, value in names.items() if value and isinstance(value, str)},
        }
        point = _point(int(row["size"]), labels, values)
        if point is not None:
            found.append(point)
            found += _statistics(point, row.get(f"{side}_per_iter"))
    return found


_METRICS = (
    ("time", "time", -6),
    ("cpu_time", "cpu_time", -6),
    ("alg_bw", "algbw", 9),
    ("bus_bw", "busbw", 9),
    ("nwrong", "wrong", 0),
)


def _point(size: int, labels: Labels, values: dict[str, Any]) -> Point | None:
    known = [(metric, _scaled(values.get(key), exponent)) for key, metric, exponent in _METRICS]
    pairs = [(metric, value) for metric, value in known if value is not None]
    if not pairs:
        return None
    return Point(size, labels, tuple(metric for metric, _ in pairs), tuple(value for _, value in pairs))


def _statistics(point: Point, values: Any) -> list[Point]:
    """Read the per-iteration report (-I)."""
    if not isinstance(values, dict):
        return []
    keys = (
        ("min_us", "min"),
        ("max_us", "max"),
        ("p50_us", "median"),
        ("p99_us", "p99"),
        ("stdev_us", "stdev"),
    )
    known = [(stat, _scaled(values.get(key), -6)) for key, stat in keys]
    return [
        Point(point.size, {**point.labels, "stat": stat}, ("time",), (value,))
        for stat, value in known
        if value is not None
    ]


def _scaled(text: Any, exponent: int) -> float | None:
    """Read a number exactly, its exponent moved; NaN and null are None."""
    if not isinstance(text, str) or not _NUMBER.fullmatch(text):
        return None
    digits, _, own = text.lower().partition("e")
    value = float(f"{digits}e{int(own or 0) + exponent}")
    return value if math.isfinite(value) else None


def _is_whole(text: Any) -> bool:
    return isinstance(text, str) and len(text) <= 18 and text.isascii() and text.isdigit()


def _case(head: dict[str, Any]) -> str | None:
    args = head.get("args")
    return case_of(str(args[0])) if isinstance(args, list) and args else None


def _facts(head: dict[str, Any]) -> dict[str, str | int]:
    facts: dict[str, str | int] = {}
    if _is_whole(head["nccl_version"]):
        facts["nccl"] = nccl_version(head["nccl_version"])
    config = head["config"]
    for key, name in (("iterations", "iterations"), ("warmup_iters", "warmup")):
        if _is_whole(config.get(key)):
            facts[name] = int(config[key])
    devices = config.get("devices")
    if isinstance(devices, list) and devices:
        hosts = {str(device.get("hostname")) for device in devices if isinstance(device, dict)}
        facts |= {"ranks": len(devices), "hosts": len(hosts)}
        if len(devices) % len(hosts) == 0:
            facts["gpus_per_host"] = len(devices) // len(hosts)
    return facts
