"""Declared options as click options, and their values read back. `fabbench.model.options` declares them."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import click
from click.core import ParameterSource

from fabbench.cli.complete import complete
from fabbench.cli.host_options import hostfile_option, hosts_of_files
from fabbench.cli.suggestions import did_you_mean
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Target, options_of
from fabbench.model.option_types import Choice, Flag, Type
from fabbench.model.options import LauncherOptions, Option, declared, read_option

Launchers = Mapping[str, type[LauncherOptions]]  # Launchers, or formats of `fabbench render`, with their options


class OptionType(click.ParamType):  # type: ignore[type-arg] # a generic since click 8.4
    """Checks a text with the type of an option, and leaves it a text: callers parse it again."""

    name = "text"

    def __init__(self, types: Sequence[Type]) -> None:
        """Where several launchers have an option of one name, any of their `types` may match."""
        self._types = types

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        reason = ""
        for each in self._types:
            try:
                each.parse(str(value))
            except ValueError as error:
                near = did_you_mean(str(value), each.names) if isinstance(each, Choice) else ""
                reason = f"{str(error) or f'{value!r} is not {each.expected}'}.{near}"
            else:
                return str(value)
        return self.fail(reason, param, ctx)


def click_options(options: Iterable[Option]) -> list[click.Parameter]:
    """Return click options that show their defaults, and have them as values."""
    return [_click_option([each], each.help, default=each.default or None) for each in options]


def _click_option(same: Sequence[Option], help_: str, *, default: Any = None) -> click.Parameter:
    option = same[0]
    if option.flags == ("--",):
        return click.Argument(
            [option.name],
            nargs=-1,
            type=click.UNPROCESSED,
            required=False,
            metavar="[-- OPTIONS]",
            callback=_after_dashes,
        )
    if isinstance(option.type, Flag):
        return click.Option([*option.flags, option.name], is_flag=True, help=help_)
    return click.Option(
        [*option.flags, option.name],
        type=OptionType([each.type for each in same]),
        multiple=option.many is not None,
        metavar=option.type.metavar,
        default=default,
        show_default=default is not None,
        envvar=option.variable or None,
        show_envvar=bool(option.variable),
        help=help_,
        shell_complete=complete,
    )


def _after_dashes(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> Any:
    """Refuse a first word that is not an option: no benchmark's program takes one."""
    del context, parameter
    if words and not words[0].startswith("-"):
        raise RequestError(
            f"Unexpected argument {words[0]!r}.", hint="Options of the benchmark's own program go after --."
        )
    return words


def launcher_options(
    launchers: Launchers, selects: Callable[[Option], bool] = lambda option: bool(option.flags)
) -> list[click.Parameter]:
    """Return the options of all launchers, each once, with the launchers that have it if not all do."""
    by_name: defaultdict[str, dict[str, Option]] = defaultdict(dict)
    common = [*declared(Target)]
    for launcher, kind in launchers.items():
        for name, option in options_of(kind).items():
            if option.flags and selects(option):
                by_name[name][launcher] = option
    names = sorted(by_name, key=lambda name: common.index(name) if name in common else len(common))
    made = [_launcher_option(by_name[name], len(launchers)) for name in names]
    return [*made[:1], hostfile_option(), *made[1:]] if "hosts" in by_name else made


def _launcher_option(by_launcher: Mapping[str, Option], total: int) -> click.Parameter:
    """Return one option of some launchers. Where their texts differ, each names its launchers."""
    texts: defaultdict[str, list[str]] = defaultdict(list)
    for launcher, option in by_launcher.items():
        default = f" Default: {option.default}." if option.default else ""
        texts[f"{option.help}{default}"].append(launcher)
    text = " ".join(f"On {', '.join(names)}: {each}" for each, names in texts.items())
    if len(texts) == 1:
        (text,) = texts
        text += "" if len(by_launcher) == total else f" [{', '.join(sorted(by_launcher))}]"
    return _click_option([*dict.fromkeys(by_launcher.values())], text)


def launchers_by_option(launchers: Launchers) -> Mapping[str, frozenset[str]]:
    """Return, for each option that not all launchers have, those that have it."""
    by_option: defaultdict[str, set[str]] = defaultdict(set)
    for launcher, kind in launchers.items():
        for name in options_of(kind):
            by_option[name].add(launcher)
    return {name: frozenset(of) for name, of in by_option.items() if len(of) < len(launchers)}


def given_texts(ctx: click.Context, names: Iterable[str]) -> dict[str, Any]:
    """Return the texts of those options that have one."""
    return {name: ctx.params[name] for name in names if ctx.params.get(name) is not None}


class GivenOptions(NamedTuple):
    """Options as texts, by their names."""

    typed: Mapping[str, Any]  # On the command line
    defaults: Mapping[str, Any]  # In `defaults.run` of `fabbench.yaml`: they apply where they have an effect


def given_options(context: click.Context, launchers: Launchers) -> GivenOptions:
    """Return those options of launchers that were given."""
    every = (each for kind in launchers.values() for each in options_of(kind).values())
    names = {each.name for each in every if each.flags}

    def given_by(source: ParameterSource) -> dict[str, Any]:
        return {
            name: context.params[name]
            for name in names
            if context.get_parameter_source(name) is source and context.params.get(name) not in {None, False, ()}
        }

    typed = given_by(ParameterSource.COMMANDLINE)
    if files := hosts_of_files(context):
        typed["hosts"] = (*typed.get("hosts", ()), *files)
    return GivenOptions(typed, given_by(ParameterSource.DEFAULT_MAP))


def own_options(kind: type[LauncherOptions], given: GivenOptions) -> LauncherOptions:
    """Return a launcher's own options, from those given options that it has."""
    every = {**given.defaults, **given.typed}
    return kind(**{name: read_option(each, every[name]) for name, each in declared(kind).items() if name in every})


def with_launcher_options(target: Target, given: GivenOptions, launchers: Launchers, flag: str) -> Target:
    """Return a target with the given options in place of its own.

    Raise RequestError for an option that has no effect there, naming the launchers where it has: `flag` is
    the option that chooses a launcher.
    """
    kind = launchers.get(target.launcher, type(target.options))
    known = options_of(kind)
    for name in given.typed:
        if name not in known:
            every = {launcher: options_of(kind) for launcher, kind in launchers.items()}
            works = {launcher: options[name] for launcher, options in every.items() if name in options}
            raise _without_effect(target, works, flag)
    texts = {name: value for name, value in given.defaults.items() if name in known} | dict(given.typed)
    values = {name: read_option(known[name], value) for name, value in texts.items()}
    specific = {name: values.pop(name) for name in declared(kind) if name in values}
    options = replace(target.options, **specific)
    return replace(target, options=options, typed=tuple(sorted(given.typed)), **values)


def require_effect(context: click.Context, own: Mapping[str, Option], target: Target, launchers: Launchers) -> None:
    """Raise RequestError for one of a benchmark's `own` options that was typed, but that the launcher ignores."""
    for name in target.options.without:
        if name in own and context.get_parameter_source(name) is ParameterSource.COMMANDLINE:
            works = {launcher: own[name] for launcher, kind in launchers.items() if name not in kind.without}
            raise _without_effect(target, works, "--on")


def _without_effect(target: Target, works: Mapping[str, Option], flag: str) -> RequestError:
    long = next(iter(works.values())).long
    chosen = f"{flag} {target.name}" + (
        f", a target of the launcher {target.launcher}" * (target.name != target.launcher)
    )
    return RequestError(
        f"{long} has no effect with {chosen}.", hint=f"It works with {flag} {', '.join(sorted(works))}."
    )


def long_names(parameters: Iterable[click.Parameter]) -> Iterator[tuple[str, str]]:
    """Yield the long name of each option without its dashes, and the name of its value."""
    for each in parameters:
        if isinstance(each, click.Option) and each.expose_value and each.name:
            long = next((flag for flag in each.opts if flag.startswith("--")), "--")
            yield long[2:], each.name
