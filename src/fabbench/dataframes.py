"""Logs as pandas data frames, for notebooks. The only module that imports pandas."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from fabbench.report.log_report import CSV_HEADER, LABELS, log_records
from fabbench.runs.inputs import parse


def frame(*sources: str | Path, fabric: str | None = None) -> pd.DataFrame:
    """Read logs into a tidy data frame: one row per sample, in base units.

    `sources` are those of `fabbench parse`: logs, directories, runs. `fabric`: the requested
    fabric, by which logs are judged. Columns: those of ``fabbench parse --format csv``, and
    `execution`, which numbers the logs; labels that do not apply are missing. Raise MachineError if
    a file cannot be read.
    """
    samples = _rows(sources, fabric)
    rows = pd.DataFrame(samples, columns=["execution", *CSV_HEADER])
    return rows.astype({"size": "int64", "value": "float64", "execution": "int64"})


def _rows(sources: Iterable[str | Path], fabric: str | None) -> Iterator[dict[str, object]]:
    for execution, log in enumerate(parse(*sources, fabric=fabric)):
        for record in log_records(log):
            yield {"execution": execution, **record}


def pivot(rows: pd.DataFrame, metric: str = "busbw", *, by: str = "source") -> pd.DataFrame:
    """Arrange the values of one metric side by side.

    Sizes (and labels that differ) down, `by` across.

    Repeats are reduced to their median, as in `fabbench compare`; statistics other than a tool's
    main figure are left out. Raise ValueError if no row has the metric.
    """
    is_main_figure = rows["stat"].isna()
    chosen = rows[(rows["metric"] == metric) & is_main_figure]
    if chosen.empty:
        known = ", ".join(sorted(rows["metric"].unique())) or "none"
        raise ValueError(f"no row has the metric {metric}; available: {known}")
    labels = (name for name in LABELS if name not in {by, "stat"})
    differing = [name for name in labels if len(chosen[name].drop_duplicates()) > 1]
    # Rows without a value of a key would be left out.
    filled = chosen.fillna(dict.fromkeys(differing, "")) if differing else chosen
    table = filled.pivot_table(
        index=["size", *differing], columns=by, values="value", aggfunc="median", sort=False
    )
    return table.sort_index()  # By size, then by these labels
