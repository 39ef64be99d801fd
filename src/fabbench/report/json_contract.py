"""Logs as the public JSON contract (docs/formats.md): the document, an element of `logs` at a time.

A log may hold millions of samples: none is encoded as a dict. A test compares the text with that of `json`.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from fabbench.model.log import METRICS, Finding, Labels, Log
from fabbench.model.messages import printable
from fabbench.report.expectations import expectation_record, expectations_of_log

_POINTS_A_PIECE = 512
_UNITS = {name: metric.unit for name, metric in METRICS.items()}


def sample_pieces(log: Log, sample: str, text_of: Callable[[Labels], str], separator: str = "") -> Iterator[str]:
    """Write samples in pieces. `sample` is a format of size, labels (as `text_of` writes them), metric, value, unit."""
    known: dict[int, str] = {}
    for start in range(0, len(log.points), _POINTS_A_PIECE):
        texts: list[str] = []
        for size, labels, metrics, values in log.points[start : start + _POINTS_A_PIECE]:
            if (shown := known.get(id(labels))) is None:
                shown = known[id(labels)] = text_of(labels)
            texts += [
                sample % (size, shown, metric, value, _UNITS[metric])
                for metric, value in zip(metrics, values, strict=True)
            ]
        if texts:
            yield separator.join(texts)


# 1  first version
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
    case = _text(log.case).replace("%", "%%")
    sample = f'{{"case":{case},"size":%d,"labels":%s,"metric":"%s","value":%r,"unit":"%s"}}'
    for number, piece in enumerate(sample_pieces(log, sample, lambda labels: _text(dict(labels)), SEPARATOR)):
        yield (SEPARATOR if number else "\n") + piece
    yield "]}"


def finding(found: Finding) -> dict[str, Any]:
    """Return a finding as plain data."""
    return picked(found, "code", "severity", "meaning", "line", "advice")


def picked(value: object, *names: str) -> dict[str, Any]:
    """Return some attributes of a value by their names."""
    return {name: getattr(value, name) for name in names}


def to_json(document: Any) -> str:
    """Write a document that people can read, with a final newline. Terminal control codes are escaped."""
    import json

    return printable(json.dumps(document, indent=1, ensure_ascii=False)) + "\n"


def _text(value: Any) -> str:
    import json

    return json.dumps(value, allow_nan=False, separators=(",", ":"))
