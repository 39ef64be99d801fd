"""``fabbench completion``."""

import click
from click.shell_completion import get_completion_class

from fabbench.cli.suggestions import NamedChoice

_SHELLS = ("bash", "zsh", "fish")
_HELP = """Print the completion script of a shell.

It completes commands and options, targets, fabrics, instance types and ids of runs.

\b
eval "$(fabbench completion bash)"     # in ~/.bashrc
eval "$(fabbench completion zsh)"      # in ~/.zshrc
fabbench completion fish | source      # in ~/.config/fish/config.fish
"""


@click.command(help=_HELP)
@click.argument("shell", type=NamedChoice(_SHELLS))
def command(shell: str) -> None:
    """Print the completion script of a shell."""
    from fabbench.cli import cli

    completion_class = get_completion_class(shell)
    assert completion_class is not None  # noqa: S101 - click knows the three
    # For bash, click would first run it to check its version; the script is the same for all since 4.4.
    completion = completion_class(cli, {}, "fabbench", "_FABBENCH_COMPLETE")
    click.echo(completion.source_template % completion.source_vars())
