"""``fabbench sweep --dry-run``: what a sweep would test first, and nothing started."""

from collections import Counter
from typing import TYPE_CHECKING

import click

from fabbench.cli.dry_run import execution_lines
from fabbench.model.errors import RequestError
from fabbench.model.messages import counted, listed, redacted_values

if TYPE_CHECKING:
    from fabbench.cli.sweep_answer import AnswerOptions
    from fabbench.runs.sweep import SweepRequest
    from fabbench.sweep.values import Round

_TEXT = frozenset({"markdown", "terminal"})


def show_sweep(request: "SweepRequest", how: "AnswerOptions") -> None:
    """Print how `fabbench sweep` would begin. Raise FabbenchError for what it would refuse."""
    from fabbench.launchers import launcher_named
    from fabbench.runs.sweep import preview_sweep

    if how.form not in _TEXT or how.print_cordon:
        flag = "--print-cordon" if how.print_cordon else f"--format {how.form}"
        raise RequestError(f"{flag} has no effect with --dry-run.", hint="Leave one of them out.")
    found = preview_sweep(request)
    target, document = request.run.target, found.document
    reason = f": {request.run.target_reason}" if request.run.target_reason else ""
    click.echo(f"Target:      {target.name} ({target.launcher}){reason}")
    click.echo(f"Nodes:       {len(document.nodes)}: {listed(document.nodes)}")
    click.echo(f"Sweep:       {document.benchmark} on {document.fabric}, mode {document.mode}")
    if document.nics:
        click.echo(f"NICs:        {', '.join(document.nics)}")
    if document.group_of:
        sizes = Counter(document.group_of.values())
        click.echo(f"Groups:      {listed([f'{name} ({sizes[name]})' for name in sorted(sizes)])}")
    click.echo(f"Rounds:      {found.most_rounds or 'as many as it takes'}")
    if found.first is None or found.execution is None:
        click.echo("Tests:       none: all have ended")
    else:
        click.echo(f"Next round:  {_round(found.first)}")
        click.echo(f"\nFirst test: {found.first.tests[0]}")
        hosts = {host.name: index for index, host in enumerate(found.inventory.hosts)}
        part = found.inventory.part([hosts[name] for name in found.first.tests[0].nodes])
        launcher = launcher_named(target.launcher)
        for line in execution_lines(redacted_values(found.execution), part, found.request, launcher):
            click.echo(f"  {line}")
    click.echo("\nDry run: nothing was started.", err=True)


def _round(first: "Round") -> str:
    tests = listed([str(test) for test in first.tests])
    return f"{counted(len(first.tests), 'test')} ({first.purpose}): {tests}"
