"""``fabbench history``."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click

from fabbench.cli import terminal
from fabbench.cli.options import takes
from fabbench.cli.output import results


@click.command()
@click.argument("metric", metavar="METRIC[@SIZE]")
@click.option(
    "--where",
    multiple=True,
    metavar="KEY=VALUE",
    help="Only runs with this, such as case=all_reduce, name=nightly or configuration=efa; * and ? match any "
    "text. Can be given several times.",
)
@takes("since", "sizes", "store", "wide")
@results(("markdown", "csv", "raw-csv", "json", "html", "terminal"))
def command(metric: str, sizes: range | None, form: str, store: Path, **chosen: Any) -> None:
    """Show how a metric changed over the runs of a store, and with which run.

    Runs of the same benchmark, options, configuration, target, number and types of nodes are one series. It
    has the median of each run's repeats that are ok: at SIZE, or the best of all sizes or of those of --size.
    A change of level is reported with its first run, and with what else changed then: versions, image, nodes,
    environment; or as a slow drift. In 200 runs without a change, looked at after each, the chance that one is
    ever reported is 5% at most, if neighboring runs correlate by at most 0.8, or 0.5 with some outliers.

    -o history.html is a page with a plot for each series.

    Example: fabbench history busbw@1G --where name=nightly
    """
    from fabbench.report.history_report import NAMED, history_table, render_history
    from fabbench.runs.history import history, parse_metric, parse_where
    from fabbench.runs.summary import summaries

    name, sizes = parse_metric(metric, sizes)
    filters = parse_where(chosen["where"])
    since: timedelta | None = chosen["since"]
    oldest = "" if since is None else (datetime.now(UTC) - since).strftime("%Y-%m-%dT%H:%M:%SZ")
    runs = [run for run in summaries(store, terminal.files_progress, figures=True) if run.created >= oldest]
    result = history(runs, name, sizes, filters)
    for run in runs:
        for sentence in run.damaged:
            terminal.say(f"{run.path} is damaged, and left out: {sentence}")
    if not result.series:
        terminal.notify(f"No run in {store} matches.")
        if form in {"markdown", "terminal", "html"}:
            return
    if form == "terminal":
        table = history_table(result)
        terminal.print_table(table, result.distinguishing(NAMED)[::-1], wide=chosen["wide"])
    else:
        terminal.show(render_history, result, form)
