"""Logs as pandas data frames, for notebooks. The only module that imports pandas."""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pandas as pd

from fabbench.report.log_report import CSV_HEADER, log_records
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
