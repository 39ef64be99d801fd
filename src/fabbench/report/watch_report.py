"""What NICs show while a job runs: the sentences, a table, and the same for programs. Pure."""

from dataclasses import replace
from typing import Any

import msgspec

from fabbench.counters.watch import WatchResult
from fabbench.report import nics_table
from fabbench.report.ci_formats import label_value, sample_value
from fabbench.report.table import Table, picked, records_to_csv, write_result
from fabbench.report.templates import rendered

_MOST_NICS = 64
"""NICs of a host that have a line each."""
_OF_NIC = ("name", "kind", "link_rate", "tx", "rx")


def render_watch(result: WatchResult, form: str, **drawing: Any) -> str:
    """Write it in a format of `fabbench watch`. Ends with a newline."""
    closing = Table(headline=result.last)
    tables = [_table(result), closing]
    if form == "html":
        return str(rendered("watch.html", title=result.first, tables=tables))
    if form == "openmetrics":
        how = {"number": sample_value, "escaped": label_value}
        return str(rendered("watch_openmetrics.txt", result=result, **how))
    rows = [
        {"host": host, "seconds": traffic.seconds, **picked(nic, *_OF_NIC)}
        for host, traffic in result.carriers.items()
        for nic in traffic.nics
    ]
    header = ("host", "seconds", *_OF_NIC)
    return write_result(
        form,
        lambda: tables,
        lambda: msgspec.to_builtins(result),
        lambda: records_to_csv(rows, header),
        **drawing,
    )


def _table(result: WatchResult) -> Table:
    """Lay out what each NIC carried, and what stands out."""
    of_nics = nics_table.table(result.carriers, most=_MOST_NICS)
    found = map(str, result.findings)
    notes = [*of_nics.notes, *found, *result.notes]
    return replace(of_nics, headline=result.first, notes=notes)
