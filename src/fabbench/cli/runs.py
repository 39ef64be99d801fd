"""``fabbench runs``."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabbench.cli import options

if TYPE_CHECKING:
    from fabbench.store import StoredRun

_HEADER = ("ID", "BENCHMARK", "ARMS", "WHEN", "OUTCOMES")


@click.command(short_help="List past runs.")
@options.store
@options.form(("table", "json"), "How to write it.")
@click.option("-n", "--limit", type=click.IntRange(1), metavar="N", help="Only the newest N runs.")
def command(store: Path, form: str, limit: int | None) -> None:
    """List past runs, the newest first. `fabbench show ID` prints one."""
    listed = list(_runs(store, limit))
    if form == "json":
        documents = [
            {
                "id": run.id,
                "path": str(run.path),
                "benchmark": run.benchmark,
                "arms": [arm.label for arm in run.arms],
                "created": run.created,
                "outcomes": outcomes(run),
            }
            for run in listed
        ]
        click.echo(json.dumps({"format": 1, "runs": documents}, indent=1, ensure_ascii=False))
        return
    if not listed:
        click.echo(f"There are no runs in {store}.", err=True)
        return
    rows = [
        (
            run.id,
            run.benchmark,
            ", ".join(arm.label for arm in run.arms),
            run.created.replace("T", " ").replace("Z", " UTC"),
            ", ".join(f"{number} {name}" for name, number in outcomes(run).items()),
        )
        for run in listed
    ]
    widths = [max(map(len, column)) for column in zip(_HEADER, *rows, strict=True)]
    for row in (_HEADER, *rows):
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def outcomes(run: "StoredRun") -> dict[str, int]:
    """Count the outcomes of a run's executions; what was scheduled and never began is `not begun`."""
    counts = Counter(str(log.outcome) for trial in run.trials for log in trial.logs)
    counts.update("not begun" for trial in run.trials if not trial.begun)
    return dict(counts)


def _runs(store: Path, limit: int | None) -> Iterator["StoredRun"]:
    """Open the runs of a store; one that cannot be read is reported and left out."""
    from fabbench.errors import FabbenchError
    from fabbench.store import StoredRun, runs

    for number, path in enumerate(runs(store)):
        if limit is not None and number >= limit:
            return
        try:
            run = StoredRun(path)
            outcomes(run)
        except FabbenchError as error:
            click.echo(f"{path.name} is left out: {error}", err=True)
        else:
            yield run
