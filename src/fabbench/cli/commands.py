"""What all commands have: help in sections, ``-h``, ``--quiet`` and the like, and suggestions.

``-h`` has what most people use, a line each; ``--help`` has everything, in sections where there is
much.
"""

import inspect
import re
import textwrap
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeAlias, TypeVar

import click

from fabbench.catalog.systems import pairs_of
from fabbench.cli import terminal
from fabbench.model.compat import override
from fabbench.model.messages import ACTIONS, RARE, did_you_mean, nearest, single_spaced
from fabbench.model.options import FORMER
from fabbench.model.plugins import ALIASES

if TYPE_CHECKING:
    import logging

    from fabbench.report.certificate import Certificate
    from fabbench.runs.store import StoredRun


_MEANINGS = """
    ls=runs list=runs rm=runs/rm export=show plot=compare diff=compare resume=run/--resume bench=run
    init=config doctor=check nodes=check alltoall=nccl/--collective/alltoall
    all_reduce=nccl/--collective/all_reduce
    srun=slurm bash=script prometheus=openmetrics github=comment md=markdown
    terminal=text table=text
    delete=runs/rm remove=runs/rm diagnose=explain analyze=explain validate=accept
"""


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


MEANT = ALIASES | _pairs(_MEANINGS)
"""Words of other tools, and what they mean here: commands and values are taken for it."""
_OPTIONS_ELSEWHERE = """
    nccl-tests=bin-dir hostname=host hosts=host target=on sizes=size min=min-bytes max=max-bytes
    repeats=repeat
"""
SYNONYMS = _pairs(_OPTIONS_ELSEWHERE) | FORMER
"""Names that options have in other tools, or had here, and mean just what ours mean."""
SHORT = {
    "--efa": ("--fabric=efa", "EFA (short for --fabric efa)."),
    "--no-efa": ("--fabric=tcp", "TCP (short for --fabric tcp)."),
    "--ab": ("--fabric=ab", "Compare the best RDMA fabric with TCP."),
}
"""Flag → the option that it is short for, and its help."""
CONFIGURATION_FLAGS = [
    click.Option([flag], is_flag=True, expose_value=False, help=about)
    for flag, (_, about) in SHORT.items()
]


@contextmanager
def suggesting() -> Iterator[None]:
    """Name only the closest option for an unknown one; click would name three."""
    try:
        yield
    except click.NoSuchOption as error:
        del (error.possibilities or [])[1:]
        raise


def expanded(words: Sequence[str]) -> list[str]:
    """Return a command line without `SHORT`, and each ``--set KEY=VALUE`` as its option's flag."""
    end = words.index("--") if "--" in words else len(words)
    merged: list[str] = []
    for typed in words[:end]:
        word, _ = SHORT.get(typed, (typed, ""))
        # `--set KEY=VALUE`, in one word or two, becomes a flag as click knows it: "--set KEY"
        if merged[-1:] == ["--set"]:
            merged[-1] += f" {word}"
        elif word.startswith("--set="):
            key = word.removeprefix("--set=")
            merged.append(f"{RARE}{key}")
        else:
            merged.append(word)
    return [*merged, *words[end:]]


CommandT = TypeVar("CommandT", bound=click.Command)
HelpRow: TypeAlias = tuple[str, str]
"""The flags of an option, and what they do."""

WORDS = "fabbench.words"  # The words of the command line as they were typed, in a context's `meta`
RESUMED = "fabbench.resumed"  # What a command line goes on with, there
VERBOSE = "fabbench.verbose"  # Whether --verbose was typed, there


class Again(NamedTuple):
    """What a command returns that starts another command line in its place."""

    name: str
    """The command."""
    words: Sequence[str]
    resumed: "StoredRun | Certificate | None" = None
    """What to go on with; None: it starts anew."""
    recorded: Sequence[str] | None = None
    """The words that it stores; None: `words`."""


_BENCHMARK = "Benchmark"
_OPTIONS = "Options"
_WHERE = "Where"  # Of options that say where to run
_SET = "Set with --set KEY=VALUE"
_MAX_LAUNCHERS_IN_TITLE = 3  # Launchers that the title of a section names
_SECTION_ORDER = {_BENCHMARK: 0, _OPTIONS: 1, _WHERE: 2, _SET: 4}  # Those of launchers: 3


@cache
def _short_help() -> Mapping[str, str]:
    """Return option → which of those that ``-h`` has or lacks it is: `common` or `rare`."""
    return pairs_of("short_help.csv", "fabbench.cli")


class SectionedCommand(click.Command):
    """A command whose help has sections, and whose rare options are set with ``--set``."""

    def __init__(
        self,
        name: str | None,
        *,
        params: Sequence[click.Parameter],
        launchers: Mapping[str, Collection[str]],
        work_options: Iterable[str] = (),
        **more: Any,
    ) -> None:
        """`launchers`: option → those that have it, if not all do."""
        from fabbench.model.hosts import Target
        from fabbench.model.options import declared

        # What no launcher declares, and says where to run all the same; --set sets their options
        where = ("on", "hostfile", "config", "as_form", "rare")
        # Option → its section: launchers' options in their own, unless many launchers have them
        self.sections = dict.fromkeys((*declared(Target), *launchers, *where), _WHERE)
        for option, names in launchers.items():
            if len(names) <= _MAX_LAUNCHERS_IN_TITLE:
                listed = ", ".join(sorted(names))
                self.sections[option] = f"With {listed}"
        self.sections |= dict.fromkeys(work_options, _BENCHMARK)
        about = "Set a rare option, by its key. Can be given several times. --help lists the keys."
        rare = click.Option(["--set", "rare"], metavar="KEY=VALUE", expose_value=False, help=about)
        has_rare = any(each.opts[0].startswith(RARE) for each in params)
        if has_rare:
            params = [*params, rare]
        super().__init__(name, params=[*params], **more)

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta.setdefault(WORDS, tuple(args))
        return super().parse_args(ctx, expanded(args))

    @override
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(ctx, formatter)

    def section(self, option: click.Parameter) -> str:
        """Return the section of the help that an option is in."""
        if option.opts[0].startswith(RARE):
            return _SET
        return self.sections.get(option.name or "", _OPTIONS)


def _write_options(
    ctx: click.Context, formatter: click.HelpFormatter, *, short: bool = False
) -> None:
    """Write the help of options by section; `short`: of the common ones, one line each."""
    sections = _rows_by_section(ctx, short=short)
    for name in sorted(sections, key=_section_order):
        rows = sections[name]
        if short:
            rows = _on_one_line(rows, formatter.width)
        with formatter.section(name):
            formatter.write_dl(rows, col_max=formatter.width if short else 30)


def _section_order(section: str) -> tuple[int, str]:
    """Return the place of a section in the help; those of launchers stand together, by name."""
    return _SECTION_ORDER.get(section, 3), section


def _rows_by_section(ctx: click.Context, *, short: bool) -> Mapping[str, list[HelpRow]]:
    """Return the help of each section's options, as flags and text.

    ``-h`` has the common ones, with those of launchers in one section.
    """
    command = ctx.command
    sections = defaultdict(list)
    for option in command.get_params(ctx):
        record = option.get_help_record(ctx)
        if record is None or (short and not _is_common(command, option)):
            continue
        section = _section_of(command, option)
        row = _as_set(record) if section == _SET else record
        if short:
            row = _shortened_row(*row)
            section = _common_section(section)
        sections[section].append(row)
    return sections


def _section_of(command: click.Command, option: click.Parameter) -> str:
    return command.section(option) if isinstance(command, SectionedCommand) else _OPTIONS


def _common_section(section: str) -> str:
    """Return the section of ``-h`` for one of ``--help``."""
    return section if section in _SECTION_ORDER else _WHERE


def _as_set(row: HelpRow) -> HelpRow:
    """Return a row with its option as it is typed after ``--set``."""
    flags, about = row
    return flags.removeprefix(RARE).replace(" ", "=", 1), about


def _shortened_row(flags: str, about: str) -> HelpRow:
    """Return flags without a long list of words, and the first sentence of the help."""
    return (
        # A list of more than 20 characters: it begins with a bracket
        re.sub(r" \[.{21,}", " NAME", flags),
        # Without the launchers in front (`On ssh, slurm: …`), further sentences, and the full stop
        re.sub(r"^On [\w, ]+: (?=[A-Z])|(\. | \[).*|\.$", "", about),
    )


def _on_one_line(rows: Sequence[HelpRow], width: int) -> list[HelpRow]:
    """Shorten the texts of a section so that they fit beside its longest flags."""
    longest = max(len(flags) for flags, _ in rows)
    # click puts two blanks before the flags, and two after them
    shorten = partial(textwrap.shorten, width=width - longest - 4, placeholder=" …")
    return [(flags, shorten(about)) for flags, about in rows]


def _is_common(command: click.Command, option: click.Parameter) -> bool:
    """Return whether ``-h`` has an option: of commands with sections the common ones."""
    if "--help" in option.opts:  # The last line of `-h` names it
        return False
    which = _short_help().get(option.name or "")
    return which == "common" if isinstance(command, SectionedCommand) else which != "rare"


def _print_help(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click calls it
    del parameter
    if given and not ctx.resilient_parsing:
        click.echo(short_help(ctx))
        ctx.exit()


def short_help(ctx: click.Context) -> str:
    """Return what ``-h`` prints: at most 40 lines of 80 columns."""
    command = ctx.command
    formatter = ctx.make_formatter()
    command.format_usage(ctx, formatter)
    first, *more = inspect.cleandoc(command.help or "").split("\n\n")
    example = next((each for each in more if each.startswith("Example:")), "")
    for text in filter(None, (first, example)):
        formatter.write_paragraph()
        formatter.write_text(textwrap.indent(single_spaced(text), "  "))
    if isinstance(command, click.Group):
        command.format_commands(ctx, formatter)
    _write_options(ctx, formatter, short=True)
    formatter.write(f"\n{ctx.command_path} --help shows all options.")
    return formatter.getvalue()


@contextmanager
def log_lines(
    logger: "logging.Logger", write: Callable[[str], object], form: str = "%(message)s"
) -> Iterator[None]:
    """Write a line for each record of a logger."""
    import logging

    handler = logging.Handler()
    handler.emit = lambda record: write(handler.format(record))  # type: ignore[assignment, method-assign]
    handler.setFormatter(logging.Formatter(form, "%H:%M:%S"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _logged() -> AbstractContextManager[None]:
    """Write a line for each action on standard error."""
    import logging

    logger = logging.getLogger(ACTIONS)
    logger.propagate = False
    return log_lines(logger, partial(click.echo, err=True), "%(asctime)s.%(msecs)03d %(message)s")


def _switch(
    flags: list[str], enter: Callable[[], AbstractContextManager[object]], about: str
) -> click.Option:
    """Return a flag that enters a context, once, which lasts until the program ends."""

    def turn_on(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click calls it
        key = f"fabbench.{parameter.name}"
        # Once, whether typed before the command or after it; not while a shell completes
        if given and not ctx.meta.get(key) and not ctx.resilient_parsing:
            ctx.meta[key] = True
            ctx.find_root().with_resource(enter())  # errors are written after the command has ended

    return click.Option(flags, is_flag=True, expose_value=False, callback=turn_on, help=about)


def with_common_options(command: CommandT) -> CommandT:
    """Add the options that all commands have to one of a group, or to the program, once.

    A group is asked for the same command again and again.
    """
    if not any("--quiet" in each.opts for each in command.params):
        quiet = "Print results and errors only: no progress, no notices."
        verbose = (
            "Print each action on standard error: programs started, hosts reached, API requests."
        )
        command.params += [
            _switch(["-q", "--quiet"], partial(terminal.without, "notices"), quiet),
            _switch(["-v", "--verbose"], _logged, verbose),
            _switch(
                ["--no-color"],
                partial(terminal.without, "colors"),
                "Print without colors, as with NO_COLOR=1.",
            ),
            click.Option(
                ["-h"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_print_help,
                hidden=True,
            ),
        ]
    return command


class SuggestingGroup(click.Group):
    """A group whose commands have the options that all have.

    It suggests the closest of them for a wrong one.
    """

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        command = self.get_command(ctx, name)
        if command is not None:
            return name, command, rest
        # A word of another tool may mean a command with options: rm=runs/rm
        args = [*MEANT.get(name, name).split("/"), *rest]
        if name == "help":
            args = [*rest, "--help"]
        is_word = not name.startswith("-") and not ctx.resilient_parsing
        if is_word and self.get_command(ctx, args[0]) is None:
            self._fail_with_suggestion(ctx, name)
        return super().resolve_command(ctx, args)

    def _fail_with_suggestion(self, ctx: click.Context, name: str) -> NoReturn:
        """Fail with the closest of the group's commands and options."""
        known = self.list_commands(ctx)
        for parameter in self.params:
            known += parameter.opts
        near = did_you_mean(nearest(name, known))
        ctx.fail(f"No such command {name!r}.{near}")

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = self.loaded(ctx, cmd_name)
        return None if command is None else with_common_options(command)

    def loaded(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one of the group's own commands."""
        return super().get_command(ctx, cmd_name)
