"""``fabbench compare``."""

from pathlib import Path
from typing import Any

import click

from fabbench.cli import terminal
from fabbench.cli.ci import build_result
from fabbench.cli.complete import complete_run
from fabbench.cli.options import ON_NODES, known_proof, takes
from fabbench.cli.output import COMPARED, results
from fabbench.model.errors import Exit, worst


@click.command()
@click.argument("inputs", nargs=-1, required=True, metavar="NEW [MORE]... BASELINE", shell_complete=complete_run)
@takes(
    baseline="Compare with this as the last column: a name (fabbench baseline set), last-good (the newest "
    "earlier run of the same key that is good), a run, RUN:CONFIG, or log files."
)
@click.option("--label", "labels", multiple=True, help="Name of a column; once per column, in order.")
@takes("metric", "sizes")
@click.option(
    "--placement",
    type=click.Choice(["out-of-place", "in-place"]),
    default="out-of-place",
    show_default=True,
    help="Which half of an nccl-tests table to compare.",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="FIELD",
    help="Allow this field to differ: benchmark, case, ranks, hosts, gpus_per_host, dtype, redop, "
    "direction, way or endpoint. Can be given several times.",
)
@click.option(
    "--fabric",
    "fabrics",
    multiple=True,
    metavar="NAME",
    help="Judge a log file against this fabric (efa, tcp, ...); once for each input, in order. Use `any` "
    "for one that should not be judged.",
)
@takes(
    gates="Fail (exit 1) unless this holds for the first column, such as busbw:5%, latency@64:20us or "
    "busbw@1G>=70GB/s. Can be given several times."
)
@takes("strict", *ON_NODES)
@results(COMPARED)
@takes("junit", "store")
def command(  # noqa: PLR0913, PLR0917 - one parameter for each option
    inputs: tuple[str, ...],
    baseline: str | None,
    labels: tuple[str, ...],
    metric: str | None,
    sizes: range | None,
    placement: str,
    allow: tuple[str, ...],
    fabrics: tuple[str, ...],
    gates: tuple[str, ...],
    strict: bool,  # noqa: FBT001 - a flag
    form: str,
    junit: Path | None,
    store: Path,
    **known: Any,
) -> None:
    """Compare runs and log files side by side; the last one is the baseline.

    Each input is a run (a directory, an id, or `last`), RUN:CONFIG, a log file, nccl-tests JSON, a table of
    results (fabbench's JSON, CSV or Markdown; unproven), or several log files that are repeats: a directory,
    or a list such as a1.log,a2.log. A run stands for all its configurations, so one run alone compares its
    configurations. Repeats are reduced to their median. The ratio says how many times better a column is than
    the baseline. Runs that are not comparable (different ranks, ...) are rejected, unless --allow names the field.

    The exit status is 1 if a gate fails, 2 if the inputs cannot be compared, 3 if one cannot be read,
    and 4 if one cannot be trusted.
    """
    from fabbench.analysis.compare import compare
    from fabbench.runs.load_columns import NOTHING_KNOWN, columns_within, load, matching_column, with_labels

    with build_result("fabbench compare", junit) as result:
        if gates or strict:
            from fabbench.analysis.gate import check
            from fabbench.plan.gates import parse_gates

            parsed_gates = parse_gates(gates, strict=strict)
        proof = known_proof(**known) or NOTHING_KNOWN
        columns = load(*inputs, store=store, fabrics=fabrics, labels=() if baseline else labels, known=proof)
        if baseline:
            from fabbench.runs.baselines import baseline_input

            last = matching_column(load(baseline_input(baseline, store, inputs[0]), store=store), columns[0].label)
            columns = with_labels([*columns, last], labels)
        if len(inputs) == 1:  # configurations that were planned together: each fabric has the endpoint that suits it
            allow = (*allow, "endpoint")
        comparison = compare(columns_within(columns, sizes), metric=metric, placement=placement, allow=allow)
        verdict = check(parsed_gates, comparison, strict=strict) if gates else None
        result.comparison, result.verdict = comparison, verdict
    terminal.print_comparison(comparison, form, verdict=verdict)
    raise click.exceptions.Exit(worst(comparison.status, verdict.status if verdict else Exit.FINE))
