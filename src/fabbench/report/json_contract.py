"""Logs as the public JSON contract (docs/formats.md): the document, an element of `logs` at a time.

A log may hold millions of samples: it is written in pieces.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import TYPE_CHECKING, Any

from fabbench.model.log import METRICS, Finding, Log
from fabbench.report.expectations import expectation_record, expectations_of_log
from fabbench.report.table import picked

if TYPE_CHECKING:
    from json import JSONEncoder

_POINTS_A_PIECE = 512

FORMAT = 1
OPENING = f'{{"format":{FORMAT},"logs":[\n'
SEPARATOR = ",\n"


def closing(errors: Iterable[tuple[str, str]]) -> str:
    """Write the end of the document. `errors` are sources and reasons."""
    records = [{"source": source, "reason": reason} for source, reason in errors]
    return f'],\n"errors":{_text(records)}}}\n'


def log_pieces(log: Log) -> Iterator[str]:
    """Write one log as an element of `logs`, in pieces."""
    head = {
        **picked(log, "source", "benchmark", "case", "outcome", "reason"),
        "facts": dict(log.facts),
        "findings": [finding(found) for found in log.findings],
        "expectations": [expectation_record(found) for found in expectations_of_log(log)],
        "damaged": [picked(row, "line", "text") for row in log.damaged],
    }
    yield _text(head)[:-1] + ',"samples":['
    for start in range(0, len(log.points), _POINTS_A_PIECE):
        samples = (
            {"case": log.case, "size": size, "labels": dict(labels), "metric": metric, "value": value, "unit": unit}
            for size, labels, metrics, values in log.points[start : start + _POINTS_A_PIECE]
            for metric, value in zip(metrics, values, strict=True)
            for unit in [METRICS[metric].unit]
        )
        yield (SEPARATOR if start else "\n") + SEPARATOR.join(map(_text, samples))
    yield "]}"


def finding(found: Finding) -> dict[str, Any]:
    """Return a finding as plain data."""
    return picked(found, "code", "severity", "meaning", "line", "advice")


def _text(value: Any) -> str:
    return _encoder().encode(value)


@cache
def _encoder() -> "JSONEncoder":
    from json import JSONEncoder

    return JSONEncoder(allow_nan=False, separators=(",", ":"))
