"""Comparisons and tables as text: Markdown, CSV, JSON, a terminal. No writer computes."""

import json

from fabbench.compare import Comparison
from fabbench.errors import RequestError
from fabbench.gate import Verdict
from fabbench.report import delimited, layout, markdown, records, terminal

FORMATS = ("markdown", "csv", "json", "terminal")


def render(
    comparison: Comparison,
    form: str = "markdown",
    *,
    verdict: Verdict | None = None,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """Write a comparison in one of `FORMATS`; `verdict` adds what its gates found.

    `colour` and `width` are for `terminal` alone: neither, and it is plain text. Ends with a newline.
    """
    if form == "markdown":
        return "\n".join(markdown.write(table) for table in layout.tables(comparison, verdict))
    if form == "terminal":
        return terminal.write(layout.tables(comparison, verdict), colour=colour, width=width)
    if form == "csv":
        return delimited.write_records(records.rows(comparison), records.HEADER)
    if form == "json":
        return json.dumps(records.document(comparison, verdict), indent=1, ensure_ascii=False) + "\n"
    raise RequestError(f"There is no format {form}.", hint=f"One of {', '.join(FORMATS)}.")
