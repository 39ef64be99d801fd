"""Writes docs/cli.md, the reference of the command line, from the program itself."""  # noqa: INP001 - a script

import inspect
from collections.abc import Iterator
from pathlib import Path

import click

from fabbench.cli import cli

TARGET = Path(__file__).with_name("cli.md")
HEAD = """# Command line

<!-- Written by docs/generate.py from the program (`make reference`). Do not edit. -->
"""


def reference() -> str:
    """Give the whole text."""
    root = click.Context(cli, info_name="fabbench")
    sections = [HEAD, *_text(cli.help or ""), *_options(cli), *_commands(root, cli, level=2)]
    return "\n".join(sections).rstrip("\n") + "\n"


def _commands(parent: click.Context, group: click.Group, *, level: int) -> Iterator[str]:
    """Describe the commands of a group, and theirs."""
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None, name  # noqa: S101 - list_commands named it
        context = click.Context(command, info_name=name, parent=parent)
        yield f"\n{'#' * level} {context.command_path}\n"
        yield f"```text\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```\n"
        yield from _text(command.help or "")
        yield from _options(command)
        if isinstance(command, click.Group):
            yield from _commands(context, command, level=level + 1)


def _text(text: str) -> Iterator[str]:
    """Turn click's help text into Markdown; paragraphs that click leaves unwrapped are shown as they are."""
    for paragraph in inspect.cleandoc(text).split("\f")[0].split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f"```text\n{paragraph[2:]}\n```\n"
        else:
            yield paragraph.replace("\n", " ") + "\n"


def _options(command: click.Command) -> Iterator[str]:
    for option in command.params:
        if isinstance(option, click.Option) and not option.hidden:
            yield f"* `{_signature(option)}`{_notes(option)}: {' '.join((option.help or '').split())}"


def _signature(option: click.Option) -> str:
    names = ", ".join(option.opts) + "".join(f" / {name}" for name in option.secondary_opts)
    if option.is_flag or option.count:
        return names
    if isinstance(option.type, click.Choice):
        return f"{names} {option.metavar or '|'.join(map(str, option.type.choices))}"
    return f"{names} {option.metavar or option.type.name.upper()}"


def _notes(option: click.Option) -> str:
    notes = ["required"] if option.required else []
    notes += ["repeatable"] if option.multiple else []
    if not option.is_flag and isinstance(option.default, str | int | float | Path):
        notes.append(f"default `{option.default}`")
    if option.envvar:
        notes.append(f"environment `{option.envvar}`")
    return f" ({', '.join(notes)})" if notes else ""


if __name__ == "__main__":
    TARGET.write_text(reference(), "utf-8")
