"""Writes docs/cli.md and parts of other pages (configuration, troubleshooting) from the program itself."""  # noqa: INP001 - a script

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click

from fabbench.cli import cli
from fabbench.config.sections import ABOUT, Config, Defaults
from fabbench.evidence.known_errors import matching_errors
from fabbench.launchers import options_of_launchers
from fabbench.model.hosts import options_of
from fabbench.model.options import RARE, Option, declared
from fabbench.model.plan import Variant

TARGET = Path(__file__).with_name("cli.md")
CONFIGURATION = Path(__file__).with_name("configuration.md")
TROUBLESHOOTING = Path(__file__).with_name("troubleshooting.md")
HEAD = """# Command line

<!-- Written by docs/generate.py from the program (`make reference`). Do not edit. -->
"""

SHARED = """\
Every `fabbench run BENCHMARK` has the options of this section; other commands list which of them they share.
In brackets: the launchers (`--on`) with which an option has an effect. With any other, it is an error.
"""
RENDERED = "An option without an effect in the chosen format (`--as`) is an error that names the formats with one."
SECTIONS = {
    "Where to run": frozenset[str](),
    "Hosts over ssh": frozenset({"ssh", "slurm"}),
    "Kubernetes": frozenset({"kubernetes", "mpijob", "skypilot"}),
    "Slurm": frozenset({"slurm"}),
    "SkyPilot": frozenset({"skypilot"}),
    "This machine": frozenset({"local"}),
}
"""Sections of options of launchers, and the launchers whose options alone are there."""
REST = "What to measure and print"


class Entry(NamedTuple):
    """An option as the page has it."""

    flag: str
    signature: str
    about: str
    places: str
    """The launchers with which it has an effect, in brackets; empty: all."""

    @property
    def kind(self) -> tuple[str, str]:
        """What is the same in all commands that have this option."""
        return self.signature, self.about

    def __str__(self) -> str:
        return _wrapped(f"* {self.signature}: {self.about}{self.places}", "  ")


def reference() -> str:
    """Return the whole page."""
    root = click.Context(cli, info_name="fabbench")
    shared = _common(_subcommands(root, "run"))
    text = [HEAD, *_text(cli.help or ""), *map(str, _entries(cli)), "\n## Shared options\n", SHARED]
    for title, flags in _sections(shared).items():
        text += [f"\n### {title}\n", *(str(each) for each in shared if each.flag in flags)]
    for context, command in _commands(root, cli):
        text += _described(context, command, shared)
    return "\n".join(text).rstrip("\n") + "\n"


def _described(context: click.Context, command: click.Command, shared: list[Entry]) -> Iterator[str]:
    """Describe a command: what it does, its own options, and where the others are."""
    path, root = context.command_path, context.find_root()
    _, group, *rest = path.split()
    usage = " ".join([path, *command.collect_usage_pieces(context)])
    yield f"\n{'#' * (2 + len(rest))} {path}\n\n```text\n{usage}\n```\n"
    entries = _entries(command)
    if rest:
        common = _kinds(_common(_subcommands(root, group)))
        entries = [each for each in entries if each.kind not in common]
    elif isinstance(command, click.Group):
        entries += [each for each in _common(_subcommands(root, group)) if each not in entries]
    of_run: list[Entry] = []
    if group == "render" and rest:
        known = _kinds(_entries(_subcommands(root, "run")[rest[0]]))
        of_run = [each for each in entries if each.kind in known]
    else:
        yield from _text(command.help or "")
        yield from _metrics(command) if group == "run" else ()
    elsewhere = _kinds([*shared, *of_run])
    yield from map(str, (each for each in entries if each.kind not in elsewhere))
    if of_run:
        flags = ", ".join(f"`{each.flag}`" for each in of_run)
        yield _wrapped(f"Options of [fabbench run {rest[0]}](#fabbench-run-{rest[0]}): {flags}.")
    if path != "fabbench run":
        yield from _references(entries, shared)
    if path == "fabbench render":
        yield f"\n{RENDERED}"


def _references(taken: list[Entry], shared: list[Entry]) -> Iterator[str]:
    """Name the sections of shared options that a command has, and the options where it has not all."""
    parts, kinds = [], _kinds(shared)
    for title, flags in _sections(shared).items():
        link = f"[{title}](#{title.lower().replace(' ', '-')})"
        found = [f"`{each.flag}`" for each in taken if each.kind in kinds and each.flag in flags]
        if len(found) == len(flags):
            parts.append(link)
        elif found:
            parts.append(f"{', '.join(found)} ({link})")
    if parts:
        yield "\n" + _wrapped(f"Shared options: {'; '.join(parts)}.")


def _commands(parent: click.Context, group: click.Group) -> Iterator[tuple[click.Context, click.Command]]:
    """Yield the commands of a group, and theirs."""
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None, name  # noqa: S101 - list_commands named it
        context = click.Context(command, info_name=name, parent=parent)
        yield context, command
        if isinstance(command, click.Group):
            yield from _commands(context, command)


@cache
def _subcommands(root: click.Context, name: str) -> dict[str, click.Command]:
    return {
        context.info_name or "": command
        for context, command in _commands(root, cli)
        if context.parent is not None and context.parent.info_name == name
    }


def _common(commands: dict[str, click.Command]) -> list[Entry]:
    """Return the options that all of these commands have."""
    first, *others = (_entries(each) for each in commands.values())
    return [each for each in first if all(each in other for other in others)]


def _sections(shared: list[Entry]) -> dict[str, list[str]]:
    """Return the sections that have options, with their flags."""
    sections: dict[str, list[str]] = {title: [] for title in (*SECTIONS, REST)}
    for each in shared:
        sections[_section(each.flag)].append(each.flag)
    return {title: flags for title, flags in sections.items() if flags}


@cache
def _section(flag: str) -> str:
    """Return the smallest section for all launchers that have an option."""
    launchers = {
        name
        for name, kind in options_of_launchers().items()
        if any(flag in each.flags for each in options_of(kind).values())
    }
    if not launchers:
        return next(iter(SECTIONS)) if flag in {"--on", "--config"} else REST
    fitting = [title for title, names in SECTIONS.items() if launchers <= names]
    return min(fitting, key=lambda title: len(SECTIONS[title]), default=next(iter(SECTIONS)))


def _text(text: str) -> Iterator[str]:
    """Turn click's help text into Markdown; paragraphs that click leaves unwrapped are shown as they are."""
    for paragraph in inspect.cleandoc(text).split("\f")[0].split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f"```text\n{paragraph[2:]}\n```\n"
        elif paragraph.strip():
            yield _wrapped(paragraph) + "\n"


def _kinds(entries: Iterable[Entry]) -> set[tuple[str, str]]:
    return {each.kind for each in entries}


def _entries(command: click.Command) -> list[Entry]:
    return [_entry(option) for option in command.params if isinstance(option, click.Option) and not option.hidden]


_METRICS = re.compile(r" Metrics: (.+?)\.(?= Needs |$)")
"""What the help of an option says of a benchmark alone: its section says it once."""


def _metrics(command: click.Command) -> Iterator[str]:
    """Say which metrics a benchmark's command takes."""
    gates = (each.help or "" for each in command.params if isinstance(each, click.Option))
    texts = [match[1] for text in gates if (match := _METRICS.search(text))]
    if texts:
        yield _wrapped(f"Metrics of `--gate`: {texts[0]}.") + "\n"


def _entry(option: click.Option) -> Entry:
    about = _METRICS.sub("", " ".join((option.help or "").split()))
    match = re.fullmatch(r"(.*?)( \[[a-z, ]+\])?", about)
    assert match is not None  # noqa: S101 - it matches anything
    signature = f"`{_signature(option)}`{_notes(option)}"
    return Entry(max(option.opts, key=len), signature, match[1], match[2] or "")


def _wrapped(text: str, indent: str = "") -> str:
    """Break lines where Markdown has none of its marks at the beginning of the next."""
    words = re.sub(r" (?=[-+*#>=] |\d+[.)] )", "\0", " ".join(text.split()))
    filled = textwrap.fill(words, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return filled.replace("\0", " ")


def _signature(option: click.Option) -> str:
    names = ", ".join(option.opts) + "".join(f" / {name}" for name in option.secondary_opts)
    if option.is_flag or option.count:
        return names
    if isinstance(option.type, click.Choice):
        return f"{names} {option.metavar or '|'.join(map(str, option.type.choices))}"
    return f"{names}{'=' if names.startswith(RARE) else ' '}{option.metavar or option.type.name.upper()}"


def _notes(option: click.Option) -> str:
    notes = ["required"] if option.required else []
    notes += ["repeatable"] if option.multiple else []
    if not option.is_flag and isinstance(option.default, str | int | float | Path):
        notes.append(f"default `{option.default}`")
    elif isinstance(option.show_default, str):
        notes.append(f"default {option.show_default}")
    if option.envvar:
        notes.append(f"environment `{option.envvar}`")
    return f" ({', '.join(notes)})" if notes else ""


# ---------------------------------------------------------------- fabbench.yaml


def configuration(page: str) -> str:
    """Return docs/configuration.md with current lists of keys."""
    lists = {
        "keys": _keys(declared(Config).values(), "defaults", "variants", "targets"),
        "defaults": _keys(declared(Defaults).values(), "run"),
        "variant": _keys(declared(Variant).values()),
        "target": _target_keys(),
    }
    for name, rows in lists.items():
        pattern = rf"(<!-- generated: {name} -->\n\n)(?:.*\n)*?(\n<!-- end -->)"
        page, count = re.subn(pattern, lambda match, rows=rows: match[1] + rows + match[2], page)  # type: ignore[misc]
        assert count == 1, name  # noqa: S101 - a script
    return page


def _keys(options: Iterable[Option], *others: str) -> str:
    rows = [(each.key, each.expected, each.help) for each in options]
    return "".join(_key(*row) for row in (*rows, *((name, *ABOUT[name]) for name in others)))


def _key(key: str, wanted: str, about: str) -> str:
    return _wrapped(f"* `{key}` ({wanted}): {about}", "  ") + "\n"


def _target_keys() -> str:
    """Return the keys of targets, by the launchers that know them."""
    launchers = options_of_launchers()
    found: dict[tuple[str, str, str], list[str]] = {}
    for name, kind in launchers.items():
        for each in options_of(kind).values():
            if each.only != "render":
                default = f" Default: {each.default}." if each.default else ""
                found.setdefault((each.key, each.expected, f"{each.help}{default}"), []).append(name)
    groups: dict[tuple[str, ...], list[str]] = {}
    for row, names in found.items():
        groups.setdefault(tuple(sorted(names)), []).append(_key(*row))
    first, last = (_key(name, *ABOUT[name]) for name in ("launcher", "options"))
    everywhere = groups.pop(tuple(sorted(launchers)), [])
    text = "Every launcher:\n\n" + "".join((first, *everywhere, last))
    for shared, lines in sorted(groups.items(), key=lambda each: (-len(each[0]), each[0])):
        text += "\n" + _wrapped(f"{', '.join(f'`{name}`' for name in shared)}:") + "\n\n" + "".join(lines)
    return text


# ---------------------------------------------------------------- known errors


def troubleshooting(page: str) -> str:
    """Return docs/troubleshooting.md with what each line in a heading means, and what to do about it."""
    head, mark, rest = page.partition("<!-- generated: errors -->\n\n")
    old, end, tail = rest.partition("<!-- end -->")
    return head + mark + "".join(map(_known_error, re.findall(r"^### (.*)", old, re.MULTILINE))) + end + tail


def _known_error(heading: str) -> str:
    shown = {each for line in re.findall(r"`(.*?)`", heading) for each in matching_errors(line)}
    assert len(shown) == 1, heading  # noqa: S101 - a script
    (error,) = shown
    return f"### {heading}\n\n" + _wrapped(f"{error.meaning} (`{error.code}`) {error.advice}") + "\n\n"


if __name__ == "__main__":
    TARGET.write_text(reference(), "utf-8")
    CONFIGURATION.write_text(configuration(CONFIGURATION.read_text("utf-8")), "utf-8")
    TROUBLESHOOTING.write_text(troubleshooting(TROUBLESHOOTING.read_text("utf-8")), "utf-8")
