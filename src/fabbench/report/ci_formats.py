"""A comparison for build systems and monitoring.

JUnit XML, a comment on a pull request, OpenMetrics.
"""

import math
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import accumulate
from pathlib import PurePath
from typing import NamedTuple

from fabbench.analysis.aggregate import FIELDS
from fabbench.analysis.compare import Comparison
from fabbench.analysis.gate_results import GateResult, GateState, Verdict
from fabbench.analysis.headline import headline
from fabbench.model.errors import Exit, worst
from fabbench.model.log import Outcome
from fabbench.model.messages import counted, one_line
from fabbench.report.comparison_tables import (
    GATES,
    comparison_rows,
    gates_table,
    tables_of_comparison,
)
from fabbench.report.table import Table, cell, escaped, to_markdown
from fabbench.report.templates import rendered

# ---------------------------------------------------------------- JUnit


class Case(NamedTuple):
    """A test case.

    Unless it passed, `tag` is the element that says why; `output` is what else is known.

    A result that cannot be trusted is an `error` and no `failure`: it is not bad, it is missing.
    Only elements that Jenkins and GitLab read are used.
    """

    name: str
    tag: str = ""
    type: str = ""
    reasons: Sequence[str] = ()
    output: Sequence[str] = ()


def to_junit(comparison: Comparison, verdict: Verdict | None = None) -> str:
    """Write a test case per configuration and per gate."""
    configurations = [_configuration(comparison, index) for index in range(len(comparison.columns))]
    gates = {"gates": list(map(_gate, verdict.results))} if verdict is not None else {}
    return document_of({"configurations": configurations, **gates}, name="fabbench")


def document_of(suites: Mapping[str, Sequence[Case]], *, name: str) -> str:
    """Write a document of suites. Ends with a newline."""
    cases = [case for some in suites.values() for case in some]
    return str(rendered("junit.xml", name=name, suites=suites, cases=cases))


def untrusted(comparison: Comparison, index: int) -> bool:
    """Return whether a column makes the comparison untrusted (exit status 4)."""
    return comparison.columns[index].hidden > 0 or any(
        section.partial[index] for section in comparison.sections
    )


def _configuration(comparison: Comparison, index: int) -> Case:
    column = comparison.columns[index]
    tag = (
        "skipped"
        if column.outcome is Outcome.SKIPPED
        else "error"
        if untrusted(comparison, index)
        else ""
    )
    facts = [f"{name}: {', '.join(map(str, values))}" for name, values in column.facts.items()]
    found = [f"{each.severity}: {each.meaning} {each.advice}".rstrip() for each in column.findings]
    reasons = column.reasons or [f"{column.outcome}: no reason given"]
    return Case(
        column.label,
        tag,
        column.outcome.value,
        reasons,
        [f"Outcome: {column.outcome}", *facts, *found],
    )


def _gate(result: GateResult) -> Case:
    tag, kind, reasons = {
        GateState.PASSED: ("", "", ()),
        GateState.FAILED: ("failure", "gate", result.breaches),
        GateState.UNTRUSTED: (
            "error",
            "untrusted",
            ["What it compares cannot be trusted.", *result.notes],
        ),
    }[result.state]
    return Case(result.gate, tag, kind, reasons, result.notes)


# ---------------------------------------------------------------- comments, in Markdown of GitHub
# and GitLab

LONGEST = 60_000  # Maximum characters of a comment: GitHub allows 65,536
_MARKS = {GateState.PASSED: "✅", GateState.FAILED: "❌", GateState.UNTRUSTED: "⚠️"}


def to_comment(comparison: Comparison, verdict: Verdict | None = None) -> str:
    """Write a comparison, of which headline and gates are visible.

    Strangers may read a comment: directories of the machine that wrote it are removed from the
    names of inputs.
    """
    lines = [
        line for index in range(len(comparison.sections)) if (line := headline(comparison, index))
    ]
    title = "fabbench" if len(lines) > 1 else f"fabbench: {next(iter(lines), 'no figures to show')}"
    seen = [Table(title=title, header=(), rows=(), notes=lines[len(lines) == 1 :])]
    seen += [gates_table(verdict, _MARKS)] if verdict is not None and verdict.results else []
    others = [each for each in tables_of_comparison(comparison, verdict) if each.title != GATES]
    parts = [*map(to_markdown, seen), *(to_markdown(replace(each, headline="")) for each in others)]
    parts = _without_paths(parts, [column.source for column in comparison.columns])
    kept = [
        part for part, end in zip(parts, accumulate(map(len, parts)), strict=True) if end <= LONGEST
    ]
    if left := len(parts) - len(kept):
        kept.append(
            f"Left out for length: {counted(left, 'table')}. `--format markdown` has all.\n"
        )
    folded = "\n".join(kept[len(seen) :])
    summary = "<details>\n<summary>Figures, notes and what stands out</summary>"
    return "\n".join([*kept[: len(seen)], f"{summary}\n\n{folded}\n</details>\n"])


def _without_paths(texts: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Name inputs that are paths by their last parts, or from the directory that they share if these are the same."""
    several = (each.split(",") for each in sources if "/" in each and not each.startswith("run "))
    paths = sorted({path for some in several for path in some}, key=len, reverse=True)
    names = [PurePath(path).name for path in paths]
    if len({*names}) < len(names):
        names = [
            os.path.relpath(path, os.path.commonpath(map(os.path.abspath, paths))) for path in paths
        ]
    pairs = [
        (write(path), write(name))
        for path, name in zip(paths, names, strict=True)
        for write in (escaped, cell)
    ]
    return [reduce(lambda known, pair: known.replace(*pair), pairs, text) for text in texts]


# ---------------------------------------------------------------- OpenMetrics

_UNITS = {"B/s": "bytes_per_second", "s": "seconds"}
_STATES = {GateState.PASSED: 1.0, GateState.FAILED: 0.0, GateState.UNTRUSTED: math.nan}


def to_openmetrics(comparison: Comparison, verdict: Verdict | None = None) -> str:
    """Write a comparison as text for a file that node_exporter's textfile collector reads.

    All families are gauges in base units: that collector refuses the types that only OpenMetrics
    has. No label is specific to one run (no id, no file name), so that series continue. Without
    `verdict` there are no gates.
    """
    rows, base = (
        [(_labels(each), each) for each in comparison_rows(comparison)],
        comparison.base.label,
    )
    text = rendered(
        "openmetrics.txt",
        metrics=[
            (
                metric.name,
                _UNITS.get(metric.unit, ""),
                [each for each in rows if each[1]["metric"] == metric.name],
            )
            for metric in comparison.metrics
        ],
        ratios=[
            ({**labels, "metric": row["metric"], "baseline": base}, row) for labels, row in rows
        ],
        configurations=comparison.columns,
        gates=[
            ({"gate": each.gate}, {"state": _STATES[each.state]})
            for each in (verdict.results if verdict else ())
        ],
        status=worst(comparison.status, verdict.status if verdict else Exit.FINE),
        number=lambda value: (
            repr(float(value)).replace("inf", "+Inf").replace("-+", "-").replace("nan", "NaN")
        ),
        escaped=lambda text: re.sub(r'(["\\])', r"\\\1", one_line(str(text))),
    )
    return str(text)


def _labels(record: Mapping[str, object]) -> dict[str, object]:
    names = [name for name in (*FIELDS, "placement", "transport") if record[name] not in {None, ""}]
    return {
        "configuration": record["column"],
        "size": record["size"],
        **{name: record[name] for name in names},
    }
