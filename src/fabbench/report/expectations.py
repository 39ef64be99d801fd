"""Expectations of logs and comparisons as lines and records. What no log names the type of costs nothing."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from fabbench.model.errors import RequestError
from fabbench.model.log import Log

if TYPE_CHECKING:
    from fabbench.analysis.compare import Comparison
    from fabbench.analysis.expectations import Expectation


def expectations_of(comparison: "Comparison") -> Sequence["Expectation"]:
    """Return what was to be expected of each configuration; nothing where no log names its type."""
    if not any(log.instance_type for column, _ in comparison.inputs for log in column.logs):
        return ()
    from fabbench.analysis.expectations import expectations

    return expectations(comparison)


def expectations_of_log(log: Log) -> Sequence["Expectation"]:
    """Return what was to be expected of one log; nothing where its type is not known, or it cannot count."""
    if not log.instance_type or not log.points:
        return ()
    from fabbench.analysis.aggregate import Column
    from fabbench.analysis.compare import compare

    try:
        return expectations_of(compare([Column(label=log.source, logs=(log,), source=log.source)]))
    except RequestError:
        return ()  # it has no row that counts, such as in-place rows alone


def expectation_lines(log: Log) -> Iterator[str]:
    """Yield a line per expectation of a log."""
    for found in expectations_of_log(log):
        where = "".join(f", {name} {value or 'unknown'}" for name, value in found.key.items())
        yield f"expectation{where}: {found.sentence()}"


def expectation_record(found: "Expectation") -> dict[str, object]:
    """Return an expectation as plain data (docs/formats.md)."""
    low, high = found.range or (None, None)
    return {
        **found.key,
        "metric": found.metric.name,
        "unit": found.metric.unit,
        "size": found.size,
        "value": found.value,
        "verdict": found.assessment.value,
        "ceiling": found.ceiling,
        "share": found.share,
        "published_min": low,
        "published_max": high,
        "published": [
            {
                "value": figure.value,
                "size": figure.size,
                "role": figure.role.value,
                "conditions": figure.conditions,
                "source": figure.source,
                "date": figure.date,
            }
            for figure in found.figures
        ],
        "causes": list(found.causes),
        "text": found.sentence(),
    }
