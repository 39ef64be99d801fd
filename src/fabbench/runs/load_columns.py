"""Inputs of a command → columns: runs, their configurations, log files, nccl-tests JSON, in any combination.

One file is one column: its executions are repeats if they agree in what matters, and separate tables if not
(several cases, dtypes, numbers of ranks). The output of a fabbench script has a column per configuration.
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
"""Values of `--fabric` for an input that is not judged."""


def load(
    *inputs: str | Path,
    store: Path = STORE,
    fabrics: Sequence[str] = (),
    labels: Sequence[str] = (),
    known: Proof = NOTHING_KNOWN,
) -> list[Column]:
    """Read runs, configurations of runs and log files, as `fabbench compare` takes them: one column each.

    A run (a directory, an id in the store, or ``last``) has a column per configuration, ``RUN:CONFIG`` only
    that one, a log file one column or one per configuration of a script. `fabrics` judges log files as
    measured on these, one per input (``any``: not judged); `labels` names the columns; `known` is what is
    known about the nodes of log files. Raise MachineError for an input that cannot be read, RequestError for
    a wrong number of fabrics or labels.
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
    loaded = [
        column
        for argument, fabric in zip(inputs, fabrics or (None,) * len(inputs), strict=True)
        for column in columns(str(argument), store=store, fabric=fabric, known=known)
    ]
    return labelled(loaded, labels)


def columns(
    argument: str, *, store: Path, fabric: str | None = None, known: Proof = NOTHING_KNOWN
) -> list[Column]:
    """Read one argument: a log file, a run (directory, id, `last`), or `RUN:CONFIG`.

    A file is one column, named by its stem and judged against `fabric` if given; a run has one per
    configuration, judged when it was measured, and so does a file with several configurations of a script.
    Raise MachineError for an argument that cannot be read or is not recognized.
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
    parsed = parse_configurations(name, proof=proof)
    if len(parsed) > 1:
        return [
            Column(label=configuration, logs=logs, source=name)
            for configuration, logs in parsed.items()
            if logs
        ]
    (logs,) = parsed.values()
    if not logs:
        raise MachineError(
            f"Nothing in {name} is recognized as a benchmark's output.",
            hint="docs/formats.md lists what is read.",
        )
    return [Column(label=stem(name), logs=logs, source=name)]


def _run(ref: str, chosen: str, store: Path) -> list[Column]:
    """Make a column of each configuration, or only of `chosen`. One that never started is `skipped`."""
    # Imported here: comparing files needs none of these.
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
    if chosen and chosen not in named:
        raise RequestError(f"Run {run.id} has no configuration {chosen}.", hint=f"It has {', '.join(named)}.")
    return [
        stored_column(run, configuration, run.logs(label) or (_skipped(run),))
        for label, configuration in named.items()
        if chosen in {"", label}
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
    """Return the only column of a baseline, or the one with a label. Raise RequestError if there is none."""
    fitting = [column for column in baseline if len(baseline) == 1 or column.label == label]
    if fitting:
        return fitting[0]
    labels = ", ".join(column.label for column in baseline)
    raise RequestError(
        f"The baseline has {len(baseline)} configurations ({labels}), and none of them is {label}.",
        hint="Specify one of them: --baseline RUN:CONFIG.",
    )


def labelled(columns: Sequence[Column], labels: Sequence[str]) -> list[Column]:
    """Apply the user's labels to columns, if there are any, and make equal labels distinct.

    Raise RequestError if the numbers of labels and columns differ.
    """
    if labels and len(labels) != len(columns):
        names = ", ".join(column.label for column in columns)
        raise RequestError(
            f"Got {len(labels)} labels for {len(columns)} columns ({names}).",
            hint="Pass --label once per column, in order, or not at all.",
        )
    if labels:
        columns = [
            replace(column, label=label, label_given=True)
            for column, label in zip(columns, labels, strict=True)
        ]
    return _distinct(columns)


def _distinct(columns: Sequence[Column]) -> list[Column]:
    """Add the source of a column, and then a number, to labels that several columns have."""
    counts = Counter(column.label for column in columns)
    named = [
        replace(column, label=f"{column.label} ({column.source})") if counts[column.label] > 1 else column
        for column in columns
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
