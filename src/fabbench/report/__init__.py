"""Comparisons and tables as text: Markdown, CSV, JSON, a terminal. No writer computes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fabbench.report.table import Table, records_to_csv, to_terminal, write_result

if TYPE_CHECKING:
    from fabbench.analysis.compare import Comparison
    from fabbench.analysis.gate_results import Verdict


def render_comparison(
    comparison: "Comparison",
    form: str = "markdown",
    *,
    verdict: "Verdict | None" = None,
    **drawing: Any,
) -> str:
    """Write a comparison in one of its `FORMATS`; `verdict` adds the results of its gates.

    `drawing`, the color and width, is for a terminal. Ends with a newline.
    """
    from fabbench.report import comparison_tables  # not needed to parse logs

    if form == "svg":
        from fabbench.report.svg import plots, to_svg_file

        return to_svg_file([*plots(comparison)])
    if form == "html":
        from fabbench.report.page import comparison_page, page_of, run_section

        return "".join(page_of([run_section(comparison_page(comparison, verdict), 1)]))
    if form in {"openmetrics", "junit", "comment"}:
        from fabbench.report.ci_formats import to_comment, to_junit, to_openmetrics

        writers = {"openmetrics": to_openmetrics, "junit": to_junit, "comment": to_comment}
        return writers[form](comparison, verdict)
    return write_result(
        form,
        lambda: comparison_tables.tables_of_comparison(
            comparison, verdict, terminal=form == "text"
        ),
        lambda: comparison_tables.comparison_document(comparison, verdict),
        lambda: records_to_csv(
            comparison_tables.comparison_rows(comparison), comparison_tables.HEADER
        ),
        **drawing,
    )


_MAX_CLOSING_LINES = 4
"""Sentences that end a long text: with more, the first would scroll away as the text did."""


def closing_lines(answer: Sequence[str], **drawing: Any) -> str:
    """Write the answer of a long text again, for its end: the first few sentences."""
    lines = answer[:_MAX_CLOSING_LINES]
    tables = [Table(title=line) for line in lines]
    return "\n" + to_terminal(tables, **drawing)
