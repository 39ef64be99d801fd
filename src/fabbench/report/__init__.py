"""Comparisons and tables as text: Markdown, CSV, JSON, a terminal. No writer computes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fabbench.model.errors import RequestError
from fabbench.model.log import Log
from fabbench.report.json_contract import to_json
from fabbench.report.table import CSV_FORMATS, RAW_CSV, Table, records_to_csv, to_markdown, to_terminal

if TYPE_CHECKING:
    from fabbench.analysis.compare import Comparison
    from fabbench.analysis.gate_results import Verdict

FORMATS = ("markdown", "comment", "csv", "json", "svg", "openmetrics", "terminal")


def render_comparison(  # noqa: PLR0913 - what is written, and how
    comparison: "Comparison",
    form: str = "markdown",
    *,
    verdict: "Verdict | None" = None,
    configurations: Mapping[str, Sequence[Log]] | None = None,
    color: bool = False,
    width: int | None = None,
) -> str:
    """Write a comparison in one of `FORMATS`, or as `RAW_CSV`; `verdict` adds the results of its gates.

    `configurations` (label → logs) adds mean and sum of rails where a configuration has several; not in CSV.
    `color` and `width` are for `terminal` only; without both it is plain text. Ends with a newline.
    """
    from fabbench.report import comparison_tables  # not needed to parse logs

    metrics = [metric.name for metric in comparison.metrics]
    rails, records = list[Table](), list[dict[str, object]]()
    if configurations:
        from fabbench.report import nics_table

        rails = nics_table.rail_tables(configurations, metrics)
        records = nics_table.rail_records(configurations, metrics)
    if form in {"markdown", "terminal"}:
        tables = [*comparison_tables.tables_of_comparison(comparison, verdict, terminal=form == "terminal"), *rails]
        if form == "markdown":
            return "\n".join(map(to_markdown, tables))
        return to_terminal(tables, color=color, width=width)
    if form in {"svg", "openmetrics", "comment"}:
        return _for_tools(comparison, form, verdict, rails)
    if form in CSV_FORMATS:
        rows = comparison_tables.comparison_rows(comparison)
        return records_to_csv(rows, comparison_tables.HEADER, raw=form == RAW_CSV)
    if form == "json":
        return to_json({**comparison_tables.comparison_document(comparison, verdict), "rails": records})
    raise RequestError(f"Unknown format {form}.", hint=f"One of {', '.join(FORMATS)}.")


def _for_tools(comparison: "Comparison", form: str, verdict: "Verdict | None", rails: Sequence[Table]) -> str:
    """Write a format for other tools: pages, build systems, monitoring."""
    if form == "svg":
        from fabbench.report.plots import plots
        from fabbench.report.svg import to_svg_file

        return to_svg_file(list(plots(comparison)))
    if form == "openmetrics":
        from fabbench.report.openmetrics import to_openmetrics

        return to_openmetrics(comparison, verdict)
    from fabbench.report.comment import to_comment

    return to_comment(comparison, verdict, rails)
