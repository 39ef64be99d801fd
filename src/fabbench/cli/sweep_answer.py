"""The answer of ``fabbench sweep`` and its options, the same for tests that it runs and for logs."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabbench.cli import terminal
from fabbench.cli.click_options import click_options, values_of
from fabbench.cli.output import result_options
from fabbench.launchers import LABEL, SWITCH
from fabbench.model.errors import Exit, MachineError, RequestError
from fabbench.model.messages import listed
from fabbench.model.option_types import Choice, Parsed, Text
from fabbench.model.options import declared, option
from fabbench.report.sweep_report import CORDON, FORMATS

if TYPE_CHECKING:
    from fabbench.model.log import Metric
    from fabbench.sweep.values import SweepResult


def _percent(text: str) -> float:
    fraction = float(text.strip().removesuffix("%")) / 100
    if not 0 < fraction < 1:
        raise ValueError
    return fraction


def _tolerance(text: str) -> float:
    fraction = _percent(text)
    if fraction > 0.8:  # hardly anything would be slow
        raise ValueError
    return fraction


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """How an answer is found and written."""

    confidence: float = option(
        Parsed("a percentage between 0 and 100, such as 99%", "PERCENT", _percent),
        "Minimum confidence for a node, NIC or link to count as bad.",
        default="99%",
    )
    tolerance: float = option(
        Parsed("a percentage between 0 and 80, such as 10%", "PERCENT", _tolerance),
        "How much slower than typical a healthy node may be.",
        default="10%",
    )
    groups: str | None = option(
        Text("a file, label:KEY or switch", "FILE|label:KEY|switch"),
        "Which rack, switch or other group nodes are in: a file with lines such as node[01-08] rack-1; the "
        "value of a label of Kubernetes nodes; or the lowest switch in Slurm's topology. Tests between "
        "groups are judged apart, and groups can be suspects.",
    )
    print_cordon: str | None = option(
        Choice(CORDON),
        "Print only the commands that take bad nodes out of service: kubectl cordon, or scontrol with "
        "State=DRAIN. Runs none of them.",
    )
    form: str = "markdown"


def answer_parameters() -> list[click.Parameter]:
    """Return the options of the answer."""
    return [*click_options(declared(AnswerOptions).values()), *result_options(FORMATS, "Output format.")]


def answer_options(ctx: click.Context) -> AnswerOptions:
    """Return the values of the options of the answer."""
    return replace(AnswerOptions(**values_of(ctx, declared(AnswerOptions))), form=ctx.params["form"])


def groups_from_cluster(groups: str | None) -> bool:
    """Return whether groups come from the launcher, and not from a file."""
    return groups is not None and (groups == SWITCH or groups.startswith(LABEL))


def groups_of(nodes: Iterable[str], groups: str | None) -> Mapping[str, str]:
    """Return the group of each node, as listed in a file. Raise FabbenchError if it is not."""
    from fabbench.sweep.node_names import read_groups

    if groups is None:
        return {}
    path = Path(groups).expanduser()
    try:
        group_of = read_groups(path.read_text("utf-8"))
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise RequestError(f"{path}: {error}.", hint="Write a line per group: node[01-08] rack-1.") from None
    if missing := [node for node in nodes if node not in group_of]:
        raise RequestError(f"{path} has no group for {listed(missing)}.", hint="Add them to a line of it.")
    return group_of


def print_answer(  # noqa: PLR0913 - what is known, and how it is written
    results: Iterable["SweepResult"],
    metric: "Metric",
    nodes: Sequence[str],
    how: AnswerOptions,
    *,
    left_out: Sequence[tuple[str, str]] = (),
    unfinished: str = "",
    group_of: Mapping[str, str] | None = None,
) -> Exit:
    """Write the diagnosis of results to standard output; return the matching exit status.

    `group_of` is for groups that do not come from the file of `how`.
    """
    from fabbench.report.sweep_report import MAX_ROWS, MAX_SVG_ROWS, cordon_commands, render_sweep
    from fabbench.runs.report_pages import sweep_report
    from fabbench.sweep.readings import Readings

    groups = groups_of(nodes, how.groups) if group_of is None else group_of
    report = sweep_report(
        Readings(metric, nodes, group_of=groups),
        results,
        tolerance=how.tolerance,
        confidence=how.confidence,
        rows=MAX_SVG_ROWS if how.form == "svg" else MAX_ROWS,
    )
    diagnosis = report.diagnosis
    if how.print_cordon:
        text = "".join(f"{line}\n" for line in cordon_commands(diagnosis, how.print_cordon))
    else:
        report = replace(report, left_out=left_out, unfinished=unfinished)
        text = terminal.drawn(render_sweep, report, how.form)
    terminal.write_drawn(text)
    if len(diagnosis.suspects) > diagnosis.slow_path:
        return Exit.BAD_ANSWER
    open_ends = (diagnosis.undecided, diagnosis.contradiction, unfinished)
    return Exit.UNTRUSTED if any(open_ends) else Exit.BAD_ANSWER if diagnosis.slow_path else Exit.FINE
