"""Declared options as options of click, and their values back. `fabbench.model.options` declares them."""

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

Places = Mapping[str, type[LauncherOptions]]
"""Launchers or formats, with their options."""


class OptionType(click.ParamType):  # type: ignore[type-arg] # a generic since click 8.4
    """Looks at a text with the type of an option, and leaves it a text: who uses it reads it again."""

    name = "text"

    def __init__(self, types: Sequence[Type]) -> None:
        """Where several places have an option of one name, any of their `types` will do."""
        self._types = types

    @override
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        reason = ""
        for each in self._types:
            try:
                each.parse(str(value))
            except ValueError as error:
                near = did_you_mean(str(value), each.names) if isinstance(each, Choice) else ""
                reason = f"{str(error) or f'{value!r} is not {each.wanted}'}.{near}"
            else:
                return str(value)
        return self.fail(reason, param, ctx)


def click_options(options: Iterable[Option]) -> list[click.Parameter]:
    """Return options of click that show their defaults, and have them as values."""
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
            callback=_behind_dashes,
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


def _behind_dashes(context: click.Context, parameter: click.Parameter, words: tuple[str, ...]) -> Any:
    """Refuse a word that stands alone, which no program behind has a use for."""
    del context, parameter
    if words and not words[0].startswith("-"):
        raise RequestError(
            f"Unexpected argument {words[0]!r}.", hint="Options of the benchmark's own program go after --."
        )
    return words


def place_options(
    places: Places, wanted: Callable[[Option], bool] = lambda option: bool(option.flags)
) -> list[click.Parameter]:
    """Return the options of all places, each once, with the places that have it where not all do."""
    found: defaultdict[str, dict[str, Option]] = defaultdict(dict)
    common = [*declared(Target)]
    for place, kind in places.items():
        for name, option in options_of(kind).items():
            if option.flags and wanted(option):
                found[name][place] = option
    names = sorted(found, key=lambda name: common.index(name) if name in common else len(common))
    made = [_place_option(found[name], len(places)) for name in names]
    return [*made[:1], hostfile_option(), *made[1:]] if "hosts" in found else made


def _place_option(by_place: Mapping[str, Option], places: int) -> click.Parameter:
    """Return one option of some places. What differs between them is said by each."""
    texts: defaultdict[str, list[str]] = defaultdict(list)
    for place, option in by_place.items():
        default = f" Default: {option.default}." if option.default else ""
        texts[f"{option.help}{default}"].append(place)
    text = " ".join(f"On {', '.join(names)}: {each}" for each, names in texts.items())
    if len(texts) == 1:
        (text,) = texts
        text += "" if len(by_place) == places else f" [{', '.join(sorted(by_place))}]"
    return _click_option([*dict.fromkeys(by_place.values())], text)


def places_of(places: Places) -> Mapping[str, frozenset[str]]:
    """Return, for each option that not all places have, those that have it."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for place, kind in places.items():
        for name in options_of(kind):
            found[name].add(place)
    return {name: frozenset(of) for name, of in found.items() if len(of) < len(places)}


class GivenOptions(NamedTuple):
    """Options as texts, by their names."""

    typed: Mapping[str, Any]
    """On the command line."""
    defaults: Mapping[str, Any]
    """In `defaults.run` of `fabbench.yaml`: they hold where they have an effect."""


def given_options(context: click.Context, places: Places) -> GivenOptions:
    """Return those options of places that were given."""
    every = (each for kind in places.values() for each in options_of(kind).values())
    names = {each.name for each in every if each.flags}

    def of(source: ParameterSource) -> dict[str, Any]:
        return {
            name: context.params[name]
            for name in names
            if context.get_parameter_source(name) is source and _says(context.params.get(name))
        }

    typed = of(ParameterSource.COMMANDLINE)
    if files := hosts_of_files(context):
        typed["hosts"] = (*typed.get("hosts", ()), *files)
    return GivenOptions(typed, of(ParameterSource.DEFAULT_MAP))


def _says(value: Any) -> bool:
    return value is not None and value is not False and value != ()


def fitting(kind: type[LauncherOptions], given: GivenOptions) -> LauncherOptions:
    """Return a launcher's own options from those of the given ones that it has."""
    every = {**given.defaults, **given.typed}
    return kind(
        **{name: read_option(each, every[name]) for name, each in declared(kind).items() if name in every}
    )


def with_options(target: Target, given: GivenOptions, places: Places, flag: str) -> Target:
    """Return a target with the options that were given in place of its own.

    Raise RequestError for one that has no effect there, which names where it has one: `flag` chooses a place.
    """
    kind = places.get(target.launcher, type(target.options))
    known = options_of(kind)
    for name in given.typed:
        if name not in known:
            raise _without_effect(name, target, places, flag)
    texts = {name: value for name, value in given.defaults.items() if name in known} | dict(given.typed)
    values = {name: read_option(known[name], value) for name, value in texts.items()}
    own = {name: values.pop(name) for name in declared(kind) if name in values}
    options = replace(target.options, **own)
    return replace(target, options=options, typed=tuple(sorted(given.typed)), **values)


def _without_effect(name: str, target: Target, places: Places, flag: str) -> RequestError:
    works = {place: options_of(kind)[name] for place, kind in places.items() if name in options_of(kind)}
    long = next(iter(works.values())).long
    of = f"{flag} {target.name}" + (
        f", a target of the launcher {target.launcher}" * (target.name != target.launcher)
    )
    return RequestError(
        f"{long} has no effect with {of}.", hint=f"It works with {flag} {', '.join(sorted(works))}."
    )


def long_names(parameters: Iterable[click.Parameter]) -> Iterator[tuple[str, str]]:
    """Yield the long name of each option without its dashes, and the name of its value."""
    for each in parameters:
        if isinstance(each, click.Option) and each.expose_value and each.name:
            long = next((flag for flag in each.opts if flag.startswith("--")), "--")
            yield long[2:], each.name
