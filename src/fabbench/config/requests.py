"""What to run, from values: options with where each came from, `fabbench.yaml` and the launchers.

The command line and the library make their requests here. Nothing is printed or contacted; only
where nobody says where to run, launchers look at the environment (`resolve`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from fabbench.benchmarks import runnable
from fabbench.config import Resolved, resolve
from fabbench.config.given import (
    Given,
    GivenOptions,
    Origin,
    from_origin,
    options_by_name,
    value_of,
    values_of,
)
from fabbench.config.sections import Config, Values, options_of
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Target
from fabbench.model.mappings import Variables, without, without_empty, without_none
from fabbench.model.options import AUTO, Launchers, Option, Options, declared, read_option
from fabbench.model.run_options import RunOptions
from fabbench.plan.request import MAX_REPEATS, Adaptive, RunRequest, read_variants

if TYPE_CHECKING:
    from fabbench.benchmarks.standard import Work

_AS_GIVEN = (
    "fabrics",
    "gates",
    "strict",
    "baseline",
    "metric",
    "keep_going",
    "limit_s",
    "store",
    "name",
)
"""Options that are fields of a request as they are."""


def request_of(
    benchmark: str,
    given: GivenOptions,
    config: Config | None,
    launchers: Launchers,
    environment: Variables,
) -> RunRequest:
    """Return the request that options describe; its command is empty.

    With the option `as_form`, `launchers` are formats, and nothing is known of the environment in
    which the document will be used. Raise RequestError.
    """
    work_type = _work_type(benchmark)
    work_options = declared(work_type)
    adaptive = _adaptive_repeats(given)
    work = cast("Work", work_type(**values_of(given, work_options)))
    resolved = target_of(without(given, work_options), config, launchers, environment)
    target = resolved.target
    _require_work_options_have_effect(given, work_options, target, launchers)
    variables = value_of(given, "env", default={})
    # A variable without a value takes that of the environment in which the run starts
    passed = without_none(variables)
    inherited = tuple(name for name in variables if name not in passed)
    if "as_form" not in given:
        _require_inherited_are_set(inherited, environment)
    of_file = config.variants if config else {}
    variants = read_variants(value_of(given, "variants", default=()), of_file)
    target = replace(target, variants=variants, inherited=inherited)
    return RunRequest(
        benchmark=benchmark,
        work=work,
        target=with_image(target, benchmark, value_of(given, "fabrics", default=())),
        target_reason=resolved.why,
        env={**target.env, **passed},
        repeats=value_of(given, "repeats") or None,  # AUTO is 0: `adaptive` has what it means
        adaptive=adaptive,
        **values_of(given, _AS_GIVEN),
    )


def target_of(
    given: GivenOptions,
    config: Config | None,
    launchers: Launchers,
    environment: Variables,
) -> Resolved:
    """Return where to run, and why there: given options replace those of the target.

    With the option `as_form`, it is a format of `launchers`. Raise RequestError for an option that
    has no effect there.
    """
    form = value_of(given, "as_form")
    if form is not None:
        described = Target(name=form, launcher=form, options=launchers[form]())
        return Resolved(with_options(described, given, launchers, "--as"), why="")
    resolved = resolve(given, config, launchers, environment)
    target = with_options(resolved.target, given, launchers, "--on")
    return resolved._replace(target=target)


def options_of_command(launchers: Launchers, benchmark: str) -> Options:
    """Return the options of a benchmark's command by their long names. Raise RequestError."""
    by_word: dict[str, Option] = {}
    for kind in (*launchers.values(), Target, RunOptions, _work_type(benchmark)):
        for each in declared(kind).values():
            # Without flags, it is the file's alone; after ``--`` stand words for the program.
            if each.flags and each.long != "--":
                by_word[each.word] = each
    return by_word


def defaults_of_file(benchmark: str, config: Config) -> Mapping[str, Any]:
    """Return the file's defaults of a benchmark's command, by long names of options."""
    defaults = config.defaults
    of_all: Values = {"repeat": defaults.repeat, "fabric": defaults.fabrics}
    return {**without_empty(of_all), **defaults.run.get(benchmark, {})}


def given_of_file(benchmark: str, config: Config | None, known: Options) -> dict[str, Given]:
    """Return the file's defaults of `known` options. Raise RequestError."""
    if config is None:
        return {}
    defaults = defaults_of_file(benchmark, config)
    given: dict[str, Given] = {}
    for name, each in known.items():
        if each.word in defaults:
            value = defaults[each.word]
            if not isinstance(value, int):  # a number of repeats, or a flag, is no text to read
                value = read_option(each, value)
            given[name] = Given(value, Origin.FILE)
    return given


def default_work(benchmark: str, config: Config | None) -> "Work":
    """Return what ``fabbench run`` measures with the file's defaults and no option.

    Raise RequestError.
    """
    work_type = _work_type(benchmark)
    options = declared(work_type)
    given = given_of_file(benchmark, config, options)
    return cast("Work", work_type(**values_of(given, options)))


def with_options(target: Target, given: GivenOptions, launchers: Launchers, flag: str) -> Target:
    """Return a target with the given options in place of its own.

    Raise RequestError for an option that has no effect there, naming the launchers where it has:
    `flag` is the option that chooses a launcher.
    """
    kind = launchers.get(target.launcher, type(target.options))
    known = options_of(kind)
    by_name = options_by_name(launchers)
    of_user = from_origin(given, Origin.USER)
    typed = sorted(of_user.keys() & by_name.keys())
    for name in typed:
        if name not in known:
            raise _no_effect_error(target, given[name], by_name[name], flag)
    # Defaults of the file apply where they have an effect; only what is typed must have one
    of_file = from_origin(given, Origin.FILE)
    effective = of_file.keys() & known.keys()
    values = values_of(given, (*effective, *typed))
    # Options of the launcher itself; those left in `values` are fields of any target.
    of_launcher: Values = {}
    for name in declared(kind).keys() & values.keys():
        of_launcher[name] = values.pop(name)
    options = replace(target.options, **of_launcher)
    return replace(target, options=options, typed=tuple(typed), **values)


def with_image(target: Target, benchmark: str, fabrics: Sequence[str]) -> Target:
    """Return a target with the usual image of a benchmark, unless the user names one."""
    if "image" in target.typed:
        return target
    return replace(target, options=target.options.for_benchmark(benchmark, fabrics))


def _work_type(benchmark: str) -> type[Any]:
    work_type = runnable(benchmark).work_type()
    assert work_type is not None  # noqa: S101 - it is runnable
    return work_type


def _adaptive_repeats(given: GivenOptions) -> Adaptive | None:
    """Return how repeats end with ``--repeat auto``; None without it.

    Raise RequestError for an option that has no effect then.
    """
    max_repeats = value_of(given, "max_repeats")
    seconds = value_of(given, "max_time")
    if value_of(given, "repeats") == AUTO:
        return Adaptive(max_repeats=max_repeats or MAX_REPEATS, seconds=seconds)
    for flag, value in (("--max-repeats", max_repeats), ("--max-time", seconds)):
        if value is not None:
            raise RequestError(f"{flag} has no effect without --repeat auto.", hint="Add it.")
    return None


def _require_inherited_are_set(inherited: Sequence[str], environment: Variables) -> None:
    """Raise RequestError for a variable that is to be inherited, but that is not set."""
    for name in inherited:
        if name not in environment:
            raise RequestError(
                f"--env {name} takes the variable from the environment, but it is not set.",
                hint=f"Export {name}, or write --env {name}=VALUE.",
            )


def _require_work_options_have_effect(
    given: GivenOptions, work_options: Options, target: Target, launchers: Launchers
) -> None:
    """Raise RequestError for one of a benchmark's options that the launcher ignores."""
    typed = from_origin(given, Origin.USER)
    for name in target.options.without:  # options of targets and benchmarks that it ignores
        if name in work_options and name in typed:
            works = [known for known, kind in launchers.items() if name not in kind.without]
            known_to = dict.fromkeys(works, work_options[name])
            raise _no_effect_error(target, given[name], known_to, "--on")


def _no_effect_error(target: Target, given: Given, works: Options, flag: str) -> RequestError:
    """Return the error for an option that was given.

    `works`: launchers where it has an effect → the option.
    """
    option = next(iter(works.values()))
    typed = " and ".join(given.flags) or option.long
    chosen = f"{flag} {target.name}"
    if target.name != target.launcher:
        chosen += f", a target of the launcher {target.launcher}"
    names = ", ".join(sorted(works))
    return RequestError(
        f"{typed} has no effect with {chosen}.", hint=f"It works with {flag} {names}."
    )
