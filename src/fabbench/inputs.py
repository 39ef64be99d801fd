"""What a command is given to read → columns: runs, arms of runs, log files, nccl-tests JSON, in any mix.

One file is one column: the executions in it are repeats where they agree in what matters, and become tables
of their own where they do not (several cases, dtypes, numbers of ranks). What a script of fabbench's printed
is a column for each arm.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fabbench.errors import MachineError, RequestError
from fabbench.files import arms, parse_file
from fabbench.model import Log, Outcome, Proof
from fabbench.pool import Column
from fabbench.store import StoredRun, open_run

NO_FABRIC = frozenset({"any", "-"})
"""What `--fabric` is given for an input that is not to be judged."""


def columns(argument: str, *, store: Path, fabric: str | None = None) -> list[Column]:
    """Read one argument: a log file, a run (directory, id, `last`), or `RUN:ARM`.

    A file is one column, named by its stem and judged against `fabric` if that is given; a run has one for
    each arm, judged when it was measured, and so has a file with several arms of one script. Raises
    MachineError for what cannot be read or is not recognised.
    """
    proof = None if fabric is None or fabric in NO_FABRIC else Proof(fabric=fabric)
    path = Path(argument)
    if path.is_file():
        return _file(path, proof)
    if proof is not None:
        raise RequestError(
            f"--fabric {fabric} is for a log file, and {argument} is none.",
            hint="A run was judged against its own fabrics when it was measured: give it --fabric any.",
        )
    run, colon, arm = argument.rpartition(":")
    if colon and not path.exists():
        return _run(run, arm, store)
    if not path.exists() and (path.suffix or len(path.parts) > 1):
        raise MachineError(f"There is no file {argument}.", hint="Name a log file, a run, or RUN:ARM.")
    return _run(argument, "", store)


def _file(path: Path, proof: Proof | None) -> list[Column]:
    several = arms(path)
    if len(several) > 1:
        read = {arm: tuple(parse_file(path, proof=proof, arm=arm)) for arm in several}
        return [Column(label=arm, logs=logs, source=str(path)) for arm, logs in read.items() if logs]
    logs = tuple(parse_file(path, proof=proof))
    if not logs:
        raise MachineError(
            f"Nothing in {path} is recognised as a benchmark's output.",
            hint="docs/formats.md lists what is read.",
        )
    return [Column(label=path.stem, logs=logs, source=str(path))]


def _run(ref: str, wanted: str, store: Path) -> list[Column]:
    """Make a column of each arm, or of the one wanted; an arm that never began is `skipped`."""
    run = open_run(ref, store)
    named = {arm.label: arm for arm in run.arms}
    if wanted and wanted not in named:
        raise RequestError(f"Run {run.id} has no arm {wanted}.", hint=f"It has {', '.join(named)}.")
    return [
        Column(
            label=label,
            logs=run.logs(label) or (_skipped(run),),
            source=f"run {run.id}",
            variant=run.variant(arm),
        )
        for label, arm in named.items()
        if wanted in {"", label}
    ]


def _skipped(run: StoredRun) -> Log:
    return Log(
        source=str(run.path),
        benchmark=run.benchmark,
        case=None,
        outcome=Outcome.SKIPPED,
        reason="No execution of this arm began.",
        facts={},
    )


def labelled(found: Sequence[Column], labels: Sequence[str]) -> list[Column]:
    """Name columns by the user's own words, if there are any, and make equal names distinct.

    Raises RequestError where there are words for another number of columns.
    """
    if labels and len(labels) != len(found):
        names = ", ".join(column.label for column in found)
        raise RequestError(
            f"There are {len(labels)} labels for {len(found)} columns ({names}).",
            hint="Give --label once for each column, in order, or not at all.",
        )
    if labels:
        found = [
            replace(column, label=label, label_given=True)
            for column, label in zip(found, labels, strict=True)
        ]
    return _distinct(found)


def _distinct(found: Sequence[Column]) -> list[Column]:
    """Add where a column comes from, and then a number, to labels that several columns have."""
    counts = Counter(column.label for column in found)
    named = [
        replace(column, label=f"{column.label} ({column.source})") if counts[column.label] > 1 else column
        for column in found
    ]
    taken: set[str] = set()
    result = []
    for column in named:
        label, number = column.label, 1
        while label in taken:
            number += 1
            label = f"{column.label} {number}"
        taken.add(label)
        result.append(replace(column, label=label))
    return result
