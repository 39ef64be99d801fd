"""Comparisons and tables as text: Markdown, CSV, JSON, a terminal. No writer computes."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fabbench.model.log import Log
from fabbench.report.table import Table, records_to_csv, to_terminal, write_result

if TYPE_CHECKING:
    from fabbench.analysis.compare import Comparison
    from fabbench.analysis.gate_results import Verdict

FORMATS = ("markdown", "comment", "csv", "raw-csv", "json", "svg", "html", "openmetrics", "junit", "terminal")


def render_comparison(  # noqa: PLR0913 - what is written, and how
    comparison: "Comparison",
    form: str = "markdown",
    *,
    verdict: "Verdict | None" = None,
    configurations: Mapping[str, Sequence[Log]] | None = None,
    color: bool = False,
    width: int | None = None,
) -> str:
    """Write a comparison in one of `FORMATS`; `verdict` adds the results of its gates.

    `configurations` (label → logs) adds mean and sum of rails where a configuration has several; not in CSV.
    `color` and `width` are for `terminal` only; without both it is plain text. Ends with a newline.
    """
    from fabbench.report import comparison_tables  # not needed to parse logs

    metrics = [metric.name for metric in comparison.metrics]
    tables, records = list[Table](), list[dict[str, object]]()
    if configurations:
        from fabbench.report import nics_table

        rails = nics_table.rails_of(configurations, metrics)
        tables, records = nics_table.rail_tables(rails), nics_table.rail_records(rails)
    if form in {"svg", "html", "openmetrics", "junit", "comment"}:
        return _for_tools(comparison, form, verdict, tables)
    return write_result(
        form,
        lambda: [*comparison_tables.tables_of_comparison(comparison, verdict, terminal=form == "terminal"), *tables],
        lambda: {**comparison_tables.comparison_document(comparison, verdict), "rails": records},
        lambda raw: records_to_csv(comparison_tables.comparison_rows(comparison), comparison_tables.HEADER, raw=raw),
        color=color,
        width=width,
    )


def closing_lines(comparison: "Comparison", *, color: bool = False, width: int | None = None) -> str:
    """Write the headlines of a comparison again, for the end of a long text: up to four."""
    from fabbench.analysis.headline import headline

    lines = (headline(comparison, index) for index in range(min(len(comparison.sections), 4)))
    return "\n" + to_terminal(
        [Table(header=(), rows=(), title=line) for line in lines if line], color=color, width=width
    )


def _for_tools(comparison: "Comparison", form: str, verdict: "Verdict | None", rails: Sequence[Table]) -> str:
    """Write a format for other tools: pages, build systems, monitoring."""
    if form == "svg":
        from fabbench.report.svg import plots, to_svg_file

        return to_svg_file([each.picture() for each in plots(comparison)])
    if form == "html":
        from fabbench import __version__
        from fabbench.report.page import comparison_page, page_of, run_section

        return "".join(page_of([run_section(comparison_page(comparison, verdict), 1)], __version__))
    if form == "junit":
        from fabbench.report.junit import to_junit

        return to_junit(comparison, verdict)
    if form == "openmetrics":
        from fabbench.report.openmetrics import to_openmetrics

        return to_openmetrics(comparison, verdict)
    from fabbench.report.comment import to_comment

    return to_comment(comparison, verdict, tables)
