"""``fabbench run``: a group with one command for each benchmark that can be started."""

import importlib
import signal
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from fabbench.cli import options
from fabbench.errors import Exit, RequestError, worst
from fabbench.model import METRICS

if TYPE_CHECKING:
    from fabbench.gate import Gate
    from fabbench.plan import Request, Work
    from fabbench.pool import Column
    from fabbench.run import Results
    from fabbench.store import RunWriter

BENCHMARKS = {"pingpong": "fabbench.cli.run_pingpong"}
_TARGET_VARIABLE = "FABBENCH_TARGET"
_ARM_FLAGS = {"--efa": "--fabric=efa", "--no-efa": "--fabric=tcp", "--ab": "--fabric=ab"}
_FORMATS = ("markdown", "csv", "json", "terminal")


class RunGroup(click.Group):
    """Imports the command of a benchmark when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the benchmarks."""
        del ctx
        return list(BENCHMARKS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of one benchmark."""
        del ctx
        module = BENCHMARKS.get(cmd_name)
        found = getattr(importlib.import_module(module), cmd_name) if module else None
        return found if isinstance(found, click.Command) else None


class RunCommand(click.Command):
    """A command whose arms come in the order in which they are written, whichever option names them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the short forms of ``--fabric`` as what they stand for."""
        return super().parse_args(ctx, [_ARM_FLAGS.get(word, word) for word in args])


@click.group(cls=RunGroup, short_help="Measure on real machines, and compare.")
def command() -> None:
    """Measure on real machines: every arm, interleaved and repeated, then a comparison.

    The first arm is the one in question, the last one the base. Everything is kept in a run directory, also
    when the run is interrupted. `fabbench runs` lists them.
    """


_OPTIONS = (
    click.option("--on", metavar="TARGET", help=f"Where to run: local. Else {_TARGET_VARIABLE} says it."),
    click.option(
        "--fabric",
        "fabrics",
        multiple=True,
        metavar="NAME",
        help="Add an arm on this fabric: shm, tcp, efa, ib, or any libfabric provider. No fabric at all: the "
        "best one that is there.",
    ),
    click.option("--efa", is_flag=True, expose_value=False, help="The same as --fabric efa."),
    click.option("--no-efa", is_flag=True, expose_value=False, help="The same as --fabric tcp."),
    click.option(
        "--ab",
        is_flag=True,
        expose_value=False,
        help="Two arms: the best RDMA fabric that is there, then tcp.",
    ),
    click.option(
        "--repeat",
        "repeats",
        type=click.IntRange(1, 999),
        metavar="N",
        help="Repeats of each arm. 3 with several arms, else 1.",
    ),
    click.option(
        "--gate",
        "gates",
        multiple=True,
        metavar="GATE",
        help="What must hold for the first arm, such as latency@64:20us or bandwidth@1M>=3GB/s. Can be given "
        "several times.",
    ),
    click.option(
        "--baseline", metavar="RUN|FILE", help="What gates compare with: a run, RUN:ARM, or a log file."
    ),
    click.option("--metric", help="What the table compares. Chosen from the benchmark if not given."),
    click.option(
        "--format",
        "form",
        type=click.Choice(_FORMATS),
        default="markdown",
        show_default=True,
        help="How to write the comparison.",
    ),
    options.store,
)


def shared_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that every benchmark has."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The shared options, as given."""

    on: str | None
    fabrics: tuple[str, ...]
    repeats: int | None
    gates: tuple[str, ...]
    baseline: str | None
    metric: str | None
    form: str
    store: Path

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> "Wanted":
        """Take the shared options out of a command's."""
        return cls(**{name: options[name] for name in cls.__slots__})


def target(on: str | None, environment: Mapping[str, str]) -> tuple[str, str]:
    """Say where to run, and why there. Raises RequestError that lists the places looked at."""
    if on:
        return on, "--on says so"
    if name := environment.get(_TARGET_VARIABLE):
        return name, f"{_TARGET_VARIABLE} says so"
    raise RequestError(
        f"Nothing says where to run: there is no --on, and {_TARGET_VARIABLE} is not set.",
        hint="--on local runs on this machine.",
    )


def start(wanted: Wanted, request: "Request", work: "Work", *, why: str) -> None:
    """Check everything, run it, and show what came of it. Ends the command with its exit status."""
    from fabbench.gate import parse_gate

    if wanted.metric is not None and wanted.metric not in METRICS:
        raise RequestError(f"There is no metric {wanted.metric}.", hint=f"One of {', '.join(METRICS)}.")
    gates = [parse_gate(text) for text in wanted.gates]
    baseline = _baseline(wanted)
    with _interruptible():
        writer, results = _measure(wanted, request, work, gates=gates, baseline=baseline, why=why)
    try:
        status = _show(wanted, results, gates, baseline, run=f"run {writer.id}")
    finally:
        click.echo(f"Run: {writer.path}", err=True)
    if results.interrupted:
        click.echo("Interrupted: what was measured until then is kept.", err=True)
        raise click.exceptions.Exit(Exit.INTERRUPTED)
    if results.failure is not None:
        raise results.failure
    raise click.exceptions.Exit(status)


def _measure(  # noqa: PLR0913 - all that must be right before anything starts
    wanted: Wanted,
    request: "Request",
    work: "Work",
    *,
    gates: "Sequence[Gate]",
    baseline: "Sequence[Column]",
    why: str,
) -> "tuple[RunWriter, Results]":
    from fabbench.launchers import launcher_named
    from fabbench.plan import plan
    from fabbench.store import RunWriter

    launcher = launcher_named(request.target)
    inventory = launcher.discover(work.programs, install=work.install)
    hosts = ", ".join(host.name for host in inventory.hosts)
    click.echo(f"Target {request.target} ({hosts}): {why}.", err=True)
    planned = plan(request, inventory, work)
    _check_gates(gates, [arm.label for arm in planned.arms], baseline)
    writer = RunWriter(wanted.store, request, inventory, planned)
    arms = " and ".join(arm.label for arm in planned.arms)
    number = len(planned.trials)
    click.echo(f"{planned.benchmark} on {arms}: {number} execution{'s' if number > 1 else ''}.", err=True)

    from fabbench.cli.live import watching
    from fabbench.run import carry_out

    with watching(planned) as watcher:
        return writer, carry_out(planned, launcher, writer, watcher)


def _baseline(wanted: Wanted) -> "list[Column]":
    from fabbench.inputs import columns

    return columns(wanted.baseline, store=wanted.store) if wanted.baseline else []


def _check_gates(gates: "Sequence[Gate]", arms: Sequence[str], baseline: "Sequence[Column]") -> None:
    """Raise RequestError for what would only fail after the measurement."""
    from fabbench.gate import Kind

    if len(baseline) > 1 and arms[0] not in {column.label for column in baseline}:
        labels = ", ".join(column.label for column in baseline)
        raise RequestError(
            f"The baseline has {len(baseline)} arms ({labels}), and none of them is {arms[0]}.",
            hint="Name one of them: --baseline RUN:ARM.",
        )
    alone = len(arms) == 1 and not baseline
    relative = next((gate.text for gate in gates if gate.kind is Kind.TOLERANCE), "")
    if alone and relative:
        raise RequestError(
            f"The gate {relative} has a tolerance, and there is nothing to compare with.",
            hint="Add --baseline or a second arm, or give a limit such as latency@64<=20us.",
        )


def _show(
    wanted: Wanted, results: "Results", gates: "Sequence[Gate]", baseline: "Sequence[Column]", *, run: str
) -> Exit:
    """Write the comparison of what was measured on standard output, and give the exit status it deserves."""
    from fabbench.compare import compare
    from fabbench.gate import check
    from fabbench.pool import Column
    from fabbench.report import render

    arms = [Column(label=label, logs=tuple(logs), source=run) for label, logs in results.logs.items() if logs]
    if not arms:
        return Exit.FINE
    fitting = [column for column in baseline if len(baseline) == 1 or column.label == arms[0].label]
    base = next(iter(fitting), arms[-1] if len(arms) > 1 else None)
    # Arms of one plan may differ in their endpoint only because their providers do.
    allow: Collection[str] = ("endpoint",)
    compared = [*arms, *fitting] if len(arms) == 1 else arms
    comparison = compare(compared, metric=wanted.metric, allow=allow, only_ok=True)
    verdict = check(gates, arms[0], base, allow=allow) if gates and not results.interrupted else None
    width = _width()
    click.echo(
        render(comparison, wanted.form, verdict=verdict, colour=width is not None, width=width), nl=False
    )
    for breach in verdict.breaches if verdict else ():
        click.echo(f"Gate breached: {breach}", err=True)
    return worst(comparison.status, verdict.status if verdict else Exit.FINE)


@contextmanager
def _interruptible() -> Iterator[None]:
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


def _width() -> int | None:
    """Give the width of the terminal; None: standard output is none."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None
