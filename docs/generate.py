"""Writes docs/cli.md and parts of other pages from the program.

These are configuration, troubleshooting and normal-busbw.
"""  # noqa: INP001 - a script

import inspect
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import chain, groupby
from pathlib import Path
from typing import NamedTuple

import click

from fabbench.analysis.setting import Setting
from fabbench.catalog.expectations import Published, Role, published
from fabbench.catalog.systems import System, require_system, systems
from fabbench.cli import cli
from fabbench.cli.click_options import OptionType
from fabbench.config.sections import ABOUT, Config, Defaults, options_of
from fabbench.evidence.known_errors import KnownError, by_code
from fabbench.launchers import options_of_launchers
from fabbench.model.formats import SUFFIXES
from fabbench.model.log import METRICS
from fabbench.model.options import RARE, Option, declared
from fabbench.model.plan import Variant
from fabbench.model.units import format_size

LONGEST_LINE = 120
HEAD = """# Command line

<!-- Written by docs/generate.py from the program (`make reference`). Do not edit. -->

{about}

`--help` of each command has examples. [Exit statuses](exit-statuses.md) are the same for all.

{own}

## Output formats

Default: text on a terminal, else Markdown. Lists (`check`, `parse`, `runs`) are text anywhere,
and so is what has no Markdown.

{formats}

## Shared options

An option that several commands have is described once, here or below `fabbench run`; commands
name those that they have, with their own defaults. "Repeatable" options can be given several times.
Sizes are 1024-based: 64, 4K, 1G. Times in SECONDS may be 90, 10m or 2h. "With …" names the
launchers with which an option has an effect; with any other, it is an error. In csv, an
[apostrophe](formats.md#output-is-plain-text) keeps a spreadsheet from running a cell.
"""
RENDERED = (
    "An option without an effect in the chosen format (`--as`) is an error that names the "
    "formats with one."
)
EVERY, RUN, REST = "Every command", "What to measure and print", "Logs, runs and results"
SECTIONS = {
    "Where to run": frozenset[str](),
    "Hosts over ssh": frozenset({"ssh", "slurm"}),
    "Kubernetes": frozenset({"kubernetes", "mpijob", "skypilot"}),
    "Slurm": frozenset({"slurm"}),
    "SkyPilot": frozenset({"skypilot"}),
    "This machine": frozenset({"local"}),
}
"""Sections of options of launchers, and the launchers whose options alone are there."""
GUIDES = {
    "accept": "accept",
    "check": "check",
    "watch": "watch",
    "run": "runs",
    "sweep": "sweep",
    "tune": "tune",
    "rerun": "runs#list-show-repeat-remove",
    "render": "render",
    "compare": "compare",
    "parse": "formats#what-is-read",
    "explain": "troubleshooting",
    "report": "runs#a-page-to-send",
    "mcp": "mcp",
    "runs": "runs#list-show-repeat-remove",
    "runs rm": "runs#list-show-repeat-remove",
    "show": "runs#list-show-repeat-remove",
    "history": "runs#history",
    "clean": "kubernetes#when-something-breaks",
    "config": "configuration",
    "completion": "configuration#shell-completion",
}
"""Pages with the rest of what a command's help says."""


class Entry(NamedTuple):
    """An option as the page has it."""

    flag: str
    signature: str
    notes: str
    """What may differ between commands that have the option: default, suffixes."""
    about: str
    places: str
    """The launchers with which it has an effect; empty: all."""

    @property
    def kind(self) -> tuple[str, str]:
        """What is the same in all commands that have this option."""
        return self.signature, self.about

    def named(self, described: str = "") -> str:
        """Return the option where it is not described, with what the description does not say."""
        notes, others = (re.findall(r"default [^,)]+", text) for text in (self.notes, described))
        left = [each for each in notes if each not in others]
        return f"`{self.flag}`" + (f" ({', '.join(left)})" if left else "")

    def __str__(self) -> str:
        return _wrapped(
            f"* `{self.signature}`{self.notes}: {self.about}{self.places and f' [{self.places}]'}",
            "  ",
        )


def reference(page: str) -> str:
    """Return docs/cli.md; nothing of the page that is there stays."""
    del page
    root = click.Context(cli, info_name="fabbench")
    everywhere = _entries(cli)
    own = [str(each) for each in everywhere if each.flag == "--version"]
    about = next(_text(cli.help or ""))
    text = [HEAD.format(about=about, own="\n".join(own), formats=_formats(root))]
    sections = _shared(root, [each for each in everywhere if each.flag != "--version"])
    for title, entries in sections.items():
        text.append(f"### {title}\n")
        for places, group in groupby(
            sorted(entries, key=lambda each: each.places), lambda each: each.places
        ):
            text += [f"With {places}:\n"] if "," in places else []
            text += [*(str(each._replace(places="")) for each in group), ""]
    for context, command in _commands(root, cli):
        text += _described(context, command, sections)
    return re.sub(r"\n{3,}", "\n\n", "\n".join(text)).rstrip("\n") + "\n"


def _formats(root: click.Context) -> str:
    """Return a table of all formats: their suffixes, and the commands that write them."""
    writers: dict[str, list[str]] = {form: [] for form in SUFFIXES}
    for context, command in _commands(root, cli):
        name = context.command_path.split()[1]
        types = [option.type for option in command.params if option.name == "form"]
        for form in chain.from_iterable(
            each.names for each in types if isinstance(each, OptionType)
        ):
            if name not in writers[form]:
                writers[form].append(name)
    head = ("`--format`", "`-o FILE`", "written by")
    rows = [(f"`{form}`", SUFFIXES[form], ", ".join(of)) for form, of in writers.items()]
    return _table(head, rows)


def _shared(root: click.Context, everywhere: list[Entry]) -> dict[str, list[Entry]]:
    """Return the options of Shared options, by section.

    Those of all benchmarks, and of several other commands.
    """
    sections: dict[str, list[Entry]] = {title: [] for title in (EVERY, *SECTIONS, RUN, REST)}
    benchmarks = _subcommands(root, "run")
    sections[EVERY] = everywhere
    for each in _common(benchmarks):
        if each.kind not in _kinds(everywhere):
            sections[_section(each.flag)].append(each)
    taken = _kinds(
        [*everywhere, *(each for command in benchmarks.values() for each in _entries(command))]
    )
    commands = [
        (context, command)
        for context, command in _commands(root, cli)
        if not _of_benchmark(context)
    ]
    entries = [
        each for _, command in commands for each in _entries(command) if each.kind not in taken
    ]
    several = Counter(each.kind for each in entries)
    firsts = {
        each.kind: each._replace(notes="") for each in reversed(entries) if several[each.kind] > 1
    }
    sections[REST] = [*reversed(firsts.values())]
    return {title: entries for title, entries in sections.items() if entries}


def _of_benchmark(context: click.Context, *groups: str) -> bool:
    """Return whether a command is that of a benchmark, below one of these groups."""
    return context.parent is not None and context.parent.info_name in (
        groups or ("run", "render", "sweep", "tune")
    )


def _described(
    context: click.Context, command: click.Command, sections: Mapping[str, list[Entry]]
) -> Iterator[str]:
    """Describe a command: what it does, its own options, and which it shares."""
    if _of_benchmark(context, "render", "sweep", "tune"):
        return
    root, group = context.find_root(), context.info_name or ""
    path = context.command_path.removeprefix("fabbench ")
    yield from _introduced(context, command, path)
    entries = [*_entries(command)]
    known = _kinds(each for shared in sections.values() for each in shared)
    below = _subcommands(root, group) if isinstance(command, click.Group) else {}
    common = (
        [each for each in _common(below) if each.kind not in _kinds(sections[EVERY])]
        if below
        else []
    )
    if _of_benchmark(context, "run"):
        yield from _metrics(command)
        benchmarks = _subcommands(root, "run")
        known |= _kinds(_several(benchmarks))
        entries = [each for each in entries if each.kind not in _kinds(_common(benchmarks))]
    elif context.parent is not root:
        above = _kinds(_common(_subcommands(root, path.split()[0])))
        entries = [each for each in entries if each.kind not in above & known]
    elif group == "run":
        entries += [each._replace(notes="") for each in _several(below) if each.kind not in known]
    else:
        entries += [each for each in common if each.kind not in _kinds(entries)]
    own = [(each, _without(each, sections)) for each in entries if each.kind not in known]
    yield from (str(short) for _, short in own if short.about)
    shared = [each for each in entries if each.kind in known]
    flags = {each.flag: each for each in sections["Where to run"]}
    yield from _references(
        [*shared, *(flags[each.flag] for each, short in own if not short.about)], sections
    )
    if group == "tune":
        yield "\nEach benchmark has its options of [fabbench run](#fabbench-run)."
    elif group in ("render", "sweep"):
        yield from _differences(below, _subcommands(root, "run"))
    elif common and group != "run":
        yield "\n" + _wrapped(
            f"All of its subcommands have {', '.join(f'`{each.flag}`' for each in common)}."
        )
    if path == "render":
        yield f"\n{RENDERED}"


def _introduced(context: click.Context, command: click.Command, path: str) -> Iterator[str]:
    """Say what a command does: as its help does, or with a guide that says the rest."""
    yield f"\n{'#' * (2 + path.count(' '))} fabbench {path}\n"
    help_ = _ARGUMENTS.sub("", command.help or "")
    paragraphs = [each for each in _text(help_) if not each.startswith("Example: ")]
    if path == "run":
        paragraphs[0] += (
            "\nAfter --, a benchmark takes options of the program itself; in pairs, for both "
            "sides.\n"
        )
    yield from (paragraphs[:1] if path in GUIDES else paragraphs)
    arguments = [
        each
        for each in command.collect_usage_pieces(context)
        if each not in {"[OPTIONS]", "[-- OPTIONS]"}
    ]
    if arguments and not isinstance(command, click.Group):
        yield _wrapped(f"Usage: `fabbench {path} {' '.join(arguments)}`") + "\n"
    if path in GUIDES:
        yield f"Guide: {_link(GUIDES[path])}\n"


def _link(guide: str) -> str:
    """Return a link to a page or a section of one, with its heading."""
    page, _, anchor = guide.partition("#")
    headings = re.findall(
        r"(?m)^#+ (.*)", Path(__file__).with_name(f"{page}.md").read_text("utf-8")
    )
    anchors = {re.sub(r"[^\w ]", "", each.lower()).replace(" ", "-"): each for each in headings}
    title = anchors[anchor] if anchor else headings[0]
    return f"[{title}]({page}.md{anchor and '#'}{anchor})"


def _without(entry: Entry, shared: Mapping[str, list[Entry]]) -> Entry:
    """Return an option without what it says of launchers as that of the same name does."""
    known = {
        text
        for every in shared.values()
        for each in every
        if each.flag == entry.flag
        for text in _clauses(each)
    }
    left = [each for each in _clauses(entry) if each not in known]
    return entry._replace(about=" ".join(left)) if entry.about.startswith("On ") else entry


def _clauses(entry: Entry) -> list[str]:
    """Split what an option says of launchers one by one: "On kubernetes, mpijob: … On slurm: …"."""
    parts = re.split(r"(?:^| )On ([a-z, ]+): ", entry.about)[1:]
    return [
        f"On {', '.join(sorted(parts[at].split(', ')))}: {parts[at + 1]}"
        for at in range(0, len(parts) - 1, 2)
    ]


def _several(commands: Mapping[str, click.Command]) -> list[Entry]:
    """Return the options that two or more of these commands have."""
    entries = [each for command in commands.values() for each in _entries(command)]
    several = Counter(each.kind for each in entries)
    return [*{each.kind: each for each in entries if several[each.kind] > 1}.values()]


def _references(taken: list[Entry], sections: Mapping[str, list[Entry]]) -> Iterator[str]:
    """Name the shared options that a command has: a section that it has whole by its title."""
    parts = []
    for title, entries in sections.items():
        found = [each for each in taken if each.kind in _kinds(entries)]
        taken = [each for each in taken if each not in found]
        if len(found) == len(entries) and title != REST:
            parts += [f"[{title}](#{title.lower().replace(' ', '-')})"] if title != EVERY else []
        elif 2 * len(found) > len(entries) + 2 and title in SECTIONS:
            left = ", ".join(f"`{each.flag}`" for each in entries if each.kind not in _kinds(found))
            parts.append(f"[{title}](#{title.lower().replace(' ', '-')}) without {left}")
        elif title != EVERY:
            notes = {each.kind: each.notes for each in entries}
            parts += [each.named(notes[each.kind]) for each in found]
    parts += [each.named() for each in taken]
    if parts:
        yield "\n" + _wrapped(
            f"Shared: {('; ' if any(' without ' in each for each in parts) else ', ').join(parts)}."
        )


def _differences(
    commands: Mapping[str, click.Command], runs: Mapping[str, click.Command]
) -> Iterator[str]:
    """Say which options the benchmarks have here, and where defaults differ from those of run."""
    names = f" ({', '.join(commands)})" if len(commands) < len(runs) else ""
    yield (
        "\n"
        + _wrapped(
            f"Each benchmark{names} has its options of [fabbench run](#fabbench-run), except:"
        )
        + "\n"
    )
    differing: dict[str, list[str]] = {}
    everywhere = _kinds(_common(runs))
    for name, command in commands.items():
        own = {each.kind: each for each in _entries(command)}
        ours = [each for each in _entries(runs[name]) if each.kind not in everywhere]
        changed = [
            own[each.kind].named() for each in ours if each.kind in own and own[each.kind] != each
        ]
        changed += [f"no `{each.flag}`" for each in ours if each.kind not in own]
        differing.setdefault(", ".join(changed), []).append(name)
    yield from (
        _wrapped(f"* {', '.join(names)}: {how}", "  ") for how, names in differing.items() if how
    )


def _commands(
    parent: click.Context, group: click.Group
) -> Iterator[tuple[click.Context, click.Command]]:
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


def _common(commands: Mapping[str, click.Command]) -> list[Entry]:
    """Return the options that all of these commands have; none of a single one."""
    first, *others = (_entries(each) for each in commands.values())
    return [each for each in first if others and all(each in other for other in others)]


@cache
def _section(flag: str) -> str:
    """Return the smallest section for all launchers that have an option."""
    launchers = {
        name
        for name, kind in options_of_launchers().items()
        if any(flag in each.flags for each in options_of(kind).values())
    }
    if not launchers:
        return next(iter(SECTIONS)) if flag in {"--on", "--config"} else RUN
    fitting = [title for title, names in SECTIONS.items() if launchers <= names]
    return min(fitting, key=lambda title: len(SECTIONS[title]), default=next(iter(SECTIONS)))


def _text(text: str) -> Iterator[str]:
    """Turn click's help text into Markdown.

    Paragraphs that click leaves unwrapped are shown as they are.
    """
    for paragraph in inspect.cleandoc(text).split("\f")[0].split("\n\n"):
        if paragraph.startswith("\b\n"):
            yield f"```text\n{paragraph[2:]}\n```\n"
        elif paragraph.strip():
            yield _wrapped(paragraph) + "\n"


def _kinds(entries: Iterable[Entry]) -> set[tuple[str, str]]:
    return {each.kind for each in entries}


@cache
def _entries(command: click.Command) -> tuple[Entry, ...]:
    return tuple(
        _entry(option)
        for option in command.params
        if isinstance(option, click.Option) and not option.hidden
    )


_ARGUMENTS = re.compile(
    r"\s*Options\s+of\s+the\s+programs?\s+(?:itself|themselves)\s+go\s+after\s+--[^.]*\."
)
_METRICS = re.compile(r" Metrics: (.+?)\.(?= Needs |$)")
"""What the help of an option says of a benchmark alone: its section says it once."""


def _metrics(command: click.Command) -> Iterator[str]:
    """Say which metrics a benchmark's command takes."""
    gates = (each.help or "" for each in command.params if isinstance(each, click.Option))
    texts = [
        match[1].partition(", such as")[0] for text in gates if (match := _METRICS.search(text))
    ]
    if texts:
        yield _wrapped(f"Metrics of `--gate`: {texts[0]}.") + "\n"


_SUFFIXES = re.compile(r", in the format that its suffix stands for: (.+)\.$")
_SAID_ONCE = re.compile(r" \(1024-based: [^)]*\)| Can be given several times\.")
"""What the page says once."""


def _entry(option: click.Option) -> Entry:
    about = _SAID_ONCE.sub("", _METRICS.sub("", " ".join((option.help or "").split())))
    suffixes = _SUFFIXES.search(about)
    about, _, places = _SUFFIXES.sub(", in the format of its suffix.", about).partition(" [")
    notes = _notes(option) + (f" ({suffixes[1]})" if suffixes else "")
    return Entry(max(option.opts, key=len), _signature(option), notes, about, places.rstrip("]"))


def _wrapped(text: str, indent: str = "") -> str:
    """Break lines where Markdown has none of its marks at the beginning of the next."""
    words = re.sub(r" (?=[-+*#>=] |\d+[.)] )", "\0", " ".join(text.split()))
    filled = textwrap.fill(
        words, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return filled.replace("\0", " ")


def _signature(option: click.Option) -> str:
    names = ", ".join(option.opts) + "".join(f" / {name}" for name in option.secondary_opts)
    if option.is_flag or option.count:
        return names
    joint = "=" if names.startswith(RARE) else " "
    return f"{names}{joint}{option.metavar or option.type.name.upper()}"


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
    """Return the keys of targets that are no option, and those whose option has another name."""
    named: dict[str, Option] = {}
    for kind in options_of_launchers().values():
        for each in options_of(kind).values():
            if each.for_runs and not {f"--{each.key}", f"{RARE}{each.key}"} & {*each.flags}:
                named.setdefault(each.key, each)
    pairs = [f"`{key}` (`{max(each.flags, key=len)}`)" for key, each in named.items() if each.flags]
    text = (
        _wrapped(f"The keys are those of the options, except: {', '.join(pairs)}. Others:") + "\n\n"
    )
    others = [_key(each.key, each.expected, each.help) for each in named.values() if not each.flags]
    return text + "".join(
        (*(_key(name, *ABOUT[name]) for name in ("launcher", "options")), *others)
    )


# ---------------------------------------------------------------- published figures

Measured = tuple[str, str, int, str, int]
"""What figures are of: case, type, nodes, fabric, NICs."""


def normal(page: str) -> str:
    """Return docs/normal-busbw.md with the catalog's figures and ceilings."""
    groups: dict[Measured, list[Published]] = {}
    others = []
    for each in published():
        if each.system and each.role in {Role.REFERENCE, Role.CONFLICT}:
            if each.metric != "busbw":
                others.append(each)
                continue
            key = (
                each.case,
                require_system(each.system).name,
                each.nodes or 0,
                each.fabric,
                each.nics or 0,
            )
            best = groups.setdefault(key, [])
            if not best or _large(each) > _large(best[0]):
                best.clear()
            if not best or _large(each) == _large(best[0]):
                best.append(each)
    used = [*(each for figures in groups.values() for each in figures), *others]
    sources = list(dict.fromkeys((each.source, each.date) for each in used))
    head = ("instance type", "fabric", "nodes: busbw (%)", "size", "conditions", "source")
    tables = []
    for case in dict.fromkeys(key[0] for key in groups):
        rows = groupby(
            sorted(key for key in groups if key[0] == case), lambda key: (key[1], key[3], key[4])
        )
        lines = (_normal_rows({key: groups[key] for key in alike}, sources) for _, alike in rows)
        tables.append(f"### {case}\n\n{_table(head, chain.from_iterable(lines))}")
    parts = {
        "collectives": "\n".join(tables),
        "others": _items(_others(others, sources)),
        "ceilings": _items(_ceilings()),
        "sources": "".join(
            f"{number}. {f'<{source}>' if source.startswith('http') else source}, {date}\n"
            for number, (source, date) in enumerate(sources, 1)
        ),
    }
    return _filled(page, parts)


_NODES = (2, 8)


def _large(figure: Published) -> int:
    """Return the size of a figure.

    One that is not stated counts as 1 GB, as in `fabbench.analysis.expectations`.
    """
    return figure.size or 1 << 30


def _normal_rows(
    groups: Mapping[Measured, list[Published]], sources: list[tuple[str, str]]
) -> list[tuple[str, ...]]:
    """Return one row for figures that are alike, or more where it would be too long."""
    row, keys = _normal_row(groups, sources), [*groups]
    if len(_table(row, ()).splitlines()[0]) <= LONGEST_LINE or len(keys) == 1:
        return [row]
    halves = keys[: (len(keys) + 1) // 2], keys[(len(keys) + 1) // 2 :]
    return [
        row for half in halves for row in _normal_rows({key: groups[key] for key in half}, sources)
    ]


def _normal_row(
    groups: Mapping[Measured, list[Published]], sources: list[tuple[str, str]]
) -> tuple[str, ...]:
    """Return a row for one type, fabric and number of NICs, with figures by number of nodes."""
    figures = [each for several in groups.values() for each in several]
    origins = [(key[2], *_origin(several, sources)) for key, several in groups.items()]
    alike = len({conditions for _, conditions, _ in origins}) == 1
    conditions = [text if alike or not text else f"{nodes}: {text}" for nodes, text, _ in origins]
    shown = []
    for (case, name, nodes, fabric, nics), several in groups.items():
        values = sorted(each.value for each in several)
        ceiling = _ceiling(require_system(name), case, nodes, fabric, nics)
        share = f" ({100 * values[-1] / ceiling:.0f})" if ceiling and fabric != "tcp" else ""
        shown.append(f"{nodes}: {_range(values)}{share}")
    sizes = dict.fromkeys(
        format_size(each.size) for each in sorted(figures, key=_large) if each.size
    )
    about = ". ".join(dict.fromkeys(filter(None, conditions)))
    return (
        name,
        fabric or "–",
        ", ".join(shown),
        ", ".join(sizes) or "large",
        about,
        _origin(figures, sources)[1],
    )


def _ceiling(system: System, case: str, nodes: int, fabric: str, nics: int = 0) -> float | None:
    setting = Setting(
        system=system,
        benchmark="nccl",
        case=case,
        nodes=nodes,
        gpus=system.gpus,
        nics=nics or None,
        fabric="nvlink" if fabric == "nvls" else fabric,
        is_stated=True,
        facts={"nvls": "yes" if fabric == "nvls" else "no"},
        findings=frozenset(),
    )
    return setting.ceiling(METRICS["busbw"])


def _others(
    figures: Iterable[Published], sources: list[tuple[str, str]]
) -> Iterator[tuple[str, str]]:
    """Yield each type, and its tests with their figures by size and their sources."""
    for system, tests in groupby(figures, lambda each: each.system):
        shown = []
        for (case, size), alike in groupby(tests, lambda each: (each.case, each.size)):
            several = [*alike]
            program = case.removesuffix("-b").strip() or several[0].benchmark
            test = f"{program}, both ways" if case.endswith("-b") else program
            values = ", ".join(_other(each, sources) for each in several)
            origin = _origin(several, sources)[1]
            shown.append(f"{test}, {format_size(size) if size else 'large'}: {values} [{origin}]")
        yield require_system(system).name, "; ".join(shown)


def _other(figure: Published, sources: list[tuple[str, str]]) -> str:
    rate = METRICS[figure.metric].unit == "B/s"
    shown = f"{figure.value / 1e9:.4g} GB/s" if rate else f"{figure.value * 1e6:.4g} us"
    conditions, _ = _origin([figure], sources)
    return f"{shown} ({conditions})" if conditions else shown


def _origin(figures: list[Published], sources: list[tuple[str, str]]) -> tuple[str, str]:
    """Return the conditions of figures, and the numbers of their sources."""
    conditions = [each.conditions for each in figures if each.conditions]
    conditions += [
        "disputed"
        for each in figures[:1]
        if all(figure.role is Role.CONFLICT for figure in figures)
    ]
    numbers = sorted({sources.index((each.source, each.date)) + 1 for each in figures})
    return "; ".join(dict.fromkeys(conditions)), ", ".join(map(str, numbers))


def _range(rates: list[float]) -> str:
    return "–".join(dict.fromkeys(f"{each / 1e9:.4g}" for each in (rates[0], rates[-1])))


def _ceilings() -> Iterator[tuple[str, str]]:
    """Yield what the NICs of nodes with GPUs can carry, and the types for which it is the same."""
    alike: dict[str, list[str]] = {}
    for each in systems().values():
        if each.gpus > 1 and each.rate:
            most = [_ceiling(each, "all_reduce", nodes, each.fabric or "ib") for nodes in _NODES]
            most.append(_ceiling(each, "alltoall", _NODES[0], each.fabric or "ib"))
            shown = " / ".join(f"{(rate or 0) / 1e9:.4g}" for rate in (each.rate, *most))
            alike.setdefault(shown, []).append(each.name)
    yield from ((shown, ", ".join(names)) for shown, names in alike.items())


def _items(items: Iterable[tuple[str, str]]) -> str:
    return "".join(_wrapped(f"* **{name}**: {text}", "  ") + "\n" for name, text in items)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    names = [*head]
    first, *others = (f"| {' | '.join(each)} |\n" for each in (names, *rows))
    return "".join((first, f"|{'---|' * len(names)}\n", *others))


# ---------------------------------------------------------------- known errors


def troubleshooting(page: str) -> str:
    """Return docs/troubleshooting.md with every known error.

    Lines that show it, what it means, what to do.
    """
    listed = [error for error in by_code().values() if error.advice and error.examples]
    head, mark, rest = page.partition("<!-- generated: errors -->\n\n")
    _, end, tail = rest.partition("<!-- end -->")
    return head + mark + "".join(_known_error(error) for error in listed) + end + tail


def _known_error(error: KnownError) -> str:
    heading = ", ".join(dict.fromkeys(f"`{_shown(error, line)}`" for line in error.examples))
    return (
        f"### {heading}\n\n" + _wrapped(f"`{error.code}`: {error.meaning} {error.advice}") + "\n\n"
    )


def _shown(error: KnownError, line: str) -> str:
    """Return what to look for in a log.

    Of a line that shows the error the words that its pattern matches.
    """
    expressions = [*map(re.escape, error.texts), *error.patterns]
    found = re.search("|".join(expressions), line)
    first, last = found.span() if found else (0, len(line))
    first, last = line.rfind(" ", 0, first) + 1, line.find(" ", max(first, last - 1))
    shown = line[first : last if last > 0 else len(line)]
    return shown if " " in shown.strip() else line


PAGES = {
    "cli": reference,
    "configuration": configuration,
    "troubleshooting": troubleshooting,
    "normal-busbw": normal,
}

if __name__ == "__main__":
    for page, written in PAGES.items():
        path = Path(__file__).with_name(f"{page}.md")
        path.write_text(written(path.read_text("utf-8")), "utf-8")
