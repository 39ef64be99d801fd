"""Comparisons and tables as text: Markdown, CSV, JSON, a terminal. No writer computes."""

import json
from collections.abc import Mapping, Sequence

from fabbench.compare import Comparison
from fabbench.errors import RequestError
from fabbench.gate import Verdict
from fabbench.model import Log
from fabbench.report import delimited, layout, markdown, rails, records, terminal

FORMATS = ("markdown", "csv", "json", "terminal")


def render(  # noqa: PLR0913 - what is written, and how
    comparison: Comparison,
    form: str = "markdown",
    *,
    verdict: Verdict | None = None,
    arms: Mapping[str, Sequence[Log]] | None = None,
    colour: bool = False,
    width: int | None = None,
) -> str:
    """Write a comparison in one of `FORMATS`; `verdict` adds what its gates found.

    `arms` adds mean and sum of the rails of those arms (label → logs) that have several; not in CSV.
    `colour` and `width` are for `terminal` alone: neither, and it is plain text. Ends with a newline.
    """
    metrics = [metric.name for metric in comparison.metrics]
    if form in {"markdown", "terminal"}:
        tables = [*layout.tables(comparison, verdict), *rails.tables(arms or {}, metrics)]
        if form == "markdown":
            return "\n".join(map(markdown.write, tables))
        return terminal.write(tables, colour=colour, width=width)
    if form == "csv":
        return delimited.write_records(records.rows(comparison), records.HEADER)
    if form == "json":
        document = {**records.document(comparison, verdict), "rails": rails.records(arms or {}, metrics)}
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
    raise RequestError(f"There is no format {form}.", hint=f"One of {', '.join(FORMATS)}.")
