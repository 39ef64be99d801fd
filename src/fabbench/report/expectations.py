"""Expectations of logs and comparisons as lines and records.

Without an instance type they cost nothing.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from fabbench.model.errors import RequestError
from fabbench.model.log import Log
from fabbench.model.mappings import gathered
from fabbench.model.messages import key_words, listed
from fabbench.report.table import PlainData, picked

if TYPE_CHECKING:
    from fabbench.analysis.compare import Comparison
    from fabbench.analysis.expectations import Expectation


_GRAVEST = ("above the ceiling", "low", "suspiciously high", "normal", "unknown")
_PUBLISHED = ("system", "nodes", "value", "size", "role", "conditions", "source", "date")


def expectations_of(comparison: "Comparison") -> Sequence["Expectation"]:
    """Return an expectation for each configuration; empty if no log names its instance type."""
    logs = (log for column, _ in comparison.inputs for log in column.logs)
    if not any(log.instance_type for log in logs):
        return ()
    from fabbench.analysis.expectations import expectations

    return expectations(comparison)


def expectations_of_log(log: Log) -> Sequence["Expectation"]:
    """Return the expectations of one log.

    Empty if its instance type is unknown, or no row counts.
    """
    if not log.instance_type or not log.points:
        return ()
    from fabbench.analysis.aggregate import Column
    from fabbench.analysis.compare import compare

    column = Column(label=log.source, logs=(log,), source=log.source)
    try:
        return expectations_of(compare([column]))
    except RequestError:
        return ()  # no row counts, for example if all are in-place


def judgement(expected: Iterable["Expectation"]) -> str | None:
    """Return the gravest word about figures; None where nothing was judged."""
    words = {each.judgement for each in expected}
    return next((word for word in _GRAVEST if word in words), None)


def sentences(expected: Iterable["Expectation"]) -> Iterator[str]:
    """Yield what is to say of figures: once for configurations of which it is the same."""
    alike = gathered(
        ((of_key(each), each.judgement, each.ceiling, each.grounds), each) for each in expected
    )
    for (key, *_), (first, *others) in alike.items():
        labels = [each.column for each in (first, *others)]
        yield f"{listed(labels)}{key}: {first.sentence(others)}"


def of_key(expectation: "Expectation") -> str:
    """Return what an expectation is of, as the end of a label."""
    return "".join(f", {words}" for words in key_words(expectation.key))


def expectation_record(expectation: "Expectation") -> PlainData:
    """Return an expectation as plain data (docs/formats.md)."""
    low, high = expectation.range or (None, None)
    return {
        **picked(
            expectation,
            "size",
            "value",
            "ceiling",
            "share",
            metric="metric.name",
            unit="metric.unit",
        ),
        **picked(expectation, verdict="assessment.value"),
        "published_min": low,
        "published_max": high,
        "published": [picked(each, *_PUBLISHED) for each in expectation.figures],
        "causes": list(expectation.causes),
        "text": expectation.sentence(),
        **expectation.key,
    }
