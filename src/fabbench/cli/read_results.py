"""Commands that read results: ``parse``, ``explain``, ``compare``, ``report``."""

import shlex
import sys
from collections import Counter
from functools import partial
from itertools import groupby, starmap, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from fabbench.cli import terminal
from fabbench.cli.options import (
    LogCommand,
    known_proof,
    require_writable,
    results,
    takes,
)
from fabbench.model.errors import Exit, RequestError, worst
from fabbench.model.log import (
    FLIGHT_RECORDER,
    INSPECTOR,
    NCCL_DEBUG,
    Log,
    Outcome,
    fact_text,
    status_of,
)
from fabbench.model.mappings import Names

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from fabbench.analysis.aggregate import Column
    from fabbench.analysis.compare import Comparison
    from fabbench.analysis.gate_results import Verdict
    from fabbench.logs.signs import Unread
    from fabbench.model.log import Proof
    from fabbench.model.units import Sizes
    from fabbench.runs.inputs import Piece, Source


_INPUTS = click.argument(
    "inputs",
    metavar="LOG|RUN...",
    nargs=-1,
    required=True,
    type=click.Path(),
)


@click.command("parse", cls=LogCommand)
@_INPUTS
@results("list", "Output format. `json` is the public contract (docs/formats.md).")
@takes("sizes", "fabric", "store")
@click.option(
    "--exit-zero",
    is_flag=True,
    help="Exit 0 regardless of outcomes and gates; unreadable files still exit 3.",
)
def parse(
    inputs: Names,
    form: str,
    sizes: "Sizes | None",
    store: Path,
    *,
    exit_zero: bool,
    **known: Any,
) -> Exit:
    """Read benchmark logs and print their results.

    LOG is the output of a benchmark (detected automatically) with the prefixes of any launcher, the
    JSON of nccl-tests' -J, or fabbench's own JSON (unproven); - is standard input. It may be
    compressed (gzip, bzip2, xz, zstd). A directory stands for all files in it and below; those that
    have nothing to do with a benchmark are left out. A list (a.log,b.log) stands for these files.
    RUN is a run's directory, an id, `last`, or RUN:CONFIG; it is judged as it was measured. Many
    files, and large ones, are read on all cores.

    The exit status is 0 if every log is ok, 4 if one is not, 3 if a file cannot be read or
    nothing in it is recognized, and 1 if a gate fails.
    """
    from fabbench.logs.signs import none_found
    from fabbench.report.log_report import log_writer
    from fabbench.report.templates import rendered
    from fabbench.runs.inputs import ParseJob, read, sources_of

    proof = known_proof(known)
    sources = sources_of(inputs, store, proof, known["labels"])
    job = ParseJob(
        form=form,
        sizes=sizes,
        proof=proof,
        judge=_gate_check_of_logs(known),
        color=terminal.in_color(sys.stdout),
        width=terminal.width(),
    )
    frame = log_writer(job.form)  # What stands before, between and after the logs
    unread: list[Unread] = []
    outcomes: set[Outcome] = set()
    logs: list[Piece] = []
    verdicts: list[Verdict] = []
    separator = ""
    lines = 0
    sys.stdout.write(frame.opening)
    # A piece has one or more of: text, a log's outcome and verdict, why a file has no log.
    with terminal.files_progress(len(sources)) as advance:
        for piece in read(sources, job):
            if piece.unread is not None:
                unread.append(piece.unread)
            if piece.text:
                terminal.write_drawn(separator + piece.text)
                separator = frame.separator
                lines += piece.text.count("\n")
            if piece.ends:
                advance()
            if piece.outcome is not None:
                outcomes.add(piece.outcome)
                logs.append(piece._replace(text=""))
            if piece.verdict is not None:
                verdicts.append(piece.verdict)
    if not outcomes:
        unread += none_found(inputs, unread)
    reasons = [(entry.source, entry.reason) for entry in unread if not entry.remark]
    sys.stdout.write(frame.closing(reasons))
    sys.stdout.flush()
    if form == "text":
        terminal.end_with([rendered("parse_end.txt", logs=logs)], lines)
    _require_rows(sizes, logs)
    status = worst(status_of(outcomes), terminal.print_verdicts(verdicts))
    return worst(Exit.FINE if exit_zero else status, terminal.say_unread(unread))


def _require_rows(sizes: "Sizes | None", logs: "Sequence[Piece]") -> None:
    """Raise RequestError if no log has any of the sizes that are asked for."""
    has_rows = any(piece.rows for piece in logs)
    if sizes and logs and not has_rows:
        raise RequestError("Nothing was measured at the sizes of --size.")


def _gate_check(options: "Mapping[str, Any]") -> "Callable[[Comparison], Verdict | None]":
    """Return what checks the gates of a command line on a comparison."""
    if not options["gates"] and not options["strict"]:
        return lambda _: None
    from fabbench.analysis.gate import check  # which most command lines do not need
    from fabbench.plan.gates import parse_gates

    strict = options["strict"]
    return partial(check, parse_gates(options["gates"], strict=strict), strict=strict)


def _gate_check_of_logs(given: "Mapping[str, Any]") -> "Callable[[Log], Verdict] | None":
    """Return what checks the gates of a command line on one log alone; None: there are none."""
    judge = _gate_check(given)
    if not isinstance(judge, partial):  # what checks nothing
        return None
    from fabbench.analysis.gate import check_log
    from fabbench.plan.gates import require_limits

    require_limits(*judge.args)  # The gates: a log alone has no baseline
    return partial(check_log, judge)


@click.command("explain", cls=LogCommand)
@_INPUTS
@takes("fabric", "store")
@results("diagnosis", "How to write the diagnoses.")
def explain(
    inputs: Names,
    form: str,
    store: Path,
    labels: Names,
    **known: Any,
) -> Exit:
    """Diagnose which network a log or run used, and why.

    For each benchmark execution: the outcome and its reason, the facts with the line that states
    each, and the findings with advice. A log without a benchmark, such as a training job's with
    NCCL_DEBUG=INFO, is diagnosed too: which network the job uses. Files that the processes of one
    job wrote (NCCL_DEBUG_FILE, dumps of PyTorch's flight recorder, JSON of NCCL's inspector) are
    read as one. LOG may be a directory, or compressed; - is standard input. RUN is a directory, an
    id, `last`, or RUN:CONFIG, and is judged as it was measured. Logs of one test are compared with
    the last.

    The exit status is that of `parse`, and 0 for a log without a benchmark whose network is not
    contradicted.
    """
    from fabbench.logs.signs import none_found
    from fabbench.report.log_report import diagnosis, diagnosis_record
    from fabbench.runs.inputs import sources_of

    proof = known_proof(known)
    judge = _gate_check_of_logs(known)
    logs, unread = _logs_of_jobs(sources_of(inputs, store, proof, labels), proof)
    if not logs:
        unread += none_found(inputs, unread)
    verdicts = list(map(judge, logs)) if judge else []
    if form == "json":
        records = list(starmap(diagnosis_record, zip_longest(logs, verdicts)))
        terminal.write_json({"format": 1, "logs": records})
    else:
        for log in logs:
            text, answer = diagnosis(log)
            terminal.end_with(answer, sum(map(terminal.write_line, text)))
    judged = terminal.print_verdicts(verdicts)
    status = status_of([log.outcome for log in logs], [Outcome.OBSERVED])
    return worst(status, judged, terminal.say_unread(unread))


def _logs_of_jobs(
    sources: "Iterable[Source]", proof: "Proof | None"
) -> "tuple[list[Log], list[Unread]]":
    """Return the logs that were read, and files without. Files of a job are one log, at the end."""
    from fabbench.runs.inputs import read_source
    from fabbench.runs.load_columns import judged_together
    from fabbench.runs.parse_file import parse_together

    read = [
        _Entry(source, entry) for source in sources for _, entry in read_source(source, proof=proof)
    ]
    # First each log is judged beside the others, then those of a job are read again as one
    apart = [each.entry for each in read if isinstance(each.entry, Log)]
    together = iter(judged_together(apart))

    # Called for each entry once, in order: so the next one is this entry's log, judged
    def judged(each: _Entry) -> "Log | Unread":
        if isinstance(each.entry, Log):
            return each.source.labeled(next(together))
        return each.entry

    entries: list[Log | Unread] = []
    jobs: dict[str, list[str]] = {}  # what the files of a job have in common → these files
    for (of_run, name), group in groupby(read, _Entry.origin):
        of_file = list(map(judged, group))
        job = "" if of_run else _job_in_common(name, of_file)
        if job:
            jobs.setdefault(job, []).append(name)
        else:
            entries += of_file
    for names in jobs.values():
        entries += parse_together(names, proof=proof)
    logs = [entry for entry in entries if isinstance(entry, Log)]
    unread = [entry for entry in entries if not isinstance(entry, Log)]
    return logs, unread


class _Entry(NamedTuple):
    """A log, or why there is none, and what it was read from."""

    source: "Source"
    entry: "Log | Unread"

    def origin(self) -> tuple[bool, str]:
        """Return what logs of one file share."""
        return self.source.run, self.entry.source


def _job_in_common(name: str, entries: "list[Log | Unread]") -> str:
    """Return what all files of a job have in common; empty for other files.

    The communicator; of PyTorch's flight recorder and NCCL's inspector, the directory.
    """
    first, *others = entries
    # There is no log, or it is of standard input, which cannot be read again
    if not isinstance(first, Log) or name.startswith("-"):
        return ""
    if first.benchmark == INSPECTOR or first.facts.get("report") == FLIGHT_RECORDER:
        return f"{first.benchmark} {Path(name).parent}"
    if others or first.case != NCCL_DEBUG:
        return ""
    return fact_text(first.facts, "communicator")


@click.command("compare", cls=LogCommand)
@click.argument(
    "inputs", nargs=-1, required=True, metavar="NEW [MORE]... BASELINE", type=click.Path()
)
@takes(
    baseline="Compare with this as the last column: last-good (the newest earlier run of the "
    "same benchmark, options, target, nodes and configuration that is good), a run, RUN:CONFIG, or "
    "log files."
)
@takes("metric", "sizes", "placement", "allow", "fabric_of_each")
@results("comparison")
@takes("junit", "store")
def compare_inputs(
    inputs: Names,
    form: str,
    store: Path,
    baseline: str | None,
    **given: Any,
) -> Exit:
    """Compare runs and log files side by side; the last one is the baseline.

    Each input is a run (a directory, an id, or `last`), RUN:CONFIG, a log file, nccl-tests JSON, a
    table of results (fabbench's own JSON; unproven), or several log files that are
    repeats: a directory, or a list such as a1.log,a2.log. A run stands for all its configurations,
    so one run alone compares its configurations. Repeats are reduced to their median. The ratio
    says how many times better a column is than the baseline. Runs that are not comparable
    (different ranks, ...) are rejected, unless --allow names the field.

    The exit status is 1 if a gate fails, 2 if the inputs cannot be compared, 3 if one cannot be
    read, and 4 if one cannot be trusted.
    """
    from fabbench.analysis.compare import compare
    from fabbench.runs.load_columns import columns_within, load, repeats_of, with_labels

    require_writable(given["junit"], "--junit")
    judge = _gate_check(given)
    proof = known_proof(given)
    # A baseline that is named among the others, too, is the last column, once.
    others = [each for each in inputs if each != baseline] or inputs
    columns = load(*others, store=store, fabrics=given["fabric_of_each"], known=proof)
    if baseline:
        label = columns[0].label
        columns = [*columns, _baseline_column(baseline, others[0], label, store)]
    columns = with_labels(columns, given["labels"])
    allow = given["allow"]
    if len(inputs) == 1:
        # Configurations that were planned together: each fabric has the endpoint that suits it.
        allow = (*allow, "endpoint")
    columns = columns_within(columns, given["sizes"])
    comparison = compare(
        columns,
        metric=given["metric"],
        placement=given["placement"],
        allow=allow,
    )
    verdict = judge(comparison)
    terminal.write_junit(given["junit"], comparison, verdict)
    terminal.print_comparison(comparison, form, verdict=verdict)
    # Below a long table: above it they would scroll away
    for name, times in Counter([*others, baseline]).items():
        if times > 1:
            terminal.notify(f"{name} is named {times} times: it is compared with itself.")
    repeats = repeats_of(inputs)
    if len(repeats) < len(inputs):
        again = shlex.join(["fabbench", "compare", *repeats])
        terminal.notify(f"These look like repeats. To compare them as such: {again}")
    return comparison.status if verdict is None else worst(comparison.status, verdict.status)


def _baseline_column(baseline: str, first: str, label: str, store: Path) -> "Column":
    """Return the column of the baseline that is of the configuration `label`.

    ``last-good`` is the latest good run like that of the `first` input.
    """
    from fabbench.runs.inputs import open_run
    from fabbench.runs.load_columns import load, matching_column
    from fabbench.runs.summary import LAST_GOOD, last_good

    if baseline == LAST_GOOD:  # Of RUN:CONFIG, or else of a run's first configuration
        ref, _, configuration = first.partition(":")
        run = open_run(ref, store)
        configuration = configuration or run.configurations[0].label
        baseline = last_good(run.document, configuration, store)
    return matching_column(load(baseline, store=store), label)


@click.command("report", cls=LogCommand)
@click.argument("inputs", metavar="[RUN|LOG]...", nargs=-1, type=click.Path())
@takes("metric", "sizes", "fabric_of_each", "store")
@results("page")
def write_report(
    inputs: Names,
    metric: str | None,
    sizes: "Sizes | None",
    form: str,
    store: Path,
    **given: Any,
) -> Exit:
    """Write runs, or logs, as one HTML page: plots, tables, proof, NICs, nodes, commands, findings.

    RUN is a directory, an id, the beginning or the end of one, or `last`, the default. Each run is
    a section, and several begin with an overview; 100 at most. Everything else that `compare` takes
    (logs, RUN:CONFIG, tables of results) is compared in one section, the last input being the
    baseline. The page is one file, and nothing in it is fetched from elsewhere. The section of a
    sweep has its suspects and a heat map of all pairs. The id of a certificate or a watch is
    a page of its own.

    Example: fabbench report last -o report.html

    Example: fabbench report efa.log tcp.log -o report.html
    """
    from fabbench.runs.inputs import whole_runs
    from fabbench.runs.load_columns import load
    from fabbench.runs.report_pages import logs_page, logs_pages

    how = {
        "fabrics": given["fabric_of_each"],
        "labels": given["labels"],
        "known": known_proof(given),
    }
    if len(inputs) == 1:
        status = terminal.show_document(inputs[0], store, form)
        if status is not None:
            return status
    # Runs have a section each, once, however they are named; all others are compared in one.
    others: list[str] = []
    stored: dict[Path, Path] = {}
    for each in inputs or ("last",):
        runs = whole_runs(each, store)
        if not runs:
            others.append(each)
        for path in runs:
            stored[path.resolve()] = path
    judge = _gate_check(given)
    # `how`: options that are for logs only
    if not others and (given["gates"] or any(how.values())):
        raise RequestError(
            "A run was judged when it was measured, and has its own labels.",
            hint="--fabric, --instance-type, --nodes, --nics, --label and --gate are for logs; "
            "`fabbench compare RUN -o FILE.html` takes --label and --gate, too.",
        )
    read = partial(load, store=store, **how)
    page = partial(logs_page, read=read, metric=metric, sizes=sizes, judge=judge)
    if given["labels"]:
        compared = [page(others)]  # Labels are those of one comparison.
    else:
        compared = logs_pages(others, page, terminal.notify)
    return terminal.write_page([*stored.values()], metric, sizes, compared)
