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
from fabbench.report.templates import rendered

_UNITS = {"B/s": "bytes_per_second", "s": "seconds"}
_STATES = {GateState.PASSED: 1.0, GateState.FAILED: 0.0, GateState.UNTRUSTED: math.nan}

Samples: TypeAlias = Iterable[tuple[Mapping[str, object], object]]


def to_openmetrics(comparison: Comparison, verdict: Verdict | None = None) -> str:
    """Write a comparison; without `verdict` there are no gates. Ends with ``# EOF`` and a newline."""
    return str(rendered("openmetrics.txt", families=_families(comparison, verdict), number=_number, escaped=_escaped))


def _families(comparison: Comparison, verdict: Verdict | None) -> Iterator[tuple[str, str, str, Samples]]:
    """Yield name, unit, help, and labels with values; None: not known."""
    records = comparison_rows(comparison)
    for metric in comparison.metrics:
        unit = _UNITS.get(metric.unit, "")
        values = [(_labels(each), each["value"]) for each in records if each["metric"] == metric.name]
        yield "_".join(filter(None, (metric.name, unit))), unit, f"{metric.name}, median of repeats.", values
    for name, words in (
        ("ratio", "How many times better than the baseline."),
        ("ratio_low", "Lower bound of the interval of the ratio."),
        ("ratio_high", "Upper bound of the interval of the ratio."),
    ):
        more = {"baseline": comparison.base.label}
        yield name, "", words, [({**_labels(each), "metric": each["metric"], **more}, each[name]) for each in records]
    labeled = [({"configuration": column.label}, column) for column in comparison.columns]
    outcomes = [({**label, "outcome": column.outcome.value}, 1) for label, column in labeled]
    yield "outcome", "", "The outcome of a configuration, as a label.", outcomes
    fine = [(label, column.outcome is Outcome.OK) for label, column in labeled]
    yield "ok", "", "1 if the outcome of a configuration is ok, else 0.", fine
    counts = [(label, column.executions) for label, column in labeled]
    yield "executions", "", "Executions of a configuration.", counts
    gates = [({"gate": result.gate}, _STATES[result.state]) for result in verdict.results] if verdict else []
    yield "gate", "", "1: passed, 0: failed, NaN: not trusted.", gates
    status = worst(comparison.status, verdict.status if verdict else Exit.FINE)
    yield "exit_status", "", "The exit status of the command.", [({}, status)]


def _labels(record: Mapping[str, object]) -> dict[str, object]:
    names = [name for name in (*FIELDS, "placement", "transport") if record[name] not in {None, ""}]
    return {"configuration": record["column"], "size": record["size"], **{name: record[name] for name in names}}


def _escaped(text: object) -> str:
    return re.sub(r'(["\\])', r"\\\1", one_line(str(text)))


def _number(value: float) -> str:
    return repr(float(value)).replace("inf", "+Inf").replace("-+", "-").replace("nan", "NaN")
