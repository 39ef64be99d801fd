"""Stored runs as rows for other programs: one per sample, with its run and configuration."""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fabbench.benchmarks import benchmark_named
from fabbench.model.errors import RequestError
from fabbench.model.messages import printable
from fabbench.report.log_report import CSV_HEADER, log_records
from fabbench.report.table import csv_text, records_to_csv
from fabbench.runs.store import StoredRun

_ABOUT = ("run", "name", "target", "created", "nodes", "configuration", "fabric", "variant", "execution")
_FACTS = ("ranks", "transport", "versions")
HEADER = (*_ABOUT, *(name for name in CSV_HEADER if name != "source"), *_FACTS)
"""The columns, and the keys of each JSON object."""


def run_records(run: StoredRun) -> Iterator[dict[str, object]]:
    """Yield a row for each sample of a run, in base units; None: unknown or not applicable."""
    known = {configuration.label: configuration for configuration in run.configurations}
    for execution in run.executions:
        configuration = known.get(execution.configuration)
        about = (
            *(run.id, run.name or None, run.target or None, run.created, len(run.hosts) or None),
            execution.configuration,
            configuration.fabric if configuration else None,
            (configuration.variant if configuration else "") or None,
            execution.id,
        )
        head = dict(zip(_ABOUT, about, strict=True))
        for log in execution.logs:
            names = [name for name in benchmark_named(log.benchmark or "").versions if name in log.facts]
            versions = ", ".join(f"{name} {log.facts[name]}" for name in names) or None
            facts = dict(zip(_FACTS, (log.facts.get("ranks"), log.facts.get("transport"), versions), strict=True))
            for record in log_records(log):
                row = {**head, **record, **facts}
                yield {name: row.get(name) for name in HEADER}


def csv_pieces(runs: Iterable[StoredRun]) -> Iterator[str]:
    """Yield CSV: the header, then each run."""
    header = csv_text([HEADER])
    yield header
    for run in runs:
        yield records_to_csv(run_records(run), HEADER).removeprefix(header)


def json_lines(runs: Iterable[StoredRun]) -> Iterator[str]:
    """Yield a JSON object and a newline for each row."""
    for run in runs:
        for record in run_records(run):
            yield printable(json.dumps(record, ensure_ascii=False)) + "\n"


def write_parquet(runs: Iterable[StoredRun], path: Path) -> None:
    """Write a Parquet file. Raise RequestError if pyarrow is not installed."""
    import pandas as pd

    rows: list[Mapping[str, object]] = [record for run in runs for record in run_records(run)]
    numbers = {"nodes": "Int64", "size": "Int64", "value": "float64", "ranks": "Int64"}
    kinds = {name: numbers.get(name, "string") for name in HEADER}
    table = pd.DataFrame(rows, columns=list(HEADER)).astype(kinds)
    try:
        table.to_parquet(path, engine="pyarrow", index=False)
    except ImportError as error:
        raise RequestError(
            "--format parquet needs pyarrow, which is not installed.",
            hint="Install fabbench[parquet], or use --format csv.",
        ) from error
