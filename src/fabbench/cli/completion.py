"""Completion of the values of options and arguments, and ``fabbench completion``."""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabbench.model.fabrics import FABRICS

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


def items(names: Iterable[str], incomplete: str) -> "list[CompletionItem]":
    """Return those names that begin with a word, each once."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _known(name: str) -> Iterator[str]:
    """Yield what the value of an option or argument of this name may be."""
    if name == "on":
        from fabbench.config import find_config, load
        from fabbench.launchers import options_of_launchers
        from fabbench.model.plugins import ALIASES

        launchers = options_of_launchers()
        path = find_config(Path.cwd(), os.environ)
        yield from (*(load(path, launchers=launchers).targets if path else ()), *launchers, *ALIASES)
    elif name in {"fabric", "fabrics"}:
        yield from FABRICS
    elif name in {"instance_type", "type_"}:
        from fabbench.catalog.instances import instance_catalog

        yield from instance_catalog()
    elif name in {"benchmark", "benchmarks"}:
        from fabbench.benchmarks import runnable_names

        yield from runnable_names()


def complete_value(name: str, incomplete: str) -> "list[CompletionItem]":
    """Complete the value of an option or argument by its name. On any error, nothing is completed."""
    try:
        return items(_known(name), incomplete)
    except Exception:  # noqa: BLE001 - a shell cannot show errors while it completes
        return []


def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete the value of an option or argument, for click."""
    del ctx
    return complete_value(param.name or "", incomplete)


def complete_run(ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
    """Complete the id of a run, and `last`, for click; and files, where nothing else fits."""
    del param
    from click.shell_completion import CompletionItem

    from fabbench.plan import STORE
    from fabbench.runs.folders import run_folders

    store = ctx.params.get("store") or Path(os.environ.get("FABBENCH_STORE") or STORE)
    found = items(("last", *(path.rpartition("-")[2] for path in run_folders(store))), incomplete)
    return found or [CompletionItem(incomplete, type="file")]


_SHELLS = ("bash", "zsh", "fish")
_HELP = """Print the completion script of a shell.

It completes commands and options, targets, fabrics, instance types and ids of runs.

\b
eval "$(fabbench completion bash)"     # in ~/.bashrc
eval "$(fabbench completion zsh)"      # in ~/.zshrc
fabbench completion fish | source      # in ~/.config/fish/config.fish
"""


@click.command("completion", help=_HELP)
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of a shell."""
    from click.shell_completion import get_completion_class

    from fabbench.cli import cli

    completion_class = get_completion_class(shell)
    assert completion_class is not None  # noqa: S101 - click knows the three
    # For bash, click would first run it to check its version; the script is the same for all since 4.4.
    completion = completion_class(cli, {}, "fabbench", "_FABBENCH_COMPLETE")
    click.echo(completion.source_template % completion.source_vars())
