"""A comparison for build systems and monitoring.

JUnit XML, a comment on a pull request, OpenMetrics.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import NamedTuple

from fabbench.analysis.aggregate import FIELDS
from fabbench.analysis.compare import Comparison
from fabbench.analysis.gate_results import GateResult, GateState, Verdict
from fabbench.analysis.headline import headlines
from fabbench.model.errors import Exit, worst
from fabbench.model.log import Outcome
from fabbench.model.mappings import first_of
from fabbench.model.messages import counted, one_line
from fabbench.report.comparison_tables import (
    GATES,
    comparison_rows,
    gates_table,
    tables_of_comparison,
)
from fabbench.report.table import PlainData, Table, cell, escaped, to_markdown
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
    """Write JUnit XML with a test case per configuration and per gate."""
    columns = range(len(comparison.columns))
    suites = {"configurations": [_configuration_case(comparison, index) for index in columns]}
    if verdict is not None:
        suites["gates"] = list(map(_gate_case, verdict.results))
    return str(rendered("junit.xml", name="fabbench", suites=suites))


def untrusted(comparison: Comparison, index: int) -> bool:
    """Return whether a column makes the comparison untrusted (exit status 4)."""
    if comparison.columns[index].hidden > 0:  # Logs that are not shown because of their outcome
        return True
    return any(section.partial[index] for section in comparison.sections)


def _configuration_case(comparison: Comparison, index: int) -> Case:
    # A column as a test case of JUnit, which passes if its outcome is to be trusted.
    column = comparison.columns[index]
    tag = ""
    if column.outcome is Outcome.SKIPPED:
        tag = "skipped"
    elif untrusted(comparison, index):
        tag = "error"
    output = [f"Outcome: {column.outcome}"]
    for name, values in column.facts.items():
        words = ", ".join(map(str, values))
        output.append(f"{name}: {words}")
    output += map(str, column.findings)
    reasons = column.reasons or [f"{column.outcome}: no reason given"]
    return Case(column.label, tag, column.outcome.value, reasons, output)


def _gate_case(result: GateResult) -> Case:
    # A gate as a test case of JUnit; one that is inconclusive is skipped there.
    if result.state is GateState.FAILED:
        return Case(result.gate, "failure", "gate", result.breaches, result.notes)
    if result.state is GateState.UNTRUSTED:
        reasons = ["What it compares cannot be trusted.", *result.notes]
        return Case(result.gate, "error", "untrusted", reasons, result.notes)
    if result.state is GateState.INCONCLUSIVE:
        return Case(result.gate, "skipped", "inconclusive", result.notes)
    return Case(result.gate, output=result.notes)


# ---------------------------------------------------------------- comments in GitHub and GitLab

LONGEST = 60_000  # Maximum characters of a comment: GitHub allows 65,536
_MARKS = {
    GateState.PASSED: "✅",
    GateState.FAILED: "❌",
    GateState.INCONCLUSIVE: "❔",
    GateState.UNTRUSTED: "⚠️",
}


def to_comment(comparison: Comparison, verdict: Verdict | None = None) -> str:
    """Write a comparison, of which headline and gates are visible.

    Strangers may read a comment: directories of the machine that wrote it are removed from the
    names of inputs.
    """
    visible = [_headlines(comparison)]  # The others are folded away below a summary
    if verdict is not None and verdict.results:
        visible.append(gates_table(verdict, _MARKS))
    hidden = [
        replace(each, headline="")  # It is visible already
        for each in tables_of_comparison(comparison, verdict)
        if each.title != GATES
    ]
    sources = [column.source for column in comparison.columns]
    parts = _without_paths(map(to_markdown, [*visible, *hidden]), sources)
    kept = _first_that_fit(parts)
    left_out = len(parts) - len(kept)
    if left_out:
        tables = counted(left_out, "table")
        kept.append(f"Left out for length: {tables}. `--format markdown` has all.\n")
    shown = kept[: len(visible)]
    folded = "\n".join(kept[len(visible) :])
    summary = "<details>\n<summary>Figures, notes and what stands out</summary>"
    return "\n".join([*shown, f"{summary}\n\n{folded}\n</details>\n"])


def _headlines(comparison: Comparison) -> Table:
    """Return the title of a comment: with the only headline in it, or several below it."""
    lines = headlines(comparison)
    if len(lines) > 1:
        return Table(title="fabbench", notes=lines)
    line = first_of(lines, "no figures to show")
    return Table(title=f"fabbench: {line}")


def _first_that_fit(parts: Sequence[str]) -> list[str]:
    """Return the first parts of a comment, as many as it may have."""
    kept: list[str] = []
    room = LONGEST
    for part in parts:
        room -= len(part)
        if room < 0:
            break
        kept.append(part)
    return kept


def _without_paths(texts: Iterable[str], sources: Iterable[str]) -> list[str]:
    """Name inputs that are paths by their last part, or by as many, up to 3, as tell them apart."""
    names = _names_of_paths(_paths_among(sources))
    return [_renamed(text, names) for text in texts]


def _renamed(text: str, names: Mapping[str, str]) -> str:
    for path, name in names.items():
        # In Markdown, a cell is escaped otherwise than other text
        for write in (escaped, cell):
            text = text.replace(write(path), write(name))
    return text


def _paths_among(sources: Iterable[str]) -> list[str]:
    """Return the paths among sources, the longest first: others may be a part of it."""
    paths = {
        path
        for source in sources
        if "/" in source and not source.startswith("run ")  # as stored runs are called
        for path in source.split(",")  # files that are read as one
    }
    return sorted(paths, key=len, reverse=True)


def _last_parts(path: str, parts: int) -> str:
    return "/".join(PurePath(path).parts[-parts:])


def _names_of_paths(paths: Sequence[str]) -> dict[str, str]:
    # Path → as many of its last parts as tell all paths apart, three at most.
    for parts in (1, 2, 3):
        names = {path: _last_parts(path, parts) for path in paths}
        if len({*names.values()}) == len(names):
            break
    return names


# ---------------------------------------------------------------- OpenMetrics


def to_openmetrics(comparison: Comparison, verdict: Verdict | None = None) -> str:
    """Write a comparison as text for a file that node_exporter's textfile collector reads.

    All families are gauges in base units: that collector refuses the types that only OpenMetrics
    has. No label is specific to one run (no id, no file name), so that series continue. Without
    `verdict` there are no gates.
    """
    text = rendered(
        "openmetrics.txt",
        comparison=comparison,
        rows=[(_sample_labels(row), row) for row in comparison_rows(comparison)],
        results=verdict.results if verdict else (),
        status=worst(comparison.status, verdict.status if verdict else Exit.FINE),
        number=sample_value,
        escaped=label_value,
    )
    return str(text)


def sample_value(value: float) -> str:
    """Write a number as OpenMetrics does; `repr` keeps every digit."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(float(value))


def label_value(value: object) -> str:
    """Write the value of a label."""
    text = one_line(str(value))
    return re.sub(r'(["\\])', r"\\\1", text)


def _sample_labels(record: PlainData) -> PlainData:
    labels = {"configuration": record["column"], "size": record["size"]}
    for name in (*FIELDS, "placement", "transport"):
        if record[name] not in {None, ""}:
            labels[name] = record[name]
    return labels
