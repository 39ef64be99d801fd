"""Writes docs/cli.md and parts of other pages (configuration, troubleshooting, normal-busbw) from the program."""  # noqa: INP001 - a script

import inspect
import re
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import click

from fabbench.analysis.setting import Setting
from fabbench.catalog.expectations import Published, Role, System, published, require_system, systems
from fabbench.cli import cli
from fabbench.config.sections import ABOUT, Config, Defaults
from fabbench.evidence.known_errors import BY_CODE, KnownError
from fabbench.launchers import options_of_launchers
from fabbench.model.hosts import options_of
from fabbench.model.log import METRICS
from fabbench.model.options import RARE, Option, declared
from fabbench.model.plan import Variant
from fabbench.model.units import format_size

TARGET = Path(__file__).with_name("cli.md")
CONFIGURATION = Path(__file__).with_name("configuration.md")
LONGEST_HEADING = 116
TROUBLESHOOTING = Path(__file__).with_name("troubleshooting.md")
NORMAL = Path(__file__).with_name("normal-busbw.md")
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
    return _filled(page, lists)


def _filled(page: str, parts: Mapping[str, str]) -> str:
    """Return a page with its generated parts replaced."""
    for name, text in parts.items():
        pattern = rf"(<!-- generated: {name} -->\n\n)(?:.*\n)*?(\n<!-- end -->)"
        page, count = re.subn(pattern, lambda match, text=text: match[1] + text + match[2], page)  # type: ignore[misc]
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


# ---------------------------------------------------------------- published figures


def normal(page: str) -> str:
    """Return docs/normal-busbw.md with the catalog's figures and ceilings."""
    groups: dict[tuple[str, str, int, str, int], list[Published]] = {}
    others = []
    for each in published():
        if each.system and each.role in {Role.REFERENCE, Role.CONFLICT}:
            if each.metric != "busbw":
                others.append(each)
                continue
            key = each.case, require_system(each.system).name, each.nodes or 0, each.fabric, each.nics or 0
            best = groups.setdefault(key, [])
            if not best or _large(each) > _large(best[0]):
                best.clear()
            if not best or _large(each) == _large(best[0]):
                best.append(each)
    used = [*(each for figures in groups.values() for each in figures), *others]
    sources = list(dict.fromkeys((each.source, each.date) for each in used))
    head = ("instance type", "nodes", "fabric", "size", "busbw (GB/s)", "of ceiling", "conditions", "source")
    tables = [
        f"### {case}\n\n"
        + _table(head, (_normal_row(key, groups[key], sources) for key in sorted(groups) if key[0] == case))
        for case in dict.fromkeys(key[0] for key in groups)
    ]
    parts = {
        "collectives": "\n".join(tables),
        "others": _table(
            ("instance type", "test", "size", "figure", "conditions", "source"),
            (_other_row(each, sources) for each in others),
        ),
        "ceilings": _table(("instance type", "rate", *(f"{k} nodes" for k in _NODES), "alltoall"), _ceilings()),
        "sources": "".join(
            f"{number}. {f'<{source}>' if source.startswith('http') else source}, {date}\n"
            for number, (source, date) in enumerate(sources, 1)
        ),
    }
    return _filled(page, parts)


_NODES = (2, 8)


def _large(figure: Published) -> int:
    """Return the size of a figure; one that is not stated counts as 1 GB, as in `fabbench.analysis.expectations`."""
    return figure.size or 1 << 30


def _normal_row(
    key: tuple[str, str, int, str, int], figures: list[Published], sources: list[tuple[str, str]]
) -> tuple[str, ...]:
    case, name, nodes, fabric, nics = key
    values = sorted(each.value for each in figures)
    ceiling = _ceiling(require_system(name), case, nodes, fabric, nics)
    size = format_size(_large(figures[0])) if any(each.size for each in figures) else "large"
    share = f"{100 * values[-1] / ceiling:.0f} %" if ceiling and fabric != "tcp" else "–"
    return (name, str(nodes), fabric or "–", size, _range(values), share, *_origin(figures, sources))


def _ceiling(system: System, case: str, nodes: int, fabric: str, nics: int = 0) -> float | None:
    setting = Setting(
        system=system,
        benchmark="nccl",
        case=case,
        nodes=nodes,
        gpus=system.gpus,
        nics=nics or None,
        fabric=fabric,
        is_stated=True,
        facts={},
        findings=frozenset(),
    )
    return setting.ceiling(METRICS["busbw"])


def _other_row(figure: Published, sources: list[tuple[str, str]]) -> tuple[str, ...]:
    rate = METRICS[figure.metric].unit == "B/s"
    shown = f"{figure.value / 1e9:.4g} GB/s" if rate else f"{figure.value * 1e6:.4g} us"
    size = format_size(figure.size) if figure.size else "large"
    name = require_system(figure.system).name
    program = figure.case.removesuffix("-b") or figure.benchmark
    test = f"{program.strip()}, both ways" if figure.case.endswith("-b") else program
    return (name, test, size, shown, *_origin([figure], sources))


def _origin(figures: list[Published], sources: list[tuple[str, str]]) -> tuple[str, str]:
    """Return the conditions of figures, and the numbers of their sources."""
    conditions = [each.conditions for each in figures if each.conditions]
    conditions += ["disputed" for each in figures[:1] if all(figure.role is Role.CONFLICT for figure in figures)]
    numbers = sorted({sources.index((each.source, each.date)) + 1 for each in figures})
    return "; ".join(dict.fromkeys(conditions)), ", ".join(map(str, numbers))


def _range(rates: list[float]) -> str:
    return "–".join(dict.fromkeys(f"{each / 1e9:.4g}" for each in (rates[0], rates[-1])))


def _ceilings() -> Iterator[tuple[str, ...]]:
    """Yield what the NICs of nodes with GPUs can carry; types that are alike share a row."""
    alike: dict[tuple[str, ...], list[str]] = {}
    for each in systems().values():
        if each.gpus > 1 and each.rate:
            most = [_ceiling(each, "all_reduce", nodes, each.fabric or "ib") for nodes in _NODES]
            most.append(_ceiling(each, "alltoall", _NODES[0], each.fabric or "ib"))
            row = tuple(f"{(rate or 0) / 1e9:.4g}" for rate in (each.rate, *most))
            alike.setdefault(row, []).append(each.name)
    for row, names in alike.items():
        yield from ((", ".join(names[first : first + 4]), *row) for first in range(0, len(names), 4))


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    lines = [[*head], *map(list, rows)]
    lines.insert(1, ["---"] * len(lines[0]))
    return "".join(f"| {' | '.join(each)} |\n" for each in lines)


# ---------------------------------------------------------------- known errors


def troubleshooting(page: str) -> str:
    """Return docs/troubleshooting.md with every known error: lines that show it, what it means, what to do."""
    head, mark, rest = page.partition("<!-- generated: errors -->\n\n")
    _, end, tail = rest.partition("<!-- end -->")
    return head + mark + "".join(_known_error(error) for error in BY_CODE.values() if error.examples) + end + tail


def _known_error(error: KnownError) -> str:
    heading = ", ".join(f"`{line}`" for line in error.examples)
    heading = heading if len(heading) < LONGEST_HEADING else f"`{error.examples[0]}`"
    return f"### {heading}\n\n" + _wrapped(f"{error.meaning} (`{error.code}`) {error.advice}") + "\n\n"


if __name__ == "__main__":
    TARGET.write_text(reference(), "utf-8")
    CONFIGURATION.write_text(configuration(CONFIGURATION.read_text("utf-8")), "utf-8")
    TROUBLESHOOTING.write_text(troubleshooting(TROUBLESHOOTING.read_text("utf-8")), "utf-8")
    NORMAL.write_text(normal(NORMAL.read_text("utf-8")), "utf-8")
