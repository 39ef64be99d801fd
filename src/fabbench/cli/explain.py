"""``fabbench explain``: what carried the data, what is wrong, and what to do about it."""

from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from typing import Any

import click

from fabbench.cli import options, terminal
from fabbench.cli.output import results
from fabbench.logs.learned_prefixes import Unread
from fabbench.model.errors import Exit, worst
from fabbench.model.log import NCCL_DEBUG, Log, Outcome
from fabbench.report.json_contract import to_json
from fabbench.report.log_report import diagnosis, diagnosis_record
from fabbench.runs import parse_file
from fabbench.runs.log_files import expand


@click.command(name="explain")
@click.argument("files", metavar="LOG...", nargs=-1, required=True)
@options.fabric_of_logs
@options.nodes_of_logs
@results(("text", "json"), "How to write the diagnoses.")
def command(files: tuple[str, ...], form: str, **known: Any) -> None:
    """Diagnose which network a log used, and why.

    For each benchmark execution: the outcome and its reason, the facts with the line that states each, and
    the findings with advice. A log without a benchmark, such as a training job's with NCCL_DEBUG=INFO, is
    diagnosed too: which network the job uses. Files that the processes of one job wrote (NCCL_DEBUG_FILE)
    are read as one. LOG may be a directory, an archive, or compressed; - is standard input.

    The exit status is that of `parse`, and 0 for a log without a benchmark whose network is not contradicted.
    """
    proof = options.known_proof(**known)
    status = Exit.FINE
    records: list[dict[str, object]] = []

    def write(logs: Sequence[Log]) -> Exit:
        if form == "json":
            records.extend(map(diagnosis_record, logs))
        else:
            for line in chain.from_iterable((*diagnosis(log), "") for log in logs):
                terminal.write_line(line)
        good = all(log.outcome in {Outcome.OK, Outcome.OBSERVED} for log in logs)
        return Exit.FINE if good else Exit.UNTRUSTED

    jobs: dict[str, list[str]] = {}
    for source in expand(files):
        for name, entries in groupby(parse_file.parse_source(source, proof=proof), key=lambda entry: entry.source):
            results = list(entries)
            logs = [entry for entry in results if isinstance(entry, Log)]
            if len(logs) == len(results) and (job := _job(name, logs)):
                jobs.setdefault(job, []).append(name)
            else:
                status = worst(status, write(logs), _report_unread(results))
    for names in jobs.values():
        status = worst(status, write(parse_file.parse_together(names, proof=proof)))
    if form == "json":
        click.echo(to_json({"format": 1, "logs": records}), nl=False)
    click.get_current_context().exit(status)


def _job(name: str, logs: Sequence[Log]) -> str:
    """Return what all files of a job have in common; empty for other files."""
    alone = len(logs) == 1 and logs[0].case == NCCL_DEBUG and not name.startswith("-")
    return str(logs[0].facts.get("communicator", "")) if alone else ""


def _report_unread(entries: Iterable[Log | Unread]) -> Exit:
    status = Exit.FINE
    for entry in entries:
        if isinstance(entry, Unread):
            terminal.say(f"{'Note' if entry.remark else 'Error'}: {entry.source}: {entry.reason}")
            status = status if entry.remark else Exit.REFUSED
    return status
