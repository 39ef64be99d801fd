"""Logs as the public JSON contract (docs/formats.md): the document, an element of `logs` at a time.

A log may hold millions of samples: none is encoded as a dict, and the text around the values is built once
for each size, labels and metrics. A test compares the text with that of `json`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from fabbench.model.compat import override
from fabbench.model.log import METRICS, Finding, Labels, Log, Point
from fabbench.model.messages import printable
from fabbench.report.expectations import expectation_record, expectations_of_log

HEAD = "\udfff"  # in no text that was decoded
ROWS_A_PIECE = 512  # points per written piece
_MAX_TEXTS = 1 << 17


class _Texts(dict[float, str]):
    """Value → its text, exact. Printed figures have few digits, so they repeat."""

    def __missing__(self, value: float) -> str:
        if len(self) >= _MAX_TEXTS:
            self.clear()
        text = self[value] = repr(value)
        return text


class SampleText(ABC):
    """Writes points as samples. Points that share size, labels and metrics share the text between values."""

    between = ""  # The text between the samples of two points

    def __init__(self) -> None:
        self.head = ""
        """The text of the log that all its samples have, in place of `HEAD`."""
        self._texts = _Texts()
        self._known: dict[int, tuple[Labels, tuple[str, ...], dict[int, tuple[str, ...]]]] = {}

    @abstractmethod
    def pieces(self, size: int, labels: Labels, metrics: tuple[str, ...]) -> tuple[str, ...]:
        """Return the text before the first value, between the values, and after the last."""

    def write(self, points: Iterable[Point]) -> str:
        """Write the samples of points."""
        out: list[str] = []
        known, texts = self._known, self._texts
        for size, labels, metrics, values in points:
            if not metrics:
                continue  # a row without any printed figure
            kind = known.get(id(labels))
            if kind is None or kind[1] != metrics:
                # The labels are kept with the text: an id is only unique as long as its object lives.
                kind = known[id(labels)] = (labels, metrics, {})
            pieces = kind[2].get(size)
            if pieces is None:
                pieces = kind[2][size] = self.pieces(size, labels, metrics)
            if len(values) == 4:  # nccl-tests' rows, at twice the speed of the general case
                one, two, three, four, end = pieces
                time, algbw, busbw, wrong = values
                text = f"{one}{texts[time]}{two}{texts[algbw]}{three}{texts[busbw]}{four}{texts[wrong]}{end}"
            else:
                filled = (piece + texts[value] for piece, value in zip(pieces, values, strict=False))
                text = "".join(filled) + pieces[-1]
            out.append(text)
        if sum(len(sizes) for _, _, sizes in known.values()) > _MAX_TEXTS:
            self._known = {}
        return self.between.join(out).replace(HEAD, self.head)


# 1  first version
FORMAT = 1


class _Samples(SampleText):
    between = ",\n"

    @override
    def pieces(self, size: int, labels: Labels, metrics: tuple[str, ...]) -> tuple[str, ...]:
        shared = f'"case":{HEAD},"size":{size},"labels":{_text(dict(labels))}'
        pieces, end = [], ""
        for metric in metrics:
            pieces.append(f'{end}{{{shared},"metric":"{metric}","value":')
            end = f',"unit":"{METRICS[metric].unit}"}},\n'
        return (*pieces, end.removesuffix(",\n"))


class Elements:
    """Writes logs as elements of `logs`, one after another."""

    def __init__(self) -> None:
        self._samples = _Samples()

    def write(self, log: Log) -> Iterator[str]:
        """Write one log, in pieces."""
        return _log(log, self._samples)


OPENING = f'{{"format":{FORMAT},"logs":[\n'
SEPARATOR = ",\n"


def closing(errors: Iterable[tuple[str, str]]) -> str:
    """Write the end of the document. `errors` are sources and reasons."""
    records = [{"source": source, "reason": reason} for source, reason in errors]
    return f'],\n"errors":{_text(records)}}}\n'


def _log(log: Log, samples: _Samples) -> Iterator[str]:
    head = {
        **picked(log, "source", "benchmark", "case", "outcome", "reason"),
        "facts": dict(log.facts),
        "findings": [finding(found) for found in log.findings],
        "expectations": [expectation_record(found) for found in expectations_of_log(log)],
        "damaged": [picked(row, "line", "text") for row in log.damaged],
    }
    yield _text(head)[:-1] + ',"samples":['
    samples.head = _text(log.case)
    separator = "\n"
    for start in range(0, len(log.points), ROWS_A_PIECE):
        piece = samples.write(log.points[start : start + ROWS_A_PIECE])
        if piece:
            yield separator
            yield piece
            separator = ",\n"
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
