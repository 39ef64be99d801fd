"""``fabbench sweep``: names bad nodes, NICs and links; from tests that it runs, or from logs."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabbench.benchmarks import swept_names
from fabbench.cli import terminal
from fabbench.cli.click_options import (
    CommandLine,
    click_options,
    pass_command_line,
    with_parameters,
)
from fabbench.cli.commands import Again
from fabbench.cli.options import result_options, takes
from fabbench.cli.run_command import (
    RunCommand,
    RunGroup,
    interruptible,
    print_plan,
    resume,
    status_or_raise,
)
from fabbench.launchers import LABEL, SWITCH, options_of_launchers
from fabbench.model.compat import override
from fabbench.model.errors import Exit, MachineError, RequestError
from fabbench.model.log import Outcome
from fabbench.model.mappings import GroupOfNode, Names, distinct, without
from fabbench.model.messages import counted, with_line_feeds
from fabbench.model.options import (
    Choice,
    Launchers,
    Options,
    Seconds,
    Text,
    Type,
    Whole,
    declared,
    option,
)
from fabbench.model.values import frozen
from fabbench.report.sweep_report import CORDON

if TYPE_CHECKING:
    from fabbench.report.page import RunPage
    from fabbench.runs.store import StoredSweep
    from fabbench.runs.sweep import SweepRequest, SweepRun
    from fabbench.sweep.readings import Readings


def _percent(text: str, most: float = 0.999999) -> float:
    """Read ``10%`` as 0.1. Raise ValueError unless it is above 0, and at most `most`.

    A number below 1 takes its sign: without it, it may be a fraction.
    """
    fraction = float(text.strip().removesuffix("%")) / 100
    least = 0 if "%" in text else 0.0099
    if not least < fraction <= most:
        raise ValueError
    return fraction


@frozen
class DiagnosisOptions:
    """How sure a diagnosis must be, what it may use, and how it is written."""

    confidence: float = option(
        Type("a percentage between 0 and 100, such as 99%", "PERCENT", _percent),
        "Minimum confidence for a node, NIC or link to count as bad.",
        default="99%",
    )
    tolerance: float = option(
        # beyond that hardly anything would be slow
        Type("a percentage between 0 and 80, such as 10%", "PERCENT", partial(_percent, most=0.8)),
        "How much slower than typical a healthy node may be.",
        default="10%",
    )
    groups: str | None = option(
        Text("a file, label:KEY or switch", "FILE|label:KEY|switch"),
        "Which rack, switch or other group nodes are in: a file with lines such as node[01-08] "
        "rack-1; the value of a label of Kubernetes nodes; or the lowest switch in Slurm's "
        "topology. Tests between groups are judged apart, and groups can be suspects.",
    )
    print_cordon: str | None = option(
        Choice(CORDON),
        "Print only the commands that take bad nodes out of service: kubectl cordon, or scontrol "
        "with "
        "State=DRAIN. Runs none of them.",
    )
    form: str = "markdown"


def diagnosis_parameters() -> list[click.Parameter]:
    """Return the options of the diagnosis, and those that say how and where it is written."""
    return [
        *click_options(declared(DiagnosisOptions).values()),
        *result_options("sweep"),
    ]


def diagnosis_options(line: CommandLine) -> DiagnosisOptions:
    """Return the options of the diagnosis that a command line has. Raise RequestError."""
    from fabbench.config.given import values_of

    names = (*declared(DiagnosisOptions), "form")
    how = DiagnosisOptions(**values_of(line.given, names))
    if how.print_cordon and how.form not in {"text", "markdown"}:
        raise RequestError("--print-cordon prints commands, in no other format.")
    return how


def groups_from_cluster(groups: str | None) -> str:
    """Return groups that come from the launcher, and not from a file; empty: they do not."""
    return groups if groups and (groups == SWITCH or groups.startswith(LABEL)) else ""


def groups_of(file: str, nodes: Iterable[str] = ()) -> GroupOfNode:
    """Return the group of each node, as listed in `file`.

    Raise FabbenchError if one of `nodes` is not.
    """
    from fabbench.sweep.node_names import read_groups

    path = Path(file).expanduser()
    try:
        return read_groups(path.read_text("utf-8-sig"), nodes)
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror}.") from error
    except ValueError as error:
        raise RequestError(
            f"{path}: {error}.", hint="Write a line per group: node[01-08] rack-1."
        ) from None


def print_answer(
    readings: "Readings",
    how: DiagnosisOptions,
    page: "RunPage | None" = None,
    **more: Any,
) -> Exit:
    """Write the diagnosis of readings to standard output; return the matching exit status.

    `page` has what a page says of a stored run besides; `more` is for `SweepReport`.
    """
    from fabbench.report.page import page_of, run_section, sweep_page
    from fabbench.report.sweep_report import (
        MAX_ROWS,
        MAX_SVG_ROWS,
        cordon_commands,
        headline,
        render_sweep,
    )
    from fabbench.runs.report_pages import sweep_report

    rows = MAX_SVG_ROWS if how.form in {"svg", "html"} else MAX_ROWS
    report = sweep_report(readings, how, rows=rows, **more)
    diagnosis = report.diagnosis
    if how.print_cordon:
        lines = cordon_commands(diagnosis, how.print_cordon)
        terminal.write_drawn(with_line_feeds(lines))
    elif how.form == "html":
        about = replace(page, sweep=report) if page else sweep_page(report)
        section = run_section(about, number=1)
        terminal.write_drawn("".join(page_of([section])))
    else:
        terminal.show(render_sweep, report, how.form, answer=[headline(report)])
    # An unfinished sweep that found nothing, or only a slow path between groups, has no answer.
    # `slow_path` (whether there is one) counts as 0 or 1: that path is one suspect.
    path_at_most = len(diagnosis.suspects) == diagnosis.slow_path
    return Exit.UNTRUSTED if report.unfinished and path_at_most else diagnosis.status


MODES = ("diagnose", "pairs", "single", "rails")


@dataclass(init=False, repr=False, eq=False)
class SweepOptions:
    """Options that only sweeps have."""

    mode: str = option(
        Choice(MODES),
        "What to test. diagnose: a few random pairs (with --groups within and between these), "
        "and then what "
        "stands out, with other partners, until it is decided; pairs: all pairs, and what stands "
        "out again; "
        "single: each node alone; rails: each NIC with the same one of three other nodes.",
        default=MODES[0],
    )
    max_time: float | None = option(
        Seconds(), "Stop after this time, and answer from the tests so far."
    )
    seed: int | None = option(Whole(0, 2**31), "Seed that random pairs are drawn with. Default: 0.")
    partners: int | None = option(
        Whole(1),
        "Random partners of each node, or of each NIC. More find more nodes that are slow now "
        "and then. "
        "Default: 8 (diagnose), 3 (rails).",
    )


def _launchers_that_divide() -> Launchers:
    """Return the launchers that can run tests on parts of the nodes that they hold."""
    return {name: kind for name, kind in options_of_launchers().items() if kind.divides}


class SweepCommand(RunCommand):
    """A command of ``fabbench sweep``.

    Options of launchers that it works with, and the benchmark's.
    """

    benchmarks = staticmethod(swept_names)
    shared = ("on", "fabrics", "env", "dry_run", "name", "metric", "store")
    choices = staticmethod(_launchers_that_divide)

    @override
    def about(self) -> str:
        name = self.benchmark.name
        return (
            f"Find bad nodes, NICs and links with short tests of {name}.\n\n"
            f"Options of {name} are those of fabbench run {name}, with defaults that keep tests "
            f"short.\n\nExample: fabbench sweep {name} --on ssh --host node[01-32]"
        )

    @override
    def work_options_of(self, work: type[Any]) -> Options:
        defaults = self.benchmark.sweep_defaults
        known = declared(work)
        return {
            name: replace(each, default=defaults.get(name, each.default))
            for name, each in known.items()
        }

    @override
    def all_but_work_parameters(self) -> list[click.Parameter]:
        return [
            *self.run_and_launcher_parameters(),
            *click_options(declared(SweepOptions).values()),
            *diagnosis_parameters(),
        ]

    @override
    def start(self, line: CommandLine) -> Exit:
        from fabbench.cli.live import watching_sweep
        from fabbench.config.given import value_of
        from fabbench.runs.sweep import sweep

        how = diagnosis_options(line)
        request = self.sweep_request(line, how)
        if value_of(line.given, "dry_run"):
            _show_first_tests(request, how.form)
            return Exit.FINE
        with interruptible():
            result = sweep(request, notify=terminal.notify, watching=watching_sweep)
        return _print_result(result, how)

    def sweep_request(self, line: CommandLine, how: DiagnosisOptions) -> "SweepRequest":
        """Return the request that all options describe. Raise RequestError."""
        from fabbench.config.given import Origin, from_origin, values_of
        from fabbench.runs.sweep import PARTNERS, SweepRequest

        of_sweep = values_of(line.given, (*declared(SweepOptions), "confidence", "tolerance"))
        # Options that only some modes have: elsewhere they would have no effect.
        for name, modes in (
            ("seed", [each for each in MODES if each != "single"]),
            ("partners", PARTNERS),
        ):
            if name in of_sweep and of_sweep["mode"] not in modes:
                mode = of_sweep["mode"]
                valid = ", ".join(modes)
                text = f"--{name} has no effect with --mode {mode}."
                raise RequestError(text, hint=f"It is for {valid}.")
        groups_by = groups_from_cluster(how.groups)
        of_run = without(line.given, declared(SweepOptions))  # --max-time is the sweep's
        set_by_user = without(line.given, from_origin(line.given, Origin.DEFAULT))
        return SweepRequest(
            run=self.request(line._replace(given=of_run)),
            **of_sweep,
            # Groups of a file are known now; those of the cluster once its nodes are
            group_of=groups_of(how.groups) if how.groups and not groups_by else {},
            groups_by=groups_by,
            raises_limit={"timeout_s", "silence_s"}.isdisjoint(set_by_user),
            resume=line.resumed,
        )


def _show_first_tests(request: "SweepRequest", form: str) -> None:
    """Print what a sweep would test first. Raise FabbenchError for what it would refuse."""
    from fabbench.runs.sweep import preview_sweep

    preview = preview_sweep(request)
    first = preview.first_round
    print_plan(
        preview.test,
        preview.tested,
        request.run,
        form,
        hosts=preview.inventory.hosts,
        first_round=f"{counted(len(first.tests), 'test')} ({first.purpose})",
        longest_s=preview.longest_s,
    )


def print_sweep(sweep: "StoredSweep", how: DiagnosisOptions, *, whole: bool) -> Exit:
    """Write the diagnosis of a sweep's tests to standard output; return the matching exit status.

    `whole`: whether every planned test has ended. Raise MachineError where there is nothing to
    judge.
    """
    from fabbench.runs.report_pages import run_page
    from fabbench.runs.store import StoredRun
    from fabbench.runs.sweep import readings_of, unfinished

    document = sweep.document
    tests = sweep.tests
    if not any(each.result.is_measured for each in tests):
        reasons = (each.reason for each in tests if each.reason)
        raise MachineError(
            f"No test of this sweep succeeded, of {len(tests)}. {next(reasons, '')}".rstrip(),
            hint=f"Run the benchmark on two of the nodes first: fabbench run {document.benchmark}",
        )
    # As the sweep was judged when it ran, whatever this command's defaults are
    how = replace(how, confidence=document.confidence, tolerance=document.tolerance)
    not_tested = "" if whole else unfinished(sweep)
    readings = readings_of(document, sweep.results)
    page = run_page(StoredRun(sweep.path)) if how.form == "html" else None
    answer = print_answer(readings, how, page, unfinished=not_tested)
    # Other runs of fabbench on the nodes, each sentence once
    for sentence in distinct(each for test in tests for each in test.neighbors):
        terminal.notify(f"Warning: {sentence}")
    unproven = sum(each.outcome == Outcome.UNPROVEN for each in tests)
    if unproven:
        terminal.notify(
            f"{counted(unproven, 'test')} of {len(tests)} did not prove that they used "
            f"{document.fabric}."
        )
    return Exit.UNTRUSTED if unproven and answer is Exit.FINE else answer


def _print_result(result: "SweepRun", how: DiagnosisOptions) -> Exit:
    from fabbench.runs.sweep import end_sweep

    path = result.sweep.path
    try:
        answer = print_sweep(result.sweep, how, whole=result.whole)
    except MachineError as error:  # There is nothing to judge
        answer = error.exit
        if result.whole:  # Else what ended it early says why
            terminal.print_error(error)
    finally:
        terminal.notify(f"Run: {path}")
    if result.whole:
        end_sweep(result.sweep, answer)
    else:
        again = shlex.join(["fabbench", "run", "--resume", str(path)])
        why = "It failed"
        if result.interrupted:
            why = "Interrupted"
        elif result.out_of_time:
            why = "The time is up"
        terminal.notify(f"{why}. Tests that ended were saved. To resume: {again}")
    # A failure is raised with its own status: what it kept from being tested is undecided for no
    # other reason.
    return status_or_raise(result, Exit.FINE if result.failure else answer)


_MAX_NAMED = 20


@click.group("sweep", cls=RunGroup, makes=SweepCommand, invoke_without_command=True)
@click.option(
    "--from",
    "inputs",
    multiple=True,
    metavar="LOG|RUN",
    help="Logs of pairs of nodes that you have run: a directory, a file, a run; or a sweep, to "
    "judge "
    "its tests again. Can be given several times.",
)
@click.option(
    "--resume",
    "ref",
    metavar="RUN",
    help="Go on with an interrupted sweep, as `run --resume` does.",
)
@takes("store", metric="Metric to judge by. Default: the benchmark's usual one.")
@with_parameters(diagnosis_parameters())
@pass_command_line
def sweep_(
    line: CommandLine,
    /,
    inputs: Names,
    ref: str | None,
    metric: str | None,
    store: Path,
    **answer: object,
) -> Exit | Again:
    """Find bad nodes, NICs and links from tests of pairs of nodes.

    With a benchmark, runs them: hosts are set up once, and pairs that share no node are tested
    concurrently. A test that fails, hangs or uses another network is evidence, and the sweep goes
    on.

    With --from, reads the logs of any benchmark that fabbench parses. The nodes of a log are taken
    from the log itself (NCCL, MPI), from its run, or from the name of its file, such as
    nccl_node-01_node-02.log. A pair that failed counts as evidence.

    The exit status is 1 if something is bad, 4 if these tests do not decide it, and 3 if there is
    nothing to judge.

    Example: fabbench sweep nccl --on ssh --host node[01-32]

    Example: fabbench sweep --from pair-logs/
    """
    del answer  # `diagnosis_options` reads these from the command line
    if line.subcommand is not None:
        return Exit.FINE
    if ref is not None:
        return resume(ref, store)
    if inputs:
        how = diagnosis_options(line)
        return _judge_logs(inputs, store, metric, how)
    raise RequestError(
        "Nothing to test and nothing to read: a benchmark or --from is missing.",
        hint="fabbench sweep nccl --on TARGET, or fabbench sweep --from DIRECTORY",
    )


def _judge_logs(
    sources: Sequence[str], store: Path, metric: str | None, how: DiagnosisOptions
) -> Exit:
    # Diagnose the tests that logs, runs and sweeps have (--from), and write the answer.
    from fabbench.runs.sweep_logs import read_sweep_logs
    from fabbench.sweep.readings import Readings

    if groups_from_cluster(how.groups):
        raise RequestError(
            f"--groups {how.groups} queries a cluster, but --from only reads logs.",
            hint="Pass a file.",
        )
    logs = read_sweep_logs(sources, store, metric)
    for source, reason in logs.left_out[:_MAX_NAMED]:
        terminal.notify(f"Left out: {source}: {reason}")
    if more := len(logs.left_out[_MAX_NAMED:]):
        terminal.notify(f"Left out: {more} more. --format json names all.")
    if logs.copies:
        terminal.notify(f"Copies of other logs, left out: {logs.copies}.")
    for source, meaning in logs.slow_nics:
        terminal.notify(f"Slow NIC: {source}: {meaning}")
    group_of = groups_of(how.groups, logs.nodes) if how.groups else logs.group_of
    known = {"group_of": group_of, "types": logs.types}
    readings = Readings(logs.metric, logs.nodes, logs.results, **known)
    return print_answer(readings, how, left_out=logs.left_out, unfinished=logs.unfinished)
