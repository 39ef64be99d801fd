"""The command line, in this process."""

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import click
from click.testing import CliRunner

from fabbench.cli import cli


def runner(env: Mapping[str, str | None] | None = None) -> CliRunner:
    """Return a runner that keeps standard error apart, as every click since 8.2 does."""
    known = inspect.signature(CliRunner).parameters
    apart: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in known else {}
    return CliRunner(env=env, **apart)


def commands(
    group: click.Group = cli, context: click.Context | None = None
) -> Iterator[tuple[str, click.Command]]:
    """Yield every command below a group, and what calls it: `fabbench run nccl`."""
    context = context or click.Context(group, info_name="fabbench")
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command, name
        inner = click.Context(command, info_name=name, parent=context)
        yield inner.command_path, command
        if isinstance(command, click.Group):
            yield from commands(command, inner)
