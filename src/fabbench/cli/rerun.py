"""``fabbench rerun``: the command line of a past run, again."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from fabbench.cli import terminal
from fabbench.cli.complete import complete_run
from fabbench.cli.options import takes
from fabbench.cli.run_command import RESUMED
from fabbench.model.errors import RequestError
from fabbench.model.messages import REDACTED

if TYPE_CHECKING:
    from fabbench.runs.store import StoredRun


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True})
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
    start_again(ctx, open_run(run, store), store, more)


def start_again(ctx: click.Context, stored: "StoredRun", store: Path, more: Sequence[str] = ()) -> None:
    """Start the command line of a past run, or go on with it, if it is `RESUMED`."""
    if not stored.command:
        raise RequestError(
            f"Run {stored.id} does not record how it was started: it is from an older fabbench.",
            hint=f"Write the command again; fabbench show {stored.id} prints its options.",
        )
    terminal.say(f"{'Going on with' if RESUMED in ctx.meta else 'Repeating'} run {stored.id}: {stored.command_line}")
    name = "sweep" if stored.command[1] == "sweep" else "run"  # nothing else that a damaged run may name
    command = cast("click.Group", ctx.find_root().command).get_command(ctx.find_root(), name)
    if command is not None:
        words = rerun_words(stored.command[2:], more, target=stored.target, store=store)
        with command.make_context(name, words, parent=ctx.parent) as inner:
            command.invoke(inner)


def rerun_words(words: Sequence[str], more: Sequence[str], *, target: str, store: Path) -> list[str]:
    """Return the words of a command line with more options, on the target where it ran.

    Raise RequestError for a secret that is not stored, and is not given again.
    """
    end = words.index("--") if "--" in words else len(words)
    first, last = list(words[:end]), list(words[end:])
    names = {each.partition("=")[0] for each in more}
    for word in first:
        name = word.removeprefix("--env=").partition("=")[0]
        if REDACTED in word and name not in names and f"--env={name}" not in names:
            raise RequestError(
                f"The value of {name} is a secret, and is not stored.",
                hint=f"Pass it again: fabbench rerun … --env {name}=VALUE.",
            )
    if not any(word.partition("=")[0] == "--on" for word in (*first, *more)) and target:
        first += ["--on", target]
    return [*first, *more, "--store", str(store), *last]
