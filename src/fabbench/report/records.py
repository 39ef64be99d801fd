"""A comparison as plain data, for JSON and CSV: base units, not rounded, one record per size and column."""

from collections.abc import Iterable, Mapping

from fabbench.compare import Comparison, Row, Section, Summary
from fabbench.errors import Exit, worst
from fabbench.gate import Verdict
from fabbench.notes import VERSIONS, notes
from fabbench.pool import FIELDS
from fabbench.report.contract import finding
from fabbench.standout import stands_out

FORMAT = 1
"""Changes when a name or a unit in the output changes."""

MEASURED = ("size", "column", "metric", "unit", "value", "n", "min", "max", "ratio", "outcome")
HEADER = (*MEASURED, *FIELDS, "placement", "transport", "versions", "source")
"""Columns of the CSV, and keys of one element of `rows` in the JSON."""

_COUNTS = frozenset({"ranks", "hosts", "gpus_per_host"})


def document(comparison: Comparison, verdict: Verdict | None = None) -> Mapping[str, object]:
    """Give everything that `fabbench compare --format json` says."""
    several = len(comparison.metrics) > 1
    metric = comparison.metrics[0]
    return {
        "format": FORMAT,
        # Sections of several metrics have no common one: `rows` and `stands_out` say each its own.
        "metric": None if several else metric.name,
        "unit": None if several else metric.unit,
        "lower_is_better": None if several else metric.lower_is_better,
        "placement": comparison.placement or None,
        "base": comparison.base.label,
        "columns": [_column(column) for column in comparison.columns],
        "rows": rows(comparison),
        "stands_out": [
            {
                "column": remark.label,
                "base": remark.base,
                **comparison.sections[remark.section].key,
                "metric": comparison.sections[remark.section].metric.name,
                "from": remark.low,
                "to": remark.high,
                "trend": remark.trend.value,
                "ratio_min": remark.worst,
                "ratio_max": remark.best,
                "text": remark.text,
            }
            for remark in stands_out(comparison)
        ],
        "notes": [*notes(comparison), *(verdict.notes if verdict else ())],
        "breaches": None if verdict is None else list(verdict.breaches),
        "status": int(worst(comparison.status, verdict.status if verdict else Exit.FINE)),
    }


def rows(comparison: Comparison) -> list[dict[str, object]]:
    """Give one record for each size and column, with what the figure travels with. Keys are `HEADER`."""
    return [
        _record(comparison, section, row, index)
        for section in comparison.sections
        for row in section.rows
        for index in range(len(comparison.columns))
    ]


def _record(comparison: Comparison, section: Section, row: Row, index: int) -> dict[str, object]:
    column, figure = comparison.columns[index], row.figures[index]
    return {
        "size": row.size,
        "column": column.label,
        "metric": section.metric.name,
        "unit": section.metric.unit,
        "value": figure.value if figure else None,
        "n": figure.n if figure else 0,
        "min": figure.low if figure else None,
        "max": figure.high if figure else None,
        "ratio": row.ratios[index],
        "outcome": section.outcomes[index].value,
        **{name: _value(name, section.key.get(name) or "/".join(column.fields[name])) for name in FIELDS},
        "placement": comparison.placement or None,
        "transport": _joined(column.facts.get("transport", ())) or None,
        "versions": _versions(column) or None,
        "source": column.source,
    }


def _value(name: str, text: str) -> str | int | None:
    return int(text) if name in _COUNTS and text.isdigit() else text or None


def _joined(values: Iterable[str | int]) -> str:
    return "/".join(map(str, values))


def _versions(column: Summary) -> str:
    return ", ".join(f"{name} {_joined(column.facts[name])}" for name in VERSIONS if name in column.facts)


def _column(column: Summary) -> Mapping[str, object]:
    return {
        "label": column.label,
        "label_given": column.label_given,
        "variant": str(column.variant) if column.variant.name else None,
        "source": column.source,
        "outcome": column.outcome.value,
        "reasons": list(column.reasons),
        "executions": column.executions,
        "findings": [finding(found) for found in column.findings],
        "facts": {
            name: values[0] if len(values) == 1 else list(values) for name, values in column.facts.items()
        },
    }
