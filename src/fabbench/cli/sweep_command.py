"""The command of ``fabbench sweep`` for one benchmark: its options → one request → what is printed."""

import inspect
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from fabbench.cli import terminal
from fabbench.cli.click_options import Launchers, click_options, values_of
from fabbench.cli.run_command import RESUMED, RunCommand, RunGroup, interruptible, print_release_failure
from fabbench.cli.sweep_answer import (
    AnswerOptions,
    answer_options,
    answer_parameters,
    groups_from_cluster,
    groups_of,
    print_answer,
)
from fabbench.launchers import options_of_launchers
from fabbench.model.compat import override
from fabbench.model.errors import Exit, FabbenchError, MachineError, RequestError, worst
from fabbench.model.log import METRICS, Outcome
from fabbench.model.messages import counted
from fabbench.model.option_types import Choice, Flag, Seconds, Whole
from fabbench.model.options import Option, declared, option

if TYPE_CHECKING:
    from fabbench.benchmarks import Benchmark
    from fabbench.runs.sweep import SweepRequest, SweepRun
    from fabbench.runs.sweep_store import StoredSweep

MODES = ("diagnose", "pairs", "single", "rails")


_HELP = """\
    Find bad nodes, NICs and links with short tests of {name}.

    Options of {name} are those of fabbench run {name}, with defaults that keep tests short.

    Example: fabbench sweep {name} --on ssh --host node[01-32]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepOptions:
    """Options that only sweeps have."""

    mode: str = option(
        Choice(MODES),
        "What to test. diagnose: a few random pairs (with --groups within and between these), and then what "
        "stands out, with other partners, until it is decided; pairs: all pairs, and what stands out again; "
        "single: each node alone; rails: each NIC with the same one of three other nodes.",
        default=MODES[0],
    )
    dry_run: bool = option(Flag(), "Print the first tests of the sweep and start nothing.")
    max_time: float | None = option(Seconds(), "Stop after this time, and answer from the tests so far.")
    seed: int | None = option(Whole(0, 2**31), "Seed that random pairs are drawn with. Default: 0.")
    partners: int | None = option(
        Whole(1),
        "Random partners of each node, or of each NIC. More find more nodes that are slow now and then. "
        "Default: 4 (diagnose), 3 (rails).",
    )


class SweepCommand(RunCommand):
    """A command of ``fabbench sweep``: options of launchers that it works with, and the benchmark's."""

    shared = ("on", "fabrics", "env", "name", "metric", "store")

    def __init__(self, benchmark: "Benchmark", work: type[Any]) -> None:
        super().__init__(benchmark, work)
        self.help = inspect.cleandoc(_HELP.format(name=benchmark.name))

    @override
    def work_options_of(self, work: type[Any]) -> Mapping[str, Option]:
        defaults = self.benchmark.sweep_defaults
        known = declared(work)
        return {name: replace(each, default=defaults.get(name, each.default)) for name, each in known.items()}

    @override
    def shared_launchers(self) -> Launchers:
        return {name: kind for name, kind in options_of_launchers().items() if kind.divides}

    @override
    def shared_parameters(self) -> list[click.Parameter]:
        return [*self.common_parameters(), *click_options(declared(SweepOptions).values()), *answer_parameters()]

    @override
    def invoke(self, ctx: click.Context) -> None:
        from fabbench.cli.live import watching_sweep
        from fabbench.runs.sweep import sweep

        how = answer_options(ctx)
        request = self.sweep_request(ctx, how)
        if ctx.params["dry_run"]:
            from fabbench.cli.dry_run import show_sweep

            show_sweep(request, how)
            return
        with interruptible():
            result = sweep(request, notify=terminal.notify, watching=watching_sweep)
        _print(result, how)

    def sweep_request(self, ctx: click.Context, how: AnswerOptions) -> "SweepRequest":
        """Return the request that all options describe. Raise RequestError."""
        from fabbench.runs.sweep import SweepRequest

        sweep_options = SweepOptions(**values_of(ctx, declared(SweepOptions)))
        _require_effect(sweep_options)
        from_cluster = groups_from_cluster(how.groups)
        run = self.request(ctx)
        return SweepRequest(
            run=run,
            mode=sweep_options.mode,
            confidence=how.confidence,
            tolerance=how.tolerance,
            group_of={} if from_cluster else groups_of((), how.groups),
            groups_by=how.groups or "" if from_cluster else "",
            seed=sweep_options.seed or 0,
            partners=sweep_options.partners,
            max_time=sweep_options.max_time,
            resume=ctx.meta.get(RESUMED),
        )


class SweepGroup(RunGroup):
    """Makes the command of a benchmark when it is needed."""

    makes = SweepCommand

    @override
    def list_commands(self, ctx: click.Context) -> list[str]:
        from fabbench.benchmarks import swept_names

        del ctx
        return list(swept_names())


def _require_effect(given: SweepOptions) -> None:
    from fabbench.runs.sweep_modes import PARTNERS

    if given.mode == "single" and given.seed is not None:
        raise RequestError("--seed has no effect with --mode single.", hint="Leave it out.")
    if given.partners is not None and given.mode not in PARTNERS:
        raise RequestError(
            f"--partners has no effect with --mode {given.mode}.", hint=f"It is for {', '.join(PARTNERS)}."
        )


def print_sweep(sweep: "StoredSweep", how: AnswerOptions, *, whole: bool) -> Exit:
    """Write the diagnosis of a sweep's tests to standard output; return the matching exit status.

    Raise MachineError where there is nothing to judge.
    """
    from fabbench.runs.sweep_modes import unfinished

    document, tests = sweep.document, sweep.tests
    if not any(each.result.figure for each in tests):
        reasons = (each.reason for each in tests if each.reason)
        raise MachineError(
            f"No test of this sweep succeeded, of {len(tests)}. {next(reasons, '')}".rstrip(),
            hint=f"Run the benchmark on two of the nodes first: fabbench run {document.benchmark}",
        )
    how = replace(how, confidence=document.confidence, tolerance=document.tolerance)
    left = "" if whole else unfinished(sweep)
    metric, groups = METRICS[document.metric], document.group_of
    answer = print_answer(sweep.results, metric, document.nodes, how, group_of=groups, unfinished=left)
    unproven = sum(each.outcome == Outcome.UNPROVEN for each in tests)
    if unproven:
        terminal.notify(f"{counted(unproven, 'test')} of {len(tests)} did not prove that they used {document.fabric}.")
    return Exit.UNTRUSTED if unproven and answer is Exit.FINE else answer


def _print(result: "SweepRun", how: AnswerOptions) -> None:
    path = result.sweep.path
    print_release_failure(result)
    try:
        answer = _answer(result, how)
    finally:
        terminal.notify(f"Run: {path}")
    if not result.whole:
        resume = shlex.join(["fabbench", "sweep", "--resume", str(path)])
        why = "Interrupted" if result.interrupted else "The time is up" if result.out_of_time else "It failed"
        terminal.notify(f"{why}. Tests that ended were saved. To resume: {resume}")
    error = None if result.interrupted else result.failure or result.release_failure
    if isinstance(error, FabbenchError):
        # What an error kept from being tested is undecided for no other reason.
        error.exit = error.exit if error is result.failure else worst(error.exit, answer)
        raise error
    raise click.exceptions.Exit(Exit.INTERRUPTED if result.interrupted else answer)


def _answer(result: "SweepRun", how: AnswerOptions) -> Exit:
    from fabbench.runs.sweep import end_sweep

    sweep = result.sweep
    if not result.whole and not any(each.result.figure for each in sweep.tests):
        terminal.notify("No test has succeeded yet.")
        return Exit.REFUSED
    try:
        status = print_sweep(sweep, how, whole=result.whole)
    except MachineError as error:
        end_sweep(sweep, error.exit)
        raise
    if result.whole:
        end_sweep(sweep, status)
    return status
