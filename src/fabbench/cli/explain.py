"""``fabbench explain``: what carried the data, what is wrong, and what to do about it."""

from collections.abc import Sequence
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

import click

from fabbench.cli import terminal
from fabbench.cli.complete import complete_run
from fabbench.cli.options import ON_NODES, known_proof, takes
from fabbench.cli.output import results
from fabbench.model.errors import Exit, worst
from fabbench.model.log import NCCL_DEBUG, Log, Outcome
from fabbench.report.json_contract import to_json
from fabbench.report.log_report import diagnosis, diagnosis_record
from fabbench.report.predictions import predictions, read_wanted
from fabbench.runs.inputs import read_source, sources_of
from fabbench.runs.load_columns import slow_nics
from fabbench.runs.parse_file import parse_together


@click.command(name="explain")
@click.argument("inputs", metavar="LOG|RUN...", nargs=-1, required=True, shell_complete=complete_run)
@takes("fabric", *ON_NODES, "store")
@results(("text", "json"), "How to write the diagnoses.")
@click.option(
    "--predict",
    "wanted",
    metavar="SIZE[@NODES]",
    multiple=True,
    help="Also predict the rate at this size (4G), or at this size and number of nodes (4G@32) from logs of three "
    "or more numbers of nodes. Where the figures do not carry that far, the reason is given instead.",
)
def command(inputs: tuple[str, ...], form: str, store: Path, wanted: tuple[str, ...], **known: Any) -> None:
    """Diagnose which network a log or run used, and why.

    For each benchmark execution: the outcome and its reason, the facts with the line that states each, and
    the findings with advice. A log without a benchmark, such as a training job's with NCCL_DEBUG=INFO, is
    diagnosed too: which network the job uses. Files that the processes of one job wrote (NCCL_DEBUG_FILE)
    are read as one. LOG may be a directory, an archive, or compressed; - is standard input. RUN is a directory,
    an id, `last`, or RUN:CONFIG, and is judged as it was measured. Logs of one test are compared with the last.

    The exit status is that of `parse`, and 0 for a log without a benchmark whose network is not contradicted.
    """
    proof = known_proof(**known)
    status = Exit.FINE
    targets = [read_wanted(text) for text in wanted]
    records, measured = list[dict[str, object]](), list[Log]()

    def write(logs: Sequence[Log]) -> Exit:
        measured.extend(log for log in logs if targets and log.points)
        if form == "json":
            records.extend(map(diagnosis_record, logs))
        else:
            for line in chain.from_iterable((*diagnosis(log), "") for log in logs):
                terminal.write_line(line)
        return Exit.FINE if all(log.outcome in {Outcome.OK, Outcome.OBSERVED} for log in logs) else Exit.UNTRUSTED

    jobs: dict[str, list[str]] = {}
    read = [(each.run, entry) for each in sources_of(inputs, store, proof) for entry in read_source(each, proof=proof)]
    judged = iter(slow_nics([entry for _, entry in read if isinstance(entry, Log)]))
    for (of_run, name), entries in groupby(read, key=lambda each: (each[0], each[1].source)):
        found = [entry for _, entry in entries]
        unread = [entry for entry in found if not isinstance(entry, Log)]
        logs = list(islice(judged, len(found) - len(unread)))
        if not unread and not of_run and (job := _job(name, logs)):
            jobs.setdefault(job, []).append(name)
        else:
            status = worst(status, write(logs), terminal.say_unread(unread))
    for names in jobs.values():
        status = worst(status, write(parse_together(names, proof=proof)))
    predicted = list(predictions(measured, targets))
    if form == "json":
        click.echo(to_json({"format": 1, "logs": records, "predictions": predicted}), nl=False)
    else:
        for each in predicted:
            terminal.write_line(str(each["text"]))
    click.get_current_context().exit(status)


def _job(name: str, logs: Sequence[Log]) -> str:
    """Return what all files of a job have in common; empty for other files."""
    alone = len(logs) == 1 and logs[0].case == NCCL_DEBUG and not name.startswith("-")
    return str(logs[0].facts.get("communicator", "")) if alone else ""
