"""Writes a man page of every command into a directory: `make man`."""  # noqa: INP001 - a script

import re
import sys
from collections.abc import Iterator, Sequence
from copy import copy
from pathlib import Path

import click
from click_man.core import write_man_pages

from fabbench import __version__
from fabbench.cli import cli

STATUSES = Path(__file__).with_name("exit-statuses.md")
ROW = re.compile(r"^\| (\d+) \| (.+?) \|", re.MULTILINE)
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")
EXAMPLE = re.compile(r"^ *Example: (.+(?:\n(?! *$).+)*)\n?", re.MULTILINE)


def man_pages(directory: Path) -> None:
    """Write the pages: fabbench.1, fabbench-run.1, fabbench-run-nccl.1, and so on."""
    directory.mkdir(parents=True, exist_ok=True)
    loaded = _loaded(cli)
    write_man_pages("fabbench", loaded, version=__version__, target_dir=str(directory))
    for names, command in _commands(("fabbench",), loaded):
        page = directory / f"{'-'.join(names)}.1"
        text = page.read_text("utf-8") + "".join(_more(names, command))
        page.write_text(text, "utf-8")


def _commands(
    names: Sequence[str], command: click.Command
) -> Iterator[tuple[Sequence[str], click.Command]]:
    yield names, command
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from _commands((*names, name), each)


def _more(names: Sequence[str], command: click.Command) -> Iterator[str]:
    """Yield the sections that click-man does not know: examples, exit statuses, related pages."""
    examples = [" ".join(words.split()) for words in EXAMPLE.findall(command.help or "")]
    if examples:
        yield ".SH EXAMPLES\n"
        for example in examples:
            yield f".PP\n.EX\n{_escaped(example)}\n.EE\n"
    yield ".SH EXIT STATUS\n"
    for status, meaning in ROW.findall(STATUSES.read_text("utf-8")):
        plain = LINK.sub(r"\1", meaning).replace("`", "")
        yield f".TP\n.B {status}\n{_escaped(plain)}\n"
    yield ".SH SEE ALSO\n"
    below = sorted(command.commands) if isinstance(command, click.Group) else ()
    related = [names[:-1], *((*names, each) for each in below)]
    pages = [rf"\fB{'-'.join(each)}\fP(1)" for each in related if each]
    text = _escaped(", ".join(pages))
    yield f"{text}\n"


def _escaped(text: str) -> str:
    return text.replace("-", r"\-")


def _loaded(command: click.Command) -> click.Command:
    """Return a command as click-man wants it.

    With its short help, and with all commands of a group.
    """
    command = copy(command)
    command.short_help = command.get_short_help_str(limit=100)
    if not isinstance(command, click.Group):
        return command
    context = click.Context(command, info_name=command.name)
    found = {name: command.get_command(context, name) for name in command.list_commands(context)}
    return click.Group(
        command.name,
        {name: _loaded(each) for name, each in found.items() if each},
        params=command.params,
        help=command.help,
        short_help=command.short_help,
    )


if __name__ == "__main__":
    man_pages(Path(sys.argv[1]))
