"""The command of one benchmark: its options → one request → one call → what is printed."""

import inspect
import os
import shlex
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import click

from fabbench.cli import options, terminal
from fabbench.cli.config_file import RunOptions, config_option, split_environment
from fabbench.cli.declared import (
    Places,
    click_options,
    fitting,
    given_options,
    place_options,
    places_of,
    with_options,
)
from fabbench.cli.help_sections import BENCHMARK, WHERE, section_of_places, sections_of
from fabbench.cli.host_options import HostsCommand, command_line, keep_words, named_for_ssh
from fabbench.cli.output import output_option
from fabbench.cli.suggestions import SuggestingGroup
from fabbench.cli.verbosity import with_verbosity
from fabbench.launchers import options_of_launchers
from fabbench.model.errors import FabbenchError, RequestError, worst
from fabbench.model.hosts import Target
from fabbench.model.option_types import AUTO
from fabbench.model.options import Option, declared, read_options

if TYPE_CHECKING:
    from fabbench.benchmarks import Benchmark
    from fabbench.config.choose_target import Resolved
    from fabbench.config.sections import Config
    from fabbench.model.plan import Variant
    from fabbench.plan.request import Adaptive, RunRequest, Work
    from fabbench.runs.run import RunResult

_CONFIGURATION_FLAGS = {"--efa": "--fabric=efa", "--no-efa": "--fabric=tcp", "--ab": "--fabric=ab"}

_FLAGS = (
    click.Option(["--efa"], is_flag=True, expose_value=False, help="Measure EFA (short for --fabric efa)."),
    click.Option(
        ["--no-efa"], is_flag=True, expose_value=False, help="Measure TCP (short for --fabric tcp)."
    ),
    click.Option(
        ["--ab"],
        is_flag=True,
        expose_value=False,
        help="Compare the best RDMA fabric with TCP.",
    ),
)


class RunCommand(HostsCommand):
    """A command of ``fabbench run``: options of all benchmarks and launchers, and the benchmark's own.

    Configurations keep the order in which they are written. What goes after ``--`` is for the benchmark.
    """

    def __init__(self, benchmark: "Benchmark", work: type[Any], **more: Any) -> None:
        help_ = inspect.cleandoc(benchmark.help or benchmark.summary)
        self.benchmark = benchmark
        self.work_options = self.work_options_of(work)
        params = [*self.shared_parameters(), *click_options(self.work_options.values())]
        self.places = places_of(self.shared_places())
        self.sections = {
            **{name: section_of_places(of) for name, of in self.places.items()},
            **dict.fromkeys((*declared(Target), "on", "as_form", "supervised", "hostfile", "config"), WHERE),
            **sections_of(self.work_options.values(), BENCHMARK),
        }
        super().__init__(benchmark.name, params=params, help=help_, short_help=benchmark.summary, **more)
        self._work = work

    def work_options_of(self, work: type[Any]) -> Mapping[str, Option]:
        """Return the benchmark's own options."""
        return declared(work)

    def shared_places(self) -> Places:
        """Return what --on or --as chooses from."""
        return options_of_launchers()

    def shared_parameters(self) -> list[click.Parameter]:
        """Return the options that every benchmark has."""
        known = declared(RunOptions)
        own = click_options(each for name, each in known.items() if name != "form")
        flags = 2
        return [
            config_option(),
            own[0],
            *place_options(options_of_launchers(), lambda each: each.only != "render"),
            *own[1:flags],
            *_FLAGS,
            *own[flags:-1],
            *options.form_options(known["form"].help),
            output_option(),
            own[-1],
        ]

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the short forms of ``--fabric`` as what they stand for."""
        keep_words(ctx, args)
        own = args.index("--") if "--" in args else len(args)
        words = [_CONFIGURATION_FLAGS.get(word, word) for word in args[:own]]
        return super().parse_args(ctx, words + args[own:])

    def invoke(self, ctx: click.Context) -> None:
        """Run what is asked for, and end with the exit status that it deserves."""
        from fabbench.cli.ci import build_result
        from fabbench.cli.live import watching
        from fabbench.runs.run import run

        request = self.request(ctx)
        if ctx.params["dry_run"]:
            from fabbench.cli.dry_run import show_plan

            show_plan(request, ctx.params["form"])
            return
        watched = {} if terminal.is_quiet() else {"watching": partial(watching, metric=request.metric)}
        junit = read_options(RunOptions, {"junit": ctx.params["junit"]} if ctx.params["junit"] else {}).junit
        with build_result(f"fabbench run {self.name}", junit) as told:
            with interruptible():
                result = run(request, notify=terminal.notify, **watched)
            told.comparison, told.verdict = result.comparison, result.verdict
            told.problem = "Interrupted. Partial results were saved." if result.interrupted else ""
            _print(result, ctx.params["form"])

    def work(self, ctx: click.Context) -> "Work":
        """Return what the benchmark's own options ask for. Raise RequestError."""
        return cast("Work", read_options(self._work, _texts(ctx, self.work_options)))

    def request(self, ctx: click.Context) -> "RunRequest":
        """Return the request that all options make. Raise RequestError."""
        from fabbench.plan.request import RunRequest

        given = read_options(RunOptions, _texts(ctx, declared(RunOptions)))
        work = self.work(ctx)
        for sentence in self.benchmark.advice(work, given.fabrics):
            terminal.notify(sentence)
        target, reason = chosen_target(ctx)
        env, inherited = split_environment(given.env, os.environ)
        return RunRequest(
            benchmark=self.name or "",
            work=work,
            target=replace(target, variants=variants_of(ctx), inherited=inherited),
            target_reason=reason,
            env={**target.env, **env},
            **{name: getattr(given, name) for name in ("fabrics", "gates", "baseline", "metric")},
            **{name: getattr(given, name) for name in ("keep_going", "strict", "store", "name")},
            repeats=given.repeats or None,
            adaptive=_adaptive(given),
            command=command_line(ctx),
        )


def _adaptive(given: RunOptions) -> "Adaptive | None":
    """Return how many repeats it may take, where it is not a number. Raise RequestError."""
    from fabbench.plan.request import MOST_REPEATS, Adaptive

    if given.repeats == AUTO:
        return Adaptive(most=given.max_repeats or MOST_REPEATS, seconds=given.max_time)
    for name, value in (("--max-repeats", given.max_repeats), ("--max-time", given.max_time)):
        if value is not None:
            raise RequestError(f"{name} has no effect without --repeat auto.", hint="Add it.")
    return None


class RunGroup(SuggestingGroup):
    """Makes the command of a benchmark when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the benchmarks."""
        from fabbench.benchmarks import runnable_names

        del ctx
        return list(runnable_names())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the benchmarks without making their commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _summary(name)) for name in self.list_commands(ctx)])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Make the command of one benchmark. One that cannot be loaded says so when it is called."""
        from fabbench.benchmarks import runnable, runnable_names

        del ctx
        try:
            benchmark = runnable(cmd_name)
        except RequestError as error:
            return _broken(cmd_name, error) if cmd_name in runnable_names() else None
        work = benchmark.work_type()
        assert work is not None  # noqa: S101 - it is runnable
        return with_verbosity(self.command_of(benchmark, work))

    def command_of(self, benchmark: "Benchmark", work: type[Any]) -> click.Command:
        """Return the command of a benchmark."""
        return RunCommand(benchmark, work)


def _summary(name: str) -> str:
    from fabbench.benchmarks import runnable

    try:
        return runnable(name).summary
    except RequestError as error:
        return f"Cannot be loaded: {error.__cause__ or error}"


def _broken(name: str, error: RequestError) -> click.Command:
    """Make the command of a benchmark that cannot be loaded: it is listed as such, and fails if called."""

    def fail(words: tuple[str, ...]) -> None:
        del words
        raise error

    return click.Command(
        name,
        callback=fail,
        params=[click.Argument(["words"], nargs=-1, type=click.UNPROCESSED)],
        context_settings={"ignore_unknown_options": True},
        help=str(error),
    )


def usual_work(name: str, config: "Config | None") -> "Work":
    """Return what ``fabbench run NAME`` measures where no option says otherwise: the file's defaults.

    Raise RequestError.
    """
    from fabbench.benchmarks import runnable

    work = runnable(name).work_type()
    assert work is not None  # noqa: S101 - it is runnable
    given = config.defaults.run.get(name, {}) if config else {}
    own = {each.long[2:]: known for known, each in declared(work).items()}
    return cast("Work", read_options(work, {own[key]: value for key, value in given.items() if key in own}))


def chosen_target(ctx: click.Context) -> "Resolved":
    """Return where to run, and why there: options come before those of the target.

    Raise RequestError for an option that has no effect there.
    """
    from fabbench.config.choose_target import resolve
    from fabbench.config.foreign_commands import foreign_commands

    places = options_of_launchers()
    given = given_options(ctx, places)
    found = resolve(
        ctx.params["on"],
        os.environ,
        ctx.params["config"],
        launchers=places,
        given=lambda kind: fitting(kind, given),
        hosts=named_for_ssh(ctx),
    )
    config: Config | None = ctx.params["config"]
    if config is not None and found.target.name in config.targets:
        for warning in foreign_commands(config, found.target, given.typed, os.environ):
            terminal.notify(warning)
    return found._replace(target=with_options(found.target, given, places, "--on"))


def variants_of(ctx: click.Context) -> "tuple[Variant, ...]":
    """Read what ``--variant`` says. Raise RequestError."""
    from fabbench.plan.request import read_variants

    config: Config | None = ctx.params["config"]
    return read_variants(ctx.params["variants"], config.variants if config else {})


def _texts(ctx: click.Context, known: Mapping[str, Option]) -> dict[str, Any]:
    """Return the texts of options, where there are any."""
    return {name: ctx.params[name] for name in known if ctx.params.get(name) is not None}


def _print(result: "RunResult", form: str) -> None:
    """Write the comparison and what went wrong, and end with the exit status."""
    late = result.release_failure
    if late is not None and (result.interrupted or result.failure is not None):
        if isinstance(late, FabbenchError) and str(late) != str(result.failure):
            terminal.print_error(late)
        terminal.print_notes(late)
    if result.comparison is not None:
        logs = {column.label: column.logs for column in result.columns}
        terminal.print_comparison(result.comparison, form, verdict=result.verdict, logs=logs)
    terminal.notify(f"Run: {result.path}")
    if result.interrupted:
        show = shlex.join(["fabbench", "show", str(result.path)])
        terminal.notify(f"Interrupted. Partial results were saved. To see them: {show}")
    else:
        error = result.failure or late
        if error is not None:
            if isinstance(error, FabbenchError):
                error.exit = worst(error.exit, result.status)
            raise error
    raise click.exceptions.Exit(result.status)


@contextmanager
def interruptible() -> Iterator[None]:
    """Take SIGTERM, and the terminal's going away, as Ctrl-C; a second one while ending changes nothing."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {each: signal.getsignal(each) for each in numbers}
    try:
        for each in numbers:
            if before[each] is not signal.SIG_IGN:
                signal.signal(each, interrupt)
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
