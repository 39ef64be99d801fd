"""``run NAME`` and ``rerun``: one request → one call → what is printed."""

import inspect
import os
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from itertools import starmap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabbench.benchmarks import Benchmark, runnable, runnable_names
from fabbench.cli import terminal
from fabbench.cli.click_options import (
    CommandLine,
    click_options,
    launcher_options,
    launchers_by_option,
    pass_command_line,
    size_options,
    started,
    typed_flags,
)
from fabbench.cli.commands import CONFIGURATION_FLAGS, Again, SectionedCommand, SuggestingGroup
from fabbench.cli.config_file import config_option
from fabbench.cli.options import require_writable, result_options, takes
from fabbench.launchers import options_of_launchers
from fabbench.model.compat import override
from fabbench.model.errors import Exit, FabbenchError, RequestError, worst
from fabbench.model.messages import REDACTED, counted, redacted
from fabbench.model.options import Launchers, Option, Options, declared
from fabbench.model.run_options import RunOptions
from fabbench.model.units import format_duration

if TYPE_CHECKING:
    from fabbench.config import Resolved
    from fabbench.config.sections import Config
    from fabbench.model.hosts import Host, Inventory, Target
    from fabbench.model.plan import Execution, Plan, Words
    from fabbench.plan.request import RunRequest
    from fabbench.report.certificate import Certificate
    from fabbench.runs.run import RunResult
    from fabbench.runs.store import StoredRun
    from fabbench.runs.sweep import SweepRun


_HOST_FIELDS = ("name", "address", "instance_type", "gpus", "devices")  # What is shown of a host


class TargetCommand(SectionedCommand):
    """A command about one target.

    Its own options come after those of launchers that it `selects`.
    """

    def __init__(
        self,
        name: str | None,
        *,
        params: list[click.Parameter],
        selects: Callable[[Option], bool],
        **more: Any,
    ) -> None:
        launchers = options_of_launchers()
        (on,) = click_options([declared(RunOptions)["on"]])
        params = [config_option(), on, *launcher_options(launchers, selects), *params]
        super().__init__(name, params=params, launchers=launchers_by_option(launchers), **more)


class RunCommand(SectionedCommand):
    """A command of ``fabbench run``.

    Options of all benchmarks and launchers, and the benchmark's own.

    Configurations keep the order in which they are written. What goes after ``--`` is for the
    benchmark.
    """

    benchmarks: Callable[[], Iterable[str]] = staticmethod(runnable_names)
    shared: Collection[str] = tuple(declared(RunOptions))  # Options of runs that the command has
    wanted = ("", "run")  # Options that work with another command only are left out
    choices: Callable[[], Launchers] = staticmethod(options_of_launchers)  # With options here
    # All that --on may choose: an option that has no effect there is refused with a sentence
    places: Callable[[], Launchers] = staticmethod(options_of_launchers)

    def __init__(self, benchmark: Benchmark) -> None:
        self.benchmark = benchmark
        work = benchmark.work_type()
        assert work is not None  # noqa: S101 - it is runnable
        self.work_type: type[Any] = work
        self.work_options = self.work_options_of(work)
        # Without those that work with the other command only: `run` or `render`
        wanted = (each for each in self.work_options.values() if each.only in self.wanted)
        super().__init__(
            benchmark.name,
            callback=started(self.start),
            params=[
                *self.all_but_work_parameters(),
                *click_options(wanted),
                *size_options(self.work_options),
            ],
            launchers=launchers_by_option(self.choices()),
            work_options=(*self.work_options, "size_range"),  # The latter is of `size_options`
            help=self.about(),
            short_help=benchmark.summary,
        )

    def about(self) -> str:
        """Return the help."""
        return inspect.cleandoc(self.benchmark.help or self.benchmark.summary)

    def work_options_of(self, work: type[Any]) -> Options:
        """Return the benchmark's own options."""
        return declared(work)

    def run_and_launcher_parameters(self) -> list[click.Parameter]:
        """Return the options of runs that the command has, and those of its launchers."""
        from fabbench.plan.gates import limit_example

        first, *others = self.benchmark.default_metrics
        metrics = ", ".join((first, *others, "ratio"))
        limit = limit_example(first)
        by_name = dict(declared(RunOptions))
        gates = by_name["gates"]
        about = f"{gates.help} Metrics: {metrics}, such as {first}:5% or {limit}."
        by_name["gates"] = replace(gates, help=about)
        # The format is among the options of results
        shared = [by_name[name] for name in self.shared if name != "form"]
        where = launcher_options(self.choices(), lambda each: each.only in self.wanted)
        return [config_option(), *click_options(shared), *where]

    def all_but_work_parameters(self) -> list[click.Parameter]:
        """Return the options of the command, but those of the benchmark's work."""
        results = result_options("comparison", declared(RunOptions)["form"].help)
        return [*CONFIGURATION_FLAGS, *self.run_and_launcher_parameters(), *results]

    def start(self, line: CommandLine) -> Exit:
        """Run what is requested; return the matching exit status."""
        from fabbench.cli.live import watching
        from fabbench.config.given import value_of
        from fabbench.runs.run import run

        request = self.request(line)
        form = value_of(line.given, "form")
        junit = value_of(line.given, "junit")
        require_writable(junit, "--junit")
        if value_of(line.given, "dry_run"):
            show_plan(request, form)
            return Exit.FINE
        watched = partial(watching, metric=request.metric)
        with interruptible():
            result = run(request, notify=terminal.notify, resume=line.resumed, watching=watched)
        return _print_result(result, form, junit)

    def request(self, line: CommandLine) -> "RunRequest":
        """Return the request of a command line, and say what should be known of it.

        Raise RequestError.
        """
        from fabbench.config.requests import request_of

        name = self.benchmark.name
        request = request_of(name, line.given, line.config, self.places(), os.environ)
        for sentence in self.benchmark.advice(request.work, request.fabrics):
            terminal.notify(sentence)
        warn_of_foreign_commands(line.config, request.target)
        return replace(request, command=line.command)


class RunGroup(SuggestingGroup):
    """Makes the command of a benchmark, of a class, when it is needed."""

    def __init__(self, *args: Any, makes: type[RunCommand] = RunCommand, **more: Any) -> None:
        super().__init__(*args, **more)
        self._makes = makes

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the benchmarks."""
        del ctx
        return list(self._makes.benchmarks())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the benchmarks without making their commands."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, _summary(name)) for name in self.list_commands(ctx)])

    @override
    def resolve_command(
        self,
        ctx: click.Context,
        args: list[str],
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Options before the benchmark are the group's own, which it would ignore
        typed = {} if ctx.resilient_parsing else typed_flags(ctx)
        for name, flag in typed.items():
            if name in ctx.params:
                hint = f"Leave it out, or write it after {args[0]}, if that has it."
                raise RequestError(f"{flag} has no effect before {args[0]}.", hint=hint)
        return super().resolve_command(ctx, args)

    @override
    def loaded(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.list_commands(ctx):
            return None
        try:
            return self._makes(runnable(cmd_name))
        except RequestError:
            if ctx.resilient_parsing:  # while a shell completes
                return None
            raise


def _summary(name: str) -> str:
    """Return the line that a list has of a benchmark, also of a plug-in that cannot be loaded."""
    try:
        return runnable(name).summary
    except RequestError as error:
        reason = error.__cause__ or error
        return f"Cannot be loaded: {reason}"


def chosen_target(line: CommandLine) -> "Resolved":
    """Return where to run, and why there: given options replace those of the target.

    Raise RequestError for an option that has no effect there.
    """
    from fabbench.config.requests import target_of

    resolved = target_of(line.given, line.config, options_of_launchers(), os.environ)
    warn_of_foreign_commands(line.config, resolved.target)
    return resolved


def warn_of_foreign_commands(config: "Config | None", target: "Target") -> None:
    """Warn of files that a target of `fabbench.yaml` names, and that could run commands here."""
    from fabbench.config.foreign_commands import foreign_commands

    of_file = config.targets.get(target.name) if config is not None else None
    # A format of `fabbench render` may have the name of a target.
    if config is not None and of_file is not None and of_file.launcher == target.launcher:
        for warning in foreign_commands(config, target, target.typed, os.environ):
            terminal.notify(warning)


def _print_result(result: "RunResult", form: str, junit: Path | None) -> Exit:
    """Print the comparison, where the run is, and how to go on; return, or raise, how it ended."""
    if form == "html":
        terminal.write_page([result.path])
        terminal.print_verdicts([result.verdict])
    elif result.comparison is not None:
        terminal.print_comparison(result.comparison, form, verdict=result.verdict)
    if result.comparison is not None:
        terminal.write_junit(junit, result.comparison, result.verdict)
    terminal.say_next(result.path)
    path = shlex.quote(str(result.path))
    if result.interrupted and result.missing:
        again = f"fabbench run --resume {path}"
        terminal.notify(f"Interrupted. Partial results were saved. To go on: {again}")
    elif result.interrupted:
        saved = "Interrupted after the last execution. All results were saved."
        terminal.notify(f"{saved} To see them: fabbench show {path}")
    return status_or_raise(result, result.status)


def status_or_raise(result: "RunResult | SweepRun", status: Exit) -> Exit:
    """Return the exit status of a run or sweep.

    Raise what ended it early, else what went wrong at its end.
    """
    late = result.release_failure  # Of giving the machines back
    # An interrupt is no error: it has its own status
    error = None if result.interrupted else result.failure or late
    if late is not None and error is not late:  # It is only told, beside what ended it early
        if isinstance(late, FabbenchError) and str(late) != str(error):
            terminal.print_error(late)
        terminal.print_notes(late)
    if error is None:
        return Exit.INTERRUPTED if result.interrupted else status
    if isinstance(error, FabbenchError):  # Any other is a bug, with a status of its own
        error.exit = worst(error.exit, status)
    raise error


@contextmanager
def interruptible() -> Iterator[None]:
    """Treat SIGTERM, and SIGHUP from a closed terminal, as Ctrl-C.

    Another one during cleanup is ignored.
    """
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def interrupt(*_: object) -> None:
        for each in numbers:
            signal.signal(each, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {each: signal.getsignal(each) for each in numbers}
    try:
        for each in numbers:
            if before[each] is not signal.SIG_IGN:  # As nohup ignores SIGHUP: it stays so
                signal.signal(each, interrupt)
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def show_plan(request: "RunRequest", form: str | None, *, err: bool = False) -> None:
    """Print what `fabbench run` would do, or write it to standard error.

    Raise FabbenchError for what it would refuse.
    """
    from fabbench.launchers.batch_job import longest_s
    from fabbench.runs.run import preview

    inventory, planned = preview(request)
    print_plan(
        planned,
        inventory,
        request,
        form,
        hosts=inventory.hosts,
        longest_s=longest_s(planned),
        err=err,
    )


def print_plan(  # noqa: PLR0913 - a plan, where it runs, and what is said beside it
    planned: "Plan",
    inventory: "Inventory",
    request: "RunRequest",
    form: str | None,
    *,
    hosts: "Sequence[Host]",
    longest_s: float,
    first_round: str = "",
    err: bool = False,
) -> None:
    """Print what would run on the machines of an inventory. Raise RequestError for a wrong format.

    Of a sweep it is the first test. `hosts` are all of its nodes, and `first_round` says how many
    tests it begins with.
    """
    from fabbench.hosts.discover import unmet
    from fabbench.launchers import launcher_named
    from fabbench.report.table import picked
    from fabbench.report.templates import template

    if form not in {None, "markdown", "text", "json"}:
        raise RequestError(
            f"--format {form} has no effect with --dry-run.", hint="--format json works there."
        )
    shown = redacted(planned)
    if form == "json":
        document = {
            "format": 1,
            "target": shown.target,
            "hosts": [picked(host, *_HOST_FIELDS) for host in hosts],
            "plan": asdict(shown),
            "longest_s": longest_s,
        }
        if first_round:
            document["first_round"] = first_round
        terminal.write_json(redacted(document))  # What is shown of hosts, too
        return
    first: dict[str, Execution] = {}  # Configuration → its first execution
    for execution in shown.executions:
        first.setdefault(execution.configuration.label, execution)
    one_by_one = request.adaptive or first_round
    launcher = launcher_named(request.target.launcher)
    longest = format_duration(longest_s)
    text = template("plan.txt").render(
        request=request,
        held_by=launcher.held_by(request.target) if one_by_one else "",
        hosts=map(_host_line, hosts),
        image=inventory.image,
        plan=shown,
        first_round=first_round,
        longest=longest,
        configurations=[_first_step(each, inventory, request) for each in first.values()],
    )
    for line in text.splitlines():
        terminal.write_line(line, err=err)
    for sentence in unmet(request.work.needs, inventory.hosts):
        terminal.say(sentence)
    how_many = first_round or counted(len(shown.executions), "execution")
    click.echo(f"\nDry run: nothing was started. {how_many}, at most {longest}.", err=True)


def _host_line(host: "Host") -> str:
    """Write a host, its type, its GPUs, and how many NICs it has of each kind of link."""
    parts = [counted(host.gpus, "GPU")]
    if host.instance_type and host.instance_type not in host.name:
        parts.insert(0, host.instance_type)
    links = Counter(host.devices.values())
    parts += [counted(number, f"{link} device") for link, number in links.items()]
    about = ", ".join(parts)
    return f"{host.name}: {about}"


def _assignment(name: str, value: str) -> str:
    """Return a variable as a shell has it before a command."""
    return f"{name}={shlex.quote(value)}"


def _first_step(
    execution: "Execution", inventory: "Inventory", request: "RunRequest"
) -> tuple[object, ...]:
    """Return an execution's configuration and steps, environment and commands of the first one."""
    from fabbench.launchers import launcher_named

    hosts = inventory.hosts_for_variant(execution.configuration.variant)
    step = execution.steps[0]
    env: dict[str, str] = {}
    for command in step.commands:
        env |= command.env
    words = starmap(_assignment, env.items())
    commands = []
    if step.pair:  # Both are started one by one; else one command line starts all ranks
        for command in step.commands:
            host = hosts[command.host].name
            line = shlex.join(command.argv)
            commands.append(f"{line}   ({command.role} on {host})")
    else:
        # Without the options that unset variables: who reads a plan has no use for them
        shown = tuple(replace(each, unset=()) for each in step.commands)
        started = replace(step, commands=shown)
        launcher = launcher_named(request.target.launcher)
        commands.append(shlex.join(launcher.command_line(started, hosts, request.target)))
    return execution.configuration, execution.steps, " ".join(words), commands


@click.group("run", cls=RunGroup, invoke_without_command=True, no_args_is_help=True)
@click.option("--resume", "ref", metavar="RUN", help="Go on with an interrupted run, or sweep.")
@takes("store")
@pass_command_line
def run_(line: CommandLine, ref: str | None, store: Path) -> Exit | Again:
    """Measure on real machines: every configuration, interleaved and repeated, then a comparison.

    The first configuration is the one in question, the last one the baseline. Everything is kept in
    a run directory, also when the run is interrupted. `fabbench runs` lists them. --resume keeps
    its executions that are ok, or the tests of a sweep that ended, and runs the others: the same
    command line, on the same target.

    Example: fabbench run --resume last
    """
    if line.subcommand is not None:
        return Exit.FINE
    if ref is None:
        raise click.UsageError("Missing command.")
    return resume(ref, store)


def resume(ref: str, store: Path) -> Again:
    """Return the command line that goes on with an interrupted run or sweep."""
    from fabbench.runs.inputs import open_run

    return command_line_again(_not_a_rung(open_run(ref, store)), store, resumed=True)


@click.command(
    "rerun", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": True}
)
@click.argument("run", metavar="RUN", default="last")
@click.argument("more", metavar="[OPTIONS]...", nargs=-1, type=click.UNPROCESSED)
@takes("store")
def rerun(run: str, more: "Words", store: Path) -> Again:
    """Repeat a past run: the same command line, on the same target.

    RUN is a directory, an id, a name (run --name), the beginning or the end of one, or `last`.
    Further options are those of `fabbench run`, and come after those of the past run, without its
    --output.

    Example: fabbench rerun last --repeat 5

    Example: fabbench rerun last --dry-run
    """
    from fabbench.runs.inputs import open_run

    if run.startswith("-"):  # RUN was left out: this is the first option
        more = (run, *more)
        run = "last"
    more = ("-o", "-", *more)  # To standard output: the file that the past run wrote is kept
    return command_line_again(_not_a_rung(open_run(run, store)), store, more)


def _not_a_rung(stored: "StoredRun") -> "StoredRun":
    """Return a run. Raise RequestError if it is a part of a ladder."""
    if stored.command[1:2] == ("accept",):
        raise RequestError(
            f"Run {stored.id} is a rung of fabbench accept, which is not repeated alone.",
            hint=f"Repeat the whole ladder: {shlex.join(stored.command)}",
        )
    return stored


def command_line_again(
    stored: "StoredRun | Certificate",
    store: Path,
    more: Sequence[str] = (),
    *,
    resumed: bool = False,
) -> Again:
    """Return the command line of a past run with more options, or to go on with it.

    Raise RequestError.
    """
    if not stored.command:
        raise RequestError(
            f"Run {stored.id} does not record how it was started: it is from an older fabbench.",
            hint=f"Write the command again; fabbench show {stored.id} prints its options.",
        )
    what = "Going on with" if resumed else "Repeating"
    terminal.say(f"{what} run {stored.id}: {shlex.join(stored.command)}")
    name = stored.command[1]  # After `fabbench`
    if name not in {"sweep", "accept", "tune"}:
        name = "run"  # A damaged run could name any command: no other is started
    typed = stored.command[2:]
    words = rerun_words(typed, more, target=stored.target, store=store)
    return Again(name, words, resumed=stored if resumed else None)


def rerun_words(
    words: Sequence[str], more: Sequence[str], *, target: str, store: Path
) -> list[str]:
    """Return the words of a command line with more options, on the target where it ran.

    Raise RequestError for a secret that is not stored, and is not given again.
    """
    end = words.index("--") if "--" in words else len(words)  # The rest is for the benchmark
    typed = list(words[:end])
    # Flags, and names of variables
    given_again = {each.removeprefix("--env=").partition("=")[0] for each in more}
    for word in typed:
        name = word.removeprefix("--env=").partition("=")[0]
        if REDACTED in word and name not in given_again:
            raise RequestError(
                f"The value of {name} is a secret, and is not stored.",
                hint=f"Pass it again: fabbench rerun … --env {name}=VALUE.",
            )
    flags = {word.partition("=")[0] for word in (*typed, *more)}
    # The default target may be another one now.
    if target and "--on" not in flags:
        typed += ["--on", target]
    # Of several --store the last counts: where the past run was found
    return [*typed, *more, "--store", str(store), *words[end:]]
