"""Declared options as click options, and their values read back.

`fabbench.model.options` declares them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click
from click.core import ParameterSource

from fabbench.cli import terminal
from fabbench.cli.commands import MEANT, RESUMED, SYNONYMS, VERBOSE, WORDS
from fabbench.model.compat import override
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hostlist import expand_hostlist
from fabbench.model.mappings import Names, gathered
from fabbench.model.messages import did_you_mean, nearest
from fabbench.model.options import (
    FORMER,
    RARE,
    Flag,
    Launchers,
    Option,
    Options,
    Type,
    declared,
    flat,
)
from fabbench.model.patterns import lazy
from fabbench.model.units import parse_range

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from fabbench.config.given import Given, GivenOptions
    from fabbench.config.sections import Config
    from fabbench.model.plan import Words

CommandT = TypeVar("CommandT", bound=Callable[..., Any])
ResultT = TypeVar("ResultT")


class OptionType(click.ParamType):  # type: ignore[type-arg] # a generic since click 8.4
    """Reads a text as the value of an option's type."""

    name = "text"

    def __init__(self, type_: Type) -> None:
        self._type = type_
        self.names = type_.names

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):  # from fabbench.yaml
            return value
        alias = MEANT.get(value.lower(), "")  # What a word of another tool means, if a value here
        try:
            return self._type.parse(alias if alias in self._type.names else value)
        except ValueError as error:
            near = did_you_mean(nearest(value, self._type.names))
            reason = str(error) or f"{value!r} is not {self._type.expected}"
            self.fail(f"{reason}.{near}", param, ctx)

    @override
    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem

        del ctx, param
        return [CompletionItem(name) for name in self._type.names if name.startswith(incomplete)]


def with_parameters(parameters: Sequence[click.Parameter]) -> Callable[[CommandT], CommandT]:
    """Add parameters to a command; written where click's options are."""

    def add(function: CommandT) -> CommandT:
        # click's own decorators keep options here, the last one first
        function.__dict__.setdefault("__click_params__", []).extend(reversed(parameters))
        return function

    return add


def click_options(options: Iterable[Option]) -> list[click.Parameter]:
    """Return click options that show their defaults; their values are those of the options."""
    return [_click_option(each) for each in options]


def _click_option(option: Option) -> click.Parameter:
    """Return a declared option as click has it; what follows ``--`` is an argument."""
    if option.flags == ("--",):
        return click.Argument(
            [option.name],
            nargs=-1,
            type=OptionType(option.type),
            required=False,
            metavar="[-- OPTIONS]",
            callback=_require_option_first,
        )
    # A rare flag takes a value: --set KEY=VALUE
    if isinstance(option.type, Flag) and not option.long.startswith(RARE):
        return click.Option([*option.flags, option.name], is_flag=True, help=option.help)
    many = option.many
    return click.Option(
        [*option.flags, option.name],
        type=OptionType(option.type),
        multiple=many is not None,
        callback=None if many is None else lambda _, __, values: many(values or ()),
        metavar=option.type.metavar,
        default=option.default or None,
        show_default=bool(option.default),
        envvar=option.variable or None,
        show_envvar=bool(option.variable),
        help=option.help,
    )


def _require_option_first(
    context: click.Context, parameter: click.Parameter, words: "Words"
) -> Any:
    """Refuse a first word that is not an option: no benchmark's program takes one."""
    del context, parameter
    if words and not words[0].startswith("-"):
        raise RequestError(
            f"Unexpected argument {words[0]!r}.",
            hint="Options of the benchmark's own program go after --.",
        )
    return words


_SLOTS = lazy(r"(?<!\s)\s++(?:slots|max[-_]slots)\s*=\s*\d+")


def read_hostfile(text: str) -> Names:
    """Return the hosts of a host file, in its order: a name or a list of names per line.

    ``slots=`` and ``max_slots=`` (Open MPI) and ``:N`` (MPICH) after a name count ranks, and are
    left out. Raise ValueError that names the line that cannot be read.
    """
    names: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        hosts = _SLOTS.sub("", line.partition("#")[0]).strip()
        if hosts.count(":") == 1:  # several are an IPv6 address
            hosts = hosts.partition(":")[0]
        try:
            names += expand_hostlist(hosts) if hosts else ()
        except ValueError as error:
            raise ValueError(f"line {number}: {error}") from None
    if not names:
        raise ValueError("it names no host")
    return tuple(names)


def _hosts_in_file(file: str) -> Names:
    try:
        return read_hostfile(Path(file).read_text("utf-8-sig"))
    except OSError as error:
        raise MachineError(
            f"{file} cannot be read: {error.strerror}.",
            hint="--hostfile takes a file with a host per line, --host the name of one.",
        ) from error


_RANGE = "size_range"
_ENDS = {"min_bytes": 0, "max_bytes": -1}  # Option → which end of `_RANGE` it is
_HOSTFILE = Option(
    name="hostfile",
    type=Type("a file", "FILE", _hosts_in_file),
    help="File of hosts, one per line. As Open MPI and MPICH read it; slot counts are ignored: "
    "there is one rank per GPU; see --gpus.",
    flags=("--hostfile",),
    many=flat,
)


def size_options(options: Options) -> Iterator[click.Parameter]:
    """Yield ``--size`` for a benchmark whose own `options` have only the ends of a range."""
    if "max_bytes" in options and "sizes" not in options:
        ends = [str(options[name].default) for name in _ENDS]
        kind = Type("a size or a range", "SIZE[..SIZE]", lambda text: parse_range(text, *ends))
        about = "Only this size or range, 1M, 1M..1G or 1M.., in place of -b and -e."
        option = Option(name=_RANGE, type=kind, help=about, flags=("--size",))
        yield from click_options([option])


def launcher_options(
    launchers: Launchers, selects: Callable[[Option], bool]
) -> list[click.Parameter]:
    """Return the options of all launchers, each once; if not all have it, with those that do."""
    from fabbench.config.given import options_by_name  # loads much that --help does not need
    from fabbench.model.hosts import Target

    common = [*declared(Target)]  # these come first, in their order
    by_name = options_by_name(launchers)
    of_launchers = [name for name in by_name if name not in common]
    parameters = []
    for name in (*common, *of_launchers):
        declarations = by_name.get(name, {})  # Launcher → the option there
        wanted = {launcher: each for launcher, each in declarations.items() if selects(each)}
        if wanted:
            parameters.append(_launcher_option(wanted, len(launchers)))
        if wanted and name == "hosts":  # Beside it, the other way to name them
            parameters += click_options([_HOSTFILE])
    return parameters


def _launcher_option(by_launcher: Mapping[str, Option], total: int) -> click.Parameter:
    """Return one option of some launchers. Where their texts differ, each names its launchers."""
    declared_by = by_launcher.items()
    texts = gathered((_help_with_default(option), name) for name, option in declared_by)
    sentences = []
    for text, launchers in texts.items():
        names = ", ".join(launchers)
        sentences.append(f"On {names}: {text}")
    about = " ".join(sentences)
    if len(texts) == 1:  # All say the same: the launchers follow in brackets, unless all have it
        (about,) = texts
        names = ", ".join(sorted(by_launcher))
        about += f" [{names}]" if len(by_launcher) < total else ""
    # Defaults are in the text, as launchers may differ in them
    any_of_them = next(iter(by_launcher.values()))
    return _click_option(replace(any_of_them, help=about, default=""))


def _help_with_default(option: Option) -> str:
    return f"{option.help} Default: {option.default}." if option.default else option.help


def launchers_by_option(launchers: Launchers) -> Mapping[str, frozenset[str]]:
    """Return, for each option that not all launchers have, those that have it."""
    from fabbench.config.given import options_by_name

    return {
        name: frozenset(declarations)
        for name, declarations in options_by_name(launchers).items()
        if len(declarations) < len(launchers)
    }


def typed_flags(ctx: click.Context) -> dict[str, str]:
    """Return the options that were given on the command line → their flags, as they are typed."""
    written = frozenset(_flags_in(ctx.meta.get(WORDS, ())))
    flags: dict[str, str] = {}
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            typed = filter(written.__contains__, parameter.opts)
            # With its value attached (-n4) none is found: the long one, which is the last.
            flags[name] = next(typed, parameter.opts[-1])
    return flags


class CommandLine(NamedTuple):
    """A command line as values: all that is made of it needs nothing of click."""

    given: "GivenOptions"
    config: "Config | None"
    command: "Words"
    """Its words: ``fabbench run nccl …``."""
    typed: Mapping[str, str]
    """Options that the user typed, and how they are written."""
    subcommand: str | None
    """The command of a group that is called, if there is one."""
    resumed: Any
    """What it goes on with: a run, a sweep or a certificate, as the command knows; else None."""
    verbose: bool


def command_line(ctx: click.Context) -> CommandLine:
    """Return what a context has read."""
    words: Words = ctx.meta.get(WORDS, ())
    for old, new in FORMER.items():
        if f"--{old}" in _typed_in(words):
            terminal.notify(f"--{old} is now --{new}.")
    _, *names = ctx.command_path.split()  # After `fabbench`: the command, and one of its group
    return CommandLine(
        given=_given_options(ctx, frozenset(_flags_in(words))),
        config=ctx.params.get("config"),
        command=("fabbench", *names, *words),
        typed=typed_flags(ctx),
        subcommand=ctx.invoked_subcommand,
        resumed=ctx.meta.get(RESUMED),
        verbose=VERBOSE in ctx.meta,
    )


def started(start: Callable[[CommandLine], ResultT]) -> Callable[..., ResultT]:
    """Return the callback of a command that takes all that was typed as one value."""

    def call(**_: object) -> ResultT:
        return start(command_line(click.get_current_context()))

    return call


def pass_command_line(function: CommandT) -> CommandT:
    """Call a command with its `CommandLine` first: click's context ends here."""

    @wraps(function)
    def call(*_: object, **values: Any) -> Any:
        return function(command_line(click.get_current_context()), **values)

    return cast("CommandT", call)


def _typed_in(words: Sequence[str]) -> Iterator[str]:
    """Yield the words before ``--``, without values: the others are for the benchmark's program."""
    for word in takewhile("--".__ne__, words):
        yield word.partition("=")[0]


def _flags_in(words: Sequence[str]) -> Iterator[str]:
    """Yield the flags before ``--``, by the names that they have here."""
    for flag in _typed_in(words):
        name = flag.removeprefix("--")
        yield f"--{SYNONYMS.get(name, name)}" if flag.startswith("--") else flag


def _given_options(ctx: click.Context, flags: Collection[str]) -> "dict[str, Given]":
    """Return the options that have a value, with where it came from. Hosts of a file are hosts."""
    from fabbench.config.given import Given, Origin  # loads much that --help does not need

    origins = {
        ParameterSource.COMMANDLINE: Origin.USER,
        ParameterSource.DEFAULT_MAP: Origin.FILE,
    }
    given: dict[str, Given] = {}
    for parameter in ctx.command.params:
        name = parameter.name or ""
        value = ctx.params.get(name)
        if value is None or name == "config":  # That file is read, and a value of its own
            continue
        source = ctx.get_parameter_source(name) or ParameterSource.DEFAULT
        written = tuple(flag for flag in parameter.opts if flag in flags)
        given[name] = Given(value, origins.get(source, Origin.DEFAULT), written)
    if _RANGE in given:
        given |= _ends_of_range(given.pop(_RANGE), given)
    in_files = given.pop("hostfile", None)
    if in_files is not None and in_files.value:
        given["hosts"] = _hosts_and_hosts_in_files(given.get("hosts"), in_files)
    return given


def _ends_of_range(sizes: "Given", given: "Mapping[str, Given]") -> "Iterator[tuple[str, Given]]":
    """Yield the smallest and the largest size that ``--size`` stands for."""
    for name, end in _ENDS.items():
        flags = given[name].flags  # as typed: none for a default
        if flags:
            raise RequestError(f"{flags[0]} has no effect with --size.", hint="Leave it out.")
        yield name, sizes._replace(value=sizes.value[end])


def _hosts_and_hosts_in_files(hosts: "Given | None", in_files: "Given") -> "Given":
    """Return the hosts of the command line, then those of its host files."""
    from fabbench.config.given import Given, Origin

    if hosts is None or hosts.origin is not Origin.USER:  # fabbench.yaml's give way to the file's
        return in_files
    both = (*hosts.value, *in_files.value)
    return Given(both, Origin.USER, hosts.flags + in_files.flags)
