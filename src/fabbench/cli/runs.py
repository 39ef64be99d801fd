"""``fabbench runs``: the runs of a store, listed and removed."""

import sys
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabbench.cli import terminal
from fabbench.cli.complete import complete_run
from fabbench.cli.options import FILTERS, takes, written_age
from fabbench.cli.output import LISTED, output_file, results
from fabbench.cli.verbosity import with_verbosity
from fabbench.model.errors import Exit, RequestError
from fabbench.model.messages import counted, listed
from fabbench.model.units import format_time

if TYPE_CHECKING:
    from fabbench.runs.store import StoredRun
    from fabbench.runs.summary import Summary

_HEADER = (
    *("ID", "NAME", "FOLDER", "BENCHMARK", "TARGET", "NODES"),
    *("CONFIGURATIONS", "SIZES", "PEAK", "GATE", "WHEN", "OUTCOME"),
)
_OPTIONAL = frozenset({"NAME", "FOLDER", "GATE"})  # Columns that are left out if they are empty for all runs
_SPARE = ("FOLDER", "NODES", "SIZES", "TARGET", "NAME", "BENCHMARK", "GATE")  # Left out where there is no room


@click.group(invoke_without_command=True)
@takes("store", *FILTERS, "since", "wide")
@click.option("-n", "--limit", type=click.IntRange(1), metavar="N", help="Only the newest N runs.")
@results(LISTED, "How to write the list.")
@click.pass_context
def command(ctx: click.Context, /, store: Path, limit: int | None, form: str, *, wide: bool, **filters: Any) -> None:
    """List past runs, the newest first. `fabbench show ID` prints one, `fabbench runs rm` removes some.

    PEAK is the best value of the first configuration.

    Example: fabbench runs --benchmark nccl --since 7d
    """
    from fabbench.report.table import Table

    if ctx.invoked_subcommand is not None:
        return
    listed = list(islice(_chosen(store, **filters), limit))
    columns = zip(_HEADER, *(_row(run, form) for run in listed), strict=True)
    shown = [column for column in columns if column[0] not in _OPTIONAL or any(column[1:])]
    header, *rows = ([cell or "-" for cell in row] for row in zip(*shown, strict=True))
    empty = f"No run in {store} matches." if any(filters.values()) else f"No runs in {store}."
    table = Table(header=header, rows=rows, ruled=False)
    records = [_record(store, run) for run in listed]
    terminal.print_list("runs", table, records, form, empty, spare=_SPARE, wide=wide)
    for run in listed:
        for sentence in run.damaged:
            terminal.say(f"{run.path} is damaged: {sentence}")


@with_verbosity
@command.command("rm", short_help="Remove runs from the store.")
@click.argument("refs", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)
@takes("store", *FILTERS)
@click.option("--keep", type=click.IntRange(0), metavar="N", help="Remove all but the newest N runs.")
@takes("older_than", "yes")
def remove(
    refs: tuple[str, ...], store: Path, keep: int | None, older_than: timedelta | None, *, yes: bool, **filters: Any
) -> None:
    """Remove runs from the store: those named, or those that --keep and --older-than select.

    With both, a run has to be older, and not among the newest N. A run in progress is kept. What runs have
    left in a cluster is removed by `fabbench clean`.

    Example: fabbench runs rm --keep 20 --yes
    """
    from fabbench.runs.inputs import open_runs
    from fabbench.runs.store import StoredRun, remove_run

    if bool(refs) == (keep is not None or older_than is not None) or (refs and any(filters.values())):
        raise RequestError("Name the runs to remove, or pass --keep or --older-than.", hint="--keep 0 removes all.")
    if refs:
        found = list({run.path: run for run in open_runs(refs, store)}.values())
    else:
        rest = islice(_chosen(store, **filters), keep or 0, None)
        found = [StoredRun(store / run.path) for run in rest if older_than is None or _age(run) > older_than]
    found = list(_removable(found, store))
    if not found:
        terminal.say("Nothing to remove.")
        return
    for run in found:
        terminal.say(f"{run.id}  {run.benchmark}  {format_time(run.created)}")
    if not yes and not terminal.confirm_removal(len(found), "Pass --yes to remove them."):
        click.get_current_context().exit(Exit.BAD_ANSWER)
    for run in found:
        remove_run(run.path)
    terminal.say(f"Removed {counted(len(found), 'run')}.")


@with_verbosity
@command.command("export", short_help="Write what runs measured as CSV, JSON lines or Parquet.")
@click.argument("refs", metavar="[RUN]...", nargs=-1, shell_complete=complete_run)
@takes("store", *FILTERS, "since")
@results(("csv", "raw-csv", "jsonl", "parquet"), "Format: CSV, a JSON object per line, or Parquet.")
def export(refs: tuple[str, ...], store: Path, form: str, **filters: Any) -> None:
    """Write what runs measured, one row per sample, in base units: all runs, or those named or chosen.

    Samples of executions that are not ok are written too, with their outcome. A damaged run is left out, and
    the exit status is 3. Parquet needs -o, and pyarrow (fabbench[parquet]).

    Example: fabbench runs export --benchmark nccl --since 30d -o nccl.csv
    """
    from fabbench.runs.export import csv_pieces, json_lines, write_parquet
    from fabbench.runs.inputs import open_runs
    from fabbench.runs.store import StoredRun
    from fabbench.runs.sweep_store import require_executions

    if refs and any(filters.values()):
        raise RequestError("Give run ids or filters, not both.", hint="Leave one of them out.")
    found = [require_executions(run) for run in open_runs(refs, store)] or [
        StoredRun(store / run.path) for run in _chosen(store, **filters)
    ]
    damaged = [run for run in found if run.damage]
    sound = [run for run in found if not run.damage]
    file = output_file(ctx := click.get_current_context())
    if form == "parquet" and file is not None:
        write_parquet(sound, file)
    else:
        sys.stdout.writelines(json_lines(sound) if form == "jsonl" else csv_pieces(sound, raw=form == "raw-csv"))
    for run in damaged:
        terminal.say(f"{run.path.name} is damaged, and was left out: {run.damage[0]}")
    ctx.exit(Exit.REFUSED if damaged else Exit.FINE)


def _removable(found: Sequence["StoredRun"], store: Path) -> Iterator["StoredRun"]:
    """Yield the runs that may be removed, and print why others are kept."""
    from fabbench.runs.baselines import baselines
    from fabbench.runs.store import in_progress

    named = {each.folder(store).resolve(): each.name for each in baselines(store)}
    for run in found:
        name = named.get(run.path.resolve())
        if in_progress(run.path):
            terminal.say(f"{run.id} may be in progress, and is kept.")
        elif name is not None:
            terminal.say(f"{run.id} is the baseline {name}, and is kept.")
        else:
            yield run


def _chosen(store: Path, *, since: timedelta | None = None, **wanted: str | None) -> Iterator["Summary"]:
    """Yield the runs of a store that match, newest first."""
    from fabbench.runs.summary import summaries

    for run in summaries(store, terminal.files_progress):
        known = {"benchmark": run.setup.benchmark, "target": run.setup.target, "name": run.name}
        named = all(value is None or value == known[name] for name, value in wanted.items())
        if named and (since is None or _age(run) <= since):
            yield run


def _age(run: "Summary") -> timedelta:
    """Return how old a run is, by the time in its name."""
    return datetime.now(UTC) - datetime.fromisoformat(run.path.rpartition("/")[2].partition("-")[0])


def _row(run: "Summary", form: str) -> tuple[str, ...]:
    labels = [configuration.label for configuration in run.setup.configurations]
    return (
        run.id,
        run.name,
        run.folder,
        run.setup.benchmark,
        run.setup.target,
        str(len(run.setup.hosts) or ""),
        ", ".join(labels) if form != "table" or len(labels) < 3 else listed(labels, 1),
        run.sizes,
        run.peak,
        run.gate,
        written_age(_age(run)) if form == "table" else format_time(run.created),
        ", ".join((*(f"{count} {each}" for each, count in run.outcomes.items()), *["damaged"][: len(run.damaged)])),
    )


def _record(store: Path, run: "Summary") -> dict[str, object]:
    setup, path = run.setup, str(store / run.path)
    about = {"benchmark": setup.benchmark, "target": setup.target, "hosts": list(setup.hosts)}
    arms = [configuration.label for configuration in setup.configurations]
    own = {name: getattr(run, name) for name in ("created", "sizes", "peak", "gate", "outcomes", "damaged")}
    return {"id": run.id, "name": run.name, "path": path, **about, "arms": arms, **own}
