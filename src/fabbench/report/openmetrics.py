"""A comparison as OpenMetrics text, for a file that node_exporter's textfile collector reads.

All families are gauges in base units: that collector refuses the types that only OpenMetrics has. No label is
specific to one run (no id, no file name), so that series continue.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from fabbench.analysis.aggregate import FIELDS
from fabbench.analysis.compare import Comparison
from fabbench.analysis.gate_results import GateState, Verdict
from fabbench.model.errors import Exit, worst
from fabbench.model.log import Outcome
from fabbench.model.messages import one_line
from fabbench.report.comparison_tables import comparison_rows

_UNITS = {"B/s": "bytes_per_second", "s": "seconds"}
_STATES = {GateState.PASSED: 1.0, GateState.FAILED: 0.0, GateState.UNTRUSTED: math.nan}

Labels: TypeAlias = Mapping[str, object]
Samples: TypeAlias = Iterable[tuple[Labels, float]]


def to_openmetrics(comparison: Comparison, verdict: Verdict | None = None) -> str:
    """Write a comparison; without `verdict` there are no gates. Ends with ``# EOF`` and a newline."""
    records = comparison_rows(comparison)
    lines: list[str] = []
    for metric in comparison.metrics:
        rows = [record for record in records if record["metric"] == metric.name]
        values = ((_labels(each), each["value"]) for each in rows)
        unit = _UNITS.get(metric.unit, "")
        name = "_".join(filter(None, ("fabbench", metric.name, unit)))
        lines += _family(name, unit, f"{metric.name}, median of repeats.", _known(values))
    for name, help_text in (
        ("ratio", "How many times better than the baseline."),
        ("ratio_low", "Lower bound of the interval of the ratio."),
        ("ratio_high", "Upper bound of the interval of the ratio."),
    ):
        baseline = {"baseline": comparison.base.label}
        ratios = (({**_labels(each), "metric": each["metric"], **baseline}, each[name]) for each in records)
        lines += _family(f"fabbench_{name}", "", help_text, _known(ratios))
    states = (({"configuration": each.label, "outcome": each.outcome.value}, 1.0) for each in comparison.columns)
    lines += _family("fabbench_outcome", "", "The outcome of a configuration, as a label.", states)
    labels = [{"configuration": column.label} for column in comparison.columns]
    outcomes = [float(column.outcome is Outcome.OK) for column in comparison.columns]
    executions = [float(column.executions) for column in comparison.columns]
    for name, help_text, numbers in (
        ("ok", "1 if the outcome of a configuration is ok, else 0.", outcomes),
        ("executions", "Executions of a configuration.", executions),
    ):
        lines += _family(f"fabbench_{name}", "", help_text, zip(labels, numbers, strict=True))
    if verdict is not None:
        gates = (({"gate": result.gate}, _STATES[result.state]) for result in verdict.results)
        lines += _family("fabbench_gate", "", "1: passed, 0: failed, NaN: not trusted.", gates)
    status = worst(comparison.status, verdict.status if verdict else Exit.FINE)
    lines += _family("fabbench_exit_status", "", "The exit status of the command.", [({}, float(status))])
    return "".join(f"{line}\n" for line in (*lines, "# EOF"))


def _labels(record: Mapping[str, object]) -> dict[str, object]:
    names = [name for name in (*FIELDS, "placement", "transport") if record[name] not in {None, ""}]
    return {"configuration": record["column"], "size": record["size"], **{name: record[name] for name in names}}


def _known(samples: Iterable[tuple[Labels, object]]) -> Samples:
    return ((labels, value) for labels, value in samples if isinstance(value, float))


def _family(name: str, unit: str, help_text: str, samples: Samples) -> Iterator[str]:
    lines = []
    for labels, value in samples:
        pairs = ",".join(f'{label}="{_escaped(str(text))}"' for label, text in labels.items())
        lines.append(f"{name}{f'{{{pairs}}}' if labels else ''} {_number(value)}")
    if lines:
        yield f"# HELP {name} {_escaped(help_text)}"
        yield f"# TYPE {name} gauge"
        yield from ([f"# UNIT {name} {unit}"] if unit else [])
        yield from lines


def _escaped(text: str) -> str:
    return re.sub(r'(["\\])', r"\\\1", one_line(text))


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return f"{'+' if value > 0 else '-'}Inf" if math.isinf(value) else repr(value)
