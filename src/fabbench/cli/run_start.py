"""What every ``fabbench run`` does once its options are read: check, measure, show."""

import os
import signal
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fabbench.cli import tell_notes
from fabbench.cli.options import resolved
from fabbench.cli.run_options import Wanted, environment, variants_of
from fabbench.errors import Exit, FabbenchError, RequestError, worst
from fabbench.model import METRICS

if TYPE_CHECKING:
    from fabbench.gate import Gate
    from fabbench.launchers import Place
    from fabbench.machines import Inventory
    from fabbench.plan import Request, Work
    from fabbench.pool import Column
    from fabbench.run import Results
    from fabbench.store import RunWriter


def start(wanted: Wanted, benchmark: str, work: "Work", given: Mapping[str, Any]) -> None:
    """Check everything, run it, and show what came of it. Ends the command with its exit status.

    `given` is the benchmark's own options, for the record.
    """
    from fabbench.gate import parse_gate
    from fabbench.plan import Request

    if wanted.metric is not None and wanted.metric not in METRICS:
        raise RequestError(f"There is no metric {wanted.metric}.", hint=f"One of {', '.join(METRICS)}.")
    gates = [parse_gate(text) for text in wanted.gates]
    baseline = _baseline(wanted)
    where, why = resolved(wanted.place, wanted.config, os.environ)
    where = replace(where, variants=variants_of(wanted))
    request = Request(
        benchmark=benchmark,
        target=where.target,
        where=where,
        fabrics=wanted.fabrics,
        repeats=wanted.repeats,
        env={**where.env, **environment(wanted.env)},
        options=given,
    )
    with _interruptible():
        writer, results = _held(wanted, request, work, _Checks(gates, baseline, why))
    try:
        status = _show(wanted, writer, results, gates, baseline)
    finally:
        click.echo(f"Run: {writer.path}", err=True)
    if results.interrupted:
        click.echo("Interrupted: what was measured until then is kept.", err=True)
        raise click.exceptions.Exit(Exit.INTERRUPTED)
    if results.failure is not None:
        results.failure.exit = worst(results.failure.exit, status)
        raise results.failure
    raise click.exceptions.Exit(status)


class _Checks(NamedTuple):
    """What must be right before anything starts."""

    gates: "Sequence[Gate]"
    baseline: "Sequence[Column]"
    why: str
    """Why the target is the one it is."""


def _held(wanted: Wanted, request: "Request", work: "Work", checks: _Checks) -> "tuple[RunWriter, Results]":
    """Hold the machines while they are measured. What fails when they are let go is part of the results."""
    from fabbench.launchers import launcher_named

    assert request.where is not None  # noqa: S101 - a promise to the type checker
    measured = None
    try:
        with launcher_named(request.where.launcher).open(request.where, work.needs) as place:
            measured = _measure(wanted, request, work, checks, place)
    except FabbenchError as error:
        if measured is None:
            raise
        earlier, interrupted = measured[1].failure, measured[1].interrupted
        if interrupted or (earlier is not None and str(earlier) != str(error)):
            click.echo(f"Error: {error}", err=True)
            if error.hint:
                click.echo(f"Hint: {error.hint}", err=True)
        if interrupted or earlier is not None:
            tell_notes(error)
        measured[1].failure = measured[1].failure or error
    except KeyboardInterrupt as interrupt:
        if measured is None:
            raise
        tell_notes(interrupt)
        measured[1].interrupted = True
    return measured


def _measure(
    wanted: Wanted, request: "Request", work: "Work", checks: _Checks, place: "Place"
) -> "tuple[RunWriter, Results]":
    from fabbench.cli.live import watching
    from fabbench.inventory import loaded
    from fabbench.plan import plan
    from fabbench.rendering import Job
    from fabbench.run import carry_out
    from fabbench.store import RunWriter

    inventory = place.inventory
    click.echo(f"Target {request.target} ({_machines(request, inventory)}): {checks.why}.", err=True)
    planned = plan(request, inventory, work)
    _check_gates(checks.gates, [arm.label for arm in planned.arms], checks.baseline)
    writer = RunWriter(wanted.store, request, inventory, planned)
    for sentence in loaded(inventory, request.variants):
        click.echo(sentence, err=True)
    arms = " and ".join(map(str, planned.arms))
    number = len(planned.trials)
    click.echo(f"{planned.benchmark} on {arms}: {number} execution{'s' if number > 1 else ''}.", err=True)
    writer.rendered(place.begin(Job(plan=planned, request=request, inventory=inventory, work=work)))
    with watching(planned) as watcher:
        return writer, carry_out(planned, place, writer, watcher, keep_going=wanted.keep_going)


def _machines(request: "Request", inventory: "Inventory") -> str:
    """Name the hosts, and the images of what runs there."""
    hosts = ", ".join(host.name for host in inventory.hosts)
    own = (variant.image or inventory.image for variant in request.variants)
    images = ", ".join(filter(None, dict.fromkeys(own if request.variants else (inventory.image,))))
    return f"{hosts}; image {images}" if images else hosts


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
    wanted: Wanted,
    writer: "RunWriter",
    results: "Results",
    gates: "Sequence[Gate]",
    baseline: "Sequence[Column]",
) -> Exit:
    """Write the comparison of what was measured on standard output, and give the exit status it deserves."""
    from fabbench.compare import compare
    from fabbench.gate import check
    from fabbench.pool import Column
    from fabbench.report import render

    arms = [
        Column(label=label, logs=tuple(logs), source=f"run {writer.id}", variant=writer.variants[label])
        for label, logs in results.logs.items()
        if logs
    ]
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
    rails = {arm.label: arm.logs for arm in arms}
    click.echo(
        render(comparison, wanted.form, verdict=verdict, arms=rails, colour=width is not None, width=width),
        nl=False,
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
