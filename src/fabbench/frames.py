"""Logs as pandas data frames, for notebooks. The only module that imports pandas."""

from collections.abc import Iterator
from pathlib import Path

import pandas as pd

from fabbench.batch import expand
from fabbench.files import parse_file
from fabbench.model import Proof
from fabbench.report.logs import CSV_HEADER, LABELS, records

_COLUMNS = ("execution", *CSV_HEADER)


def frame(*sources: str | Path, fabric: str | None = None) -> pd.DataFrame:
    """Read logs into a tidy frame: one row for each sample, in base units.

    `sources` are files (any log that `fabbench parse` reads) or directories. `fabric` judges the logs as
    measured on it. Columns: those of ``fabbench parse --format csv``, and `execution`, which counts the logs;
    labels that do not apply are missing. Raises MachineError where a file cannot be read.
    """
    rows = pd.DataFrame(_rows(sources, fabric), columns=list(_COLUMNS))
    return rows.astype({"size": "int64", "value": "float64", "execution": "int64"})


def _rows(sources: tuple[str | Path, ...], fabric: str | None) -> Iterator[dict[str, object]]:
    proof = Proof(fabric=fabric) if fabric is not None else None
    execution = 0
    for source in expand(map(str, sources)):
        for log in parse_file(Path(source.name), proof=proof):
            for record in records(log):
                yield {"execution": execution, **record}
            execution += 1


def pivot(rows: pd.DataFrame, metric: str = "busbw", *, by: str = "source") -> pd.DataFrame:
    """Set the values of one metric side by side: sizes (and labels that differ) down, `by` across.

    What was measured several times is the median, as in `fabbench compare`; statistics other than a tool's
    main figure are left out. Raises ValueError where no row has the metric.
    """
    chosen = rows[(rows["metric"] == metric) & rows["stat"].isna()]
    if chosen.empty:
        known = ", ".join(sorted(rows["metric"].unique()))
        raise ValueError(f"no row has the metric {metric}; there are: {known or 'none'}")
    keys = [name for name in LABELS if name not in {by, "stat"} and len(chosen[name].drop_duplicates()) > 1]
    filled = chosen.fillna(dict.fromkeys(keys, "")) if keys else chosen
    table = filled.pivot_table(
        index=["size", *keys], columns=by, values="value", aggfunc="median", sort=False
    )
    return table.sort_index()
