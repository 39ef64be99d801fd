"""Inputs of a command → columns: runs, their configurations, log files, nccl-tests JSON, in any mix.

One file is one column: the executions in it are repeats where they agree in what matters, and become tables
of their own where they do not (several cases, dtypes, numbers of ranks). What a script of fabbench's printed
is a column for each configuration.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from fabbench.analysis.aggregate import Column
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.log import Log, Outcome, Proof
from fabbench.model.messages import counted
from fabbench.plan import STORE
from fabbench.runs.log_files import is_log_file, stem
from fabbench.runs.parse_file import parse_configurations

if TYPE_CHECKING:
    from fabbench.runs.store import StoredRun

NOTHING_KNOWN = Proof()
NO_FABRIC = frozenset({"any", "-"})
"""What `--fabric` is given for an input that is not to be judged."""


def load(
    *inputs: str | Path,
    store: Path = STORE,
    fabrics: Sequence[str] = (),
    labels: Sequence[str] = (),
    known: Proof = NOTHING_KNOWN,
) -> list[Column]:
    """Read runs, configurations of runs and log files, as `fabbench compare` takes them: one column each.

    A run (a directory, an id in the store, or ``last``) gives a column per configuration, ``RUN:CONFIG`` that
    one, a log file one column or one per configuration of a script. `fabrics` judges log files as measured on
    these, one for each input (``any``: not judged); `labels` names the columns; `known` is what is known of
    the nodes of log files. Raise MachineError for what cannot be read, RequestError for a wrong number of
    fabrics or labels.
    """
    if known != NOTHING_KNOWN and not any(each == "-" or is_log_file(str(each)) for each in inputs):
        raise RequestError(
            "--instance-type, --nodes and --nics have no effect on runs.",
            hint="A run knows its nodes: leave them out.",
        )
    if fabrics and len(fabrics) != len(inputs):
        raise RequestError(
            f"Got {len(fabrics)} --fabric for {counted(len(inputs), 'input')}.",
            hint="Pass --fabric once per input, in order (`any`: not judged), or not at all.",
        )
    found = [
        column
        for argument, fabric in zip(inputs, fabrics or (None,) * len(inputs), strict=True)
        for column in columns(str(argument), store=store, fabric=fabric, known=known)
    ]
    return labelled(found, labels)


def columns(
    argument: str, *, store: Path, fabric: str | None = None, known: Proof = NOTHING_KNOWN
) -> list[Column]:
    """Read one argument: a log file, a run (directory, id, `last`), or `RUN:CONFIG`.

    A file is one column, named by its stem and judged against `fabric` if that is given; a run has one for
    each configuration, judged when it was measured, and so has a file with several configurations of one
    script. Raise MachineError for what cannot be read or is not recognised.
    """
    proof = None if fabric is None or fabric in NO_FABRIC else replace(known, fabric=fabric)
    path = Path(argument)
    if argument == "-" or is_log_file(argument):
        return _file(argument, proof or (known if known != NOTHING_KNOWN else None))
    if proof is not None:
        raise RequestError(
            f"--fabric {fabric} is for a log file, which {argument} is not.",
            hint="A run was judged against its own fabrics when it was measured: pass --fabric any for it.",
        )
    run, colon, configuration = argument.rpartition(":")
    if colon and not path.exists():
        return _run(run, configuration, store)
    if not path.exists() and (path.suffix or len(path.parts) > 1):
        raise MachineError(f"File not found: {argument}.", hint="Pass a log file, a run, or RUN:CONFIG.")
    return _run(argument, "", store)


def _file(name: str, proof: Proof | None) -> list[Column]:
    found = parse_configurations(name, proof=proof)
    if len(found) > 1:
        return [
            Column(label=configuration, logs=logs, source=name)
            for configuration, logs in found.items()
            if logs
        ]
    (logs,) = found.values()
    if not logs:
        raise MachineError(
            f"Nothing in {name} is recognized as a benchmark's output.",
            hint="docs/formats.md lists what is read.",
        )
    return [Column(label=stem(name), logs=logs, source=name)]


def _run(ref: str, wanted: str, store: Path) -> list[Column]:
    """Make a column of each configuration, or of the one wanted; one that never began is `skipped`."""
    # which comparing files needs none of
    from fabbench.runs.open_run import open_run
    from fabbench.runs.stored_results import stored_column
    from fabbench.runs.sweep_store import require_executions

    run = require_executions(open_run(ref, store))
    if run.damage:
        raise MachineError(
            f"Run {run.id} is damaged: {run.damage[0]}",
            hint=f"fabbench show {run.id} prints what can be read.",
        )
    named = {configuration.label: configuration for configuration in run.configurations}
    if wanted and wanted not in named:
        raise RequestError(f"Run {run.id} has no configuration {wanted}.", hint=f"It has {', '.join(named)}.")
    return [
        stored_column(run, configuration, run.logs(label) or (_skipped(run),))
        for label, configuration in named.items()
        if wanted in {"", label}
    ]


def _skipped(run: "StoredRun") -> Log:
    return Log(
        source=str(run.path),
        benchmark=run.benchmark,
        case=None,
        outcome=Outcome.SKIPPED,
        reason="No execution of this configuration started.",
        facts={},
    )


def fitting_column(baseline: Sequence[Column], label: str) -> Column:
    """Return the only column of a baseline, or the one with a label. Raise RequestError: there is none."""
    found = [column for column in baseline if len(baseline) == 1 or column.label == label]
    if found:
        return found[0]
    labels = ", ".join(column.label for column in baseline)
    raise RequestError(
        f"The baseline has {len(baseline)} configurations ({labels}), and none of them is {label}.",
        hint="Specify one of them: --baseline RUN:CONFIG.",
    )


def labelled(found: Sequence[Column], labels: Sequence[str]) -> list[Column]:
    """Name columns by the user's own words, if there are any, and make equal names distinct.

    Raise RequestError where there are words for another number of columns.
    """
    if labels and len(labels) != len(found):
        names = ", ".join(column.label for column in found)
        raise RequestError(
            f"Got {len(labels)} labels for {len(found)} columns ({names}).",
            hint="Pass --label once per column, in order, or not at all.",
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
