"""Rows as CSV (RFC 4180, but with plain line feeds)."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence

from fabbench.report.table import Table


def write(table: Table) -> str:
    """Write a table's header and cells. A title and notes have no place in CSV."""
    return write_rows(table.header, table.rows)


def write_records(records: Iterable[Mapping[str, object]], header: Sequence[str]) -> str:
    """Write mappings; None is an empty cell, and numbers keep every digit."""
    return write_rows(header, ([_text(record.get(name)) for name in header] for record in records))


def write_rows(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Write a header and rows of text. A carriage return becomes a line feed: csv would not quote it."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(header)
    writer.writerows([cell.replace("\r\n", "\n").replace("\r", "\n") for cell in row] for row in rows)
    return out.getvalue()


def _text(value: object) -> str:
    return "" if value is None else str(value)
