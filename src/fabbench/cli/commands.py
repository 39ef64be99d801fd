"""What all commands have: help in sections, ``-h``, ``--quiet`` and the like, suggestions, and completion.

``-h`` has what most people use, a line each; ``--help`` has everything, in sections where there is much.
"""

import contextlib
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar, cast

import click

from fabbench.cli import terminal
from fabbench.model.actions import action_logger
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.fabrics import FABRICS
from fabbench.model.messages import RARE, did_you_mean, nearest, printable, unbroken
from fabbench.model.plugins import ALIASES

if TYPE_CHECKING:
    import logging

    from click.shell_completion import CompletionItem


_WORDS = """
    ls=runs list=runs rm=runs/rm export=runs/export plot=compare diff=compare resume=run/--resume bench=run
    init=config doctor=check alltoall=nccl/--collective/alltoall all_reduce=nccl/--collective/all_reduce
    srun=slurm bash=script prometheus=openmetrics github=comment md=markdown
    domain=device gpu-memory=memory raw-csv=format label=pod-label min=min-bytes max=max-bytes min-size=size
"""
MEANT = ALIASES | dict(pair.split("=") for pair in _WORDS.split())
"""Words of other tools, and of older releases, and what they mean here: commands and values are taken for it."""
SYNONYMS = {"nccl-tests": "bin-dir", "hostname": "host", "target": "on", "sizes": "size"}
"""Names of options in other tools that mean just what ours mean: they are taken, too."""


def meant(text: str, known: Iterable[str]) -> str:
    """Return the name that a text means here, or is closest to; empty: there is none."""
    names, dashes = list(known), text[: 2 * text.startswith("--")]
    word = dashes + MEANT.get(text[len(dashes) :].lower(), "")
    return word if word in names else nearest(text, names)


def merged_settings(words: Sequence[str]) -> list[str]:
    """Return a command line with each ``--set KEY=VALUE`` as one word, the flag of its option."""
    end = words.index("--") if "--" in words else len(words)
    merged: list[str] = []
    for word in words[:end]:
        if merged[-1:] == ["--set"]:
            merged[-1] += f" {word}"
        else:
            merged.append(RARE + word.removeprefix("--set=") if word.startswith("--set=") else word)
    return [*merged, *words[end:]]


@contextlib.contextmanager
def suggesting() -> Iterator[None]:
    """Name the option that is closest to an unknown one."""
    try:
        yield
    except click.NoSuchOption as error:
        name, params = error.option_name, error.ctx.command.params if error.ctx else ()
        flags = [flag for each in params for flag in (*each.opts, *each.secondary_opts) if flag.startswith("--")]
        keys = {key.removesuffix("s"): key for key in flags if key.startswith(RARE)}
        near = keys.get(f"{RARE}{name.removeprefix('--').removesuffix('s')}") or meant(name, [*flags, "--help"])
        shown = did_you_mean(f"{near}=VALUE" if near.startswith(RARE) else near)
        raise click.UsageError(f"No such option {unbroken(name)}.{shown}", error.ctx) from None


def items(names: Iterable[str], incomplete: str) -> "list[CompletionItem]":
    """Return those names that begin with a word, each once."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(name) for name in dict.fromkeys(names) if name.startswith(incomplete)]


def _known(name: str) -> Iterator[str]:
    """Yield what the value of an option or argument of this name may be."""
    if name == "on":
        from fabbench.config import find_config, load
        from fabbench.launchers import options_of_launchers

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
    from fabbench.runs.document import run_folders

    store = ctx.params.get("store") or Path(os.environ.get("FABBENCH_STORE") or STORE)
    found = items(("last", *(path.rpartition("-")[2] for path in run_folders(store))), incomplete)
    return found or [CompletionItem(incomplete, type="file")]


CommandT = TypeVar("CommandT", bound=click.Command)

WORDS = "fabbench.words"  # The words of the command line as they were typed, in a context's `meta`
BENCHMARK, WHERE, MEASURED, RESULTS, OUTPUT = "Benchmark", "Where", "What to compare", "Results", "Output"
_SET = "Set with --set KEY=VALUE"
_PLACES = {BENCHMARK: 0, MEASURED: 1, WHERE: 2, RESULTS: 4, OUTPUT: 5, _SET: 6}  # Those of launchers: 3
_OF_LAUNCHERS: Mapping[str, str] = {
    **dict.fromkeys(("kubernetes", "mpijob", "kubernetes mpijob"), "Kubernetes"),
    "slurm": "Slurm",
    "skypilot": "SkyPilot",
    "modal": "Modal",
    "ssh": "ssh",
    "slurm ssh": "ssh",
    "local": "Local",
    "kubernetes mpijob skypilot": "Pods (Kubernetes, SkyPilot)",
}
"""The launchers that share an option → its section."""
_RUN: Mapping[str, str] = {
    **dict.fromkeys(("fabrics", "variants", "repeats", "env", "keep_going", "dry_run", "name"), MEASURED),
    **dict.fromkeys(("efa", "no_efa", "ab", "max_repeats", "max_time", "seed", "partners", "mode", "deep"), MEASURED),
    **dict.fromkeys(("gates", "baseline", "metric", "strict", "confidence", "tolerance", "groups"), RESULTS),
    **dict.fromkeys(("instance_type", "as_form", "rare"), WHERE),
}
_COMMON = frozenset({
    *("collectives", "tests", "test", "program", "min_bytes", "max_bytes", "sizes", "iterations", "devices"),
    *("fabrics", "efa", "ab", "repeats", "env", "dry_run", "mode", "resume"),
    *("on", "as_form", "hosts", "hostfile", "nodes", "gpus", "instance_type", "rare"),
    *("gates", "baseline", "groups", "benchmarks", "deep", "form", "output"),
    *("older_than", "whole", "yes", "everywhere", "force"),
})  # fmt: skip
"""The options of commands with many that ``-h`` shows."""
_RARE = frozenset({"quiet", "verbose", "no_color", "log", "version", "store", "exit_zero"})  # Left out of others


class SectionedCommand(click.Command):
    """A command whose help has sections, and whose rare options are set with ``--set``."""

    def __init__(
        self,
        name: str | None,
        *,
        params: Sequence[click.Parameter],
        launchers: Mapping[str, Collection[str]],
        own: Iterable[str] = (),
        **more: Any,
    ) -> None:
        """`launchers`: option → launchers or formats that have it, if not all do; `own`: options of the benchmark."""
        from fabbench.model.hosts import Target
        from fabbench.model.options import declared

        self.launchers = launchers
        self.sections = {option: _OF_LAUNCHERS.get(" ".join(sorted(of)), WHERE) for option, of in launchers.items()}
        self.sections |= dict.fromkeys((*declared(Target), "on", "hostfile", "config"), WHERE)
        self.sections |= dict.fromkeys(own, BENCHMARK)
        made = [*params]
        if any(each.opts[0].startswith(RARE) for each in params):
            made.append(
                click.Option(
                    ["--set", "rare"],
                    metavar="KEY=VALUE",
                    expose_value=False,
                    shell_complete=_complete_keys,
                    help="Set a rare option, by its key. Can be given several times. --help lists the keys.",
                )
            )
        super().__init__(name, params=made, **more)

    @override
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta.setdefault(WORDS, tuple(args))
        return super().parse_args(ctx, merged_settings(args))

    @override
    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for section, records in _sections(ctx).items():
            with formatter.section(section):
                formatter.write_dl(records)


def _own_words(ctx: click.Context) -> tuple[str, ...]:
    """Return the words of the command line that are not for the benchmark's program."""
    words: tuple[str, ...] = ctx.meta.get(WORDS, ())
    return words[: words.index("--") if "--" in words else None]


def named_for_ssh(ctx: click.Context) -> bool:
    """Return whether there is a --host or --hostfile: a --node is one of a cluster."""
    return any(word.partition("=")[0] in {"--host", "--hostfile"} for word in _own_words(ctx))


def _chosen_launcher(ctx: click.Context) -> str:
    """Return the launcher or format that the command line names; empty: none."""
    words = _own_words(ctx)
    for word, following in zip(words, (*words[1:], ""), strict=False):
        flag, equals, value = word.partition("=")
        if flag in {"--on", "--as"}:
            name = value if equals else following
            return ALIASES.get(name, name)
    return "ssh" if named_for_ssh(ctx) else ""


def _complete_keys(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    del parameter
    keys = (f"{each.opts[0].removeprefix(RARE)}=" for each in ctx.command.params if each.opts[0].startswith(RARE))
    return sorted(key for key in keys if key.startswith(incomplete))


def _sections(ctx: click.Context, *, short: bool = False) -> dict[str, list[tuple[str, str]]]:
    """Return the records of a command's options by section, in order; `short`: the common ones."""
    command = ctx.command
    launcher = _chosen_launcher(ctx) if short else ""
    records: dict[str, list[tuple[str, str]]] = {}
    for param in command.get_params(ctx):
        record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
        section = _section(command, param)
        if record is not None and (not short or _is_common(command, param, section, launcher)):
            flags, about = record
            if section == _SET:
                flags = flags.removeprefix(RARE).replace(" ", "=", 1)
            records.setdefault(section, []).append((flags, about))
    return {section: records[section] for section in sorted(records, key=lambda each: (_PLACES.get(each, 3), each))}


def _section(command: click.Command, param: click.Parameter) -> str:
    if not isinstance(command, SectionedCommand):
        return "Options"
    name = param.name or ""
    return _SET if param.opts[0].startswith(RARE) else _RUN.get(name) or command.sections.get(name) or OUTPUT


def _is_common(command: click.Command, param: click.Parameter, section: str, launcher: str) -> bool:
    """Return whether ``-h`` has an option. With a launcher, that has the options which only some launchers have."""
    name = param.name or ""
    if not isinstance(command, SectionedCommand) or "--help" in param.opts:
        return name not in _RARE and "--help" not in param.opts
    if launcher:
        return launcher in command.launchers.get(name, ()) or (section == WHERE and name not in command.launchers)
    return name in _COMMON


# ---------------------------------------------------------------- -h


def _print_short_help(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click calls it
    del parameter
    if given and not ctx.resilient_parsing:
        click.echo(short_help(ctx))
        ctx.exit()


def short_help(ctx: click.Context) -> str:
    """Return what ``-h`` prints: at most 40 lines of 80 columns."""
    command, formatter = ctx.command, ctx.make_formatter()
    command.format_usage(ctx, formatter)
    first, *more = inspect.cleandoc(command.help or "").split("\n\n")
    example = next((each for each in more if each.startswith("Example:")), "")
    for text in filter(None, (first, example)):
        formatter.write_paragraph()
        formatter.write_text(textwrap.indent(" ".join(text.split()), "  "))
    if isinstance(command, click.Group):
        command.format_commands(ctx, formatter)
    for section, records in _sections(ctx, short=True).items():
        formatter.write("\n".join((f"\n{section}:", *_lines(records, formatter.width), "")))
    formatter.write(f"\n{ctx.command_path} --help shows all options.")
    return formatter.getvalue()


def _lines(records: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    split = [flag.partition(" [") for flag, _ in records]  # its value may be one of many words
    flags = [f"{name} NAME" if len(words) > 20 else name + bracket + words for name, bracket, words in split]
    column = max(map(len, flags))
    for (_, _, words), flag, (_, about) in zip(split, flags, records, strict=True):
        text = re.sub(r"^On [\w, ]+: (?=[A-Z])|(\. | \[).*|\.$", "", about)
        text += f": {words[:-1].replace('|', ', ')}" if len(words) > 20 else ""
        text = textwrap.shorten(text, width - column - 4, placeholder=" …", break_on_hyphens=False)
        yield f"  {flag:{column}}  {text}"


@contextmanager
def log_lines(logger: "logging.Logger", write: Callable[[str], object], form: str = "%(message)s") -> Iterator[None]:
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


def _logged(stream: IO[str] | None = None) -> AbstractContextManager[None]:
    """Write a line for each action to a stream; without one, to the current standard error."""

    def write(line: str) -> None:
        (out := stream or sys.stderr).write(f"{printable(line)}\n")
        out.flush()

    return log_lines(action_logger(), write, "%(asctime)s.%(msecs)03d %(message)s")


def _switch(flags: list[str], enter: Callable[[], AbstractContextManager[object]], about: str) -> click.Option:
    def turn_on(ctx: click.Context, parameter: click.Parameter, given: bool) -> None:  # noqa: FBT001 - click calls it
        key = f"fabbench.{parameter.name}"
        if given and not ctx.meta.get(key) and not ctx.resilient_parsing:
            ctx.meta[key] = True
            ctx.find_root().with_resource(enter())  # errors are written after the command has ended

    return click.Option(flags, is_flag=True, expose_value=False, callback=turn_on, help=about)


def is_verbose(ctx: click.Context) -> bool:
    """Return whether ``--verbose`` was given."""
    return bool(ctx.meta.get("fabbench.verbose"))


def _debug(ctx: click.Context, parameter: click.Parameter, path: Path | None) -> None:
    del parameter
    if path is None or ctx.resilient_parsing:
        return
    try:
        file = None if str(path) == "-" else path.open("w", encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        text = f"{path} cannot be written: {error.strerror}."
        raise MachineError(text, hint="Choose another file for --debug.") from error
    ctx.with_resource(_logged(file and cast("IO[str]", ctx.with_resource(file))))


def verbosity_options() -> list[click.Parameter]:
    """Return the four options."""
    quiet = "Print results and errors only: no progress, no notices."
    verbose = "Print each action on standard error: programs started, hosts reached, API requests."
    debug = "Write each action to FILE, one per line with its time. Secrets are redacted."
    file = partial(click.Option, type=click.Path(path_type=Path), metavar="FILE", expose_value=False)
    return [
        _switch(["-q", "--quiet"], partial(terminal.without, "notices"), quiet),
        _switch(["-v", "--verbose"], _logged, verbose),
        _switch(["--no-color"], partial(terminal.without, "colors"), "Print without colors, as with NO_COLOR=1."),
        file(["--debug", "log"], callback=_debug, help=debug),
    ]


def with_common_options(command: CommandT) -> CommandT:
    """Add the options that all commands have to one of a group, or to the program; a group is asked again and again."""
    if not any("--quiet" in each.opts for each in command.params):
        short = click.Option(
            ["-h"], is_flag=True, is_eager=True, expose_value=False, callback=_print_short_help, hidden=True
        )
        command.params.extend([*verbosity_options(), short])
    return command


class SuggestingGroup(click.Group):
    """A group whose commands have the options that all have; it suggests the closest of them for a wrong one."""

    @override
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name, *rest = args
        if self.get_command(ctx, name) is None:
            args = [*rest, "--help"] if name == "help" else [*MEANT.get(name, name).split("/"), *rest]
            if self.get_command(ctx, args[0]) is None and not name.startswith("-") and not ctx.resilient_parsing:
                flags = [flag for each in self.params for flag in each.opts if flag.startswith("--")]
                near = meant(name, [*self.list_commands(ctx), *flags, "--help"])
                ctx.fail(f"No such command {name!r}.{did_you_mean(near)}")
        return super().resolve_command(ctx, args)

    @override
    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        command = self.loaded(ctx, cmd_name)
        return None if command is None else with_common_options(command)

    def loaded(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return one of the group's own commands."""
        return super().get_command(ctx, cmd_name)
