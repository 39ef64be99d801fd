"""``fabbench rerun``: the command line of a past run, again."""

from pathlib import Path
from typing import cast

import click

from fabbench.cli import terminal
from fabbench.cli.complete import complete_run
from fabbench.cli.host_options import rerun_words
from fabbench.cli.options import takes
from fabbench.cli.run_command import RESUMED
from fabbench.model.errors import RequestError


@click.command(
    short_help="Repeat a past run.", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True}
)
@click.argument("run", metavar="RUN", default="last", shell_complete=complete_run)
@click.argument("more", metavar="[OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@takes("store")
@click.pass_context
def command(ctx: click.Context, run: str, more: tuple[str, ...], store: Path) -> None:
    """Repeat a past run: the same command line, on the same target.

    RUN is a directory, an id, a name (run --name), the beginning or the end of one, or `last`. Further
    options are those of `fabbench run`, and come after those of the past run.

    Example: fabbench rerun last --repeat 5

    Example: fabbench rerun last --dry-run
    """
    from fabbench.runs.inputs import open_run

    if run.startswith("-"):
        run, more = "last", (run, *more)
    stored = open_run(run, store)
    if not stored.command:
        raise RequestError(
            f"Run {stored.id} does not record how it was started: it is from an older fabbench.",
            hint=f"Write the command again; fabbench show {stored.id} prints its options.",
        )
    words = rerun_words(stored.command[2:], more, target=stored.target, store=store)
    terminal.say(f"{'Going on with' if RESUMED in ctx.meta else 'Repeating'} run {stored.id}: {stored.command_line}")
    name = "sweep" if stored.command[1] == "sweep" else "run"  # nothing else that a damaged run may name
    again = cast("click.Group", ctx.find_root().command).get_command(ctx.find_root(), name)
    if again is not None:
        with again.make_context(name, words, parent=ctx.parent) as inner:
            again.invoke(inner)
