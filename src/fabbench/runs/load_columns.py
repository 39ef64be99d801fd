"""Inputs of a command → columns.

Runs, their configurations, log files, nccl-tests JSON, in any combination.

One file is one column, and so is a directory or a comma-separated list of files: its executions are
repeats if they agree in what matters, and separate tables if not (several cases, dtypes, numbers of
ranks). The output of a fabbench script has a column per configuration.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, count, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from fabbench.analysis.aggregate import KEYS, RAIL, Column, column_rows, row_groups
from fabbench.benchmarks.consistency import warning
from fabbench.evidence.judge import slower_paths
from fabbench.logs.signs import NO_KNOWN_OUTPUT, Unread
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.log import MPI_DEBUG, Log, Metric, Outcome, Proof
from fabbench.model.messages import counted
from fabbench.model.patterns import lazy
from fabbench.model.units import format_size, format_sizes
from fabbench.plan import STORE
from fabbench.runs.inputs import Source, listed, read_source, require_logs, sources_of
from fabbench.runs.parse_file import within

if TYPE_CHECKING:
    from fabbench.runs.store import StoredRun

_NO_FABRIC = frozenset({"any", "-"})  # Values of `--fabric` for an input that is not judged
_PACKED = lazy(r"(?:\.(?:gz|bz2|xz|zst))+$")
_SETTINGS = (
    "settings",
    "backend",
    "enable_pt",
    "initiator_seg_type",
    "target_seg_type",
    "op_type",
)  # facts
_NIC = lazy(r"mlx[45]_(?:bond_)?\d+|bnxt_re\d+|irdma\d+|(?:ib|roce|rdma)p\d+s\d+(?:f\d+)?")


def load(
    *inputs: str | Path,
    store: Path = STORE,
    fabrics: Sequence[str] = (),
    labels: Sequence[str] = (),
    known: Proof | None = None,
) -> list[Column]:
    """Read runs, configurations of runs and log files, as `fabbench compare` takes them.

    One column each.

    Inputs are those of `sources_of`. A run has a column per configuration, ``RUN:CONFIG`` only that
    one, a log file, a directory or a list of log files one column, or one per configuration of a
    script. `fabrics` judges log files as measured on these, one per input (``any``: not judged);
    `labels` names the columns; `known` is what is known about the nodes of log files. Raise
    MachineError for an input that cannot be read, RequestError for a wrong number of fabrics or
    labels.
    """
    if fabrics and len(fabrics) != len(inputs):
        raise RequestError(
            f"Got {len(fabrics)} --fabric for {counted(len(inputs), 'input')}.",
            hint="Pass --fabric once per input, in order (`any`: not judged), or not at all.",
        )
    found = [(str(each), sources_of([str(each)], store)) for each in inputs]
    require_logs([source for _, sources in found for source in sources], known)
    loaded = list[Column]()
    for (argument, sources), fabric in zip(found, fabrics or ("any",) * len(inputs), strict=True):
        on = "" if fabric in _NO_FABRIC else fabric
        require_logs(sources, Proof(fabric=on))
        loaded += _columns(argument, sources, replace(known or Proof(), fabric=on) if on else known)
    judged = iter(judged_together([log for column in loaded for log in column.logs]))
    return with_labels(
        [replace(each, logs=tuple(islice(judged, len(each.logs)))) for each in loaded], labels
    )


def _columns(argument: str, sources: Sequence[Source], proof: Proof | None) -> list[Column]:
    if len(sources) == 1 and sources[0].run and sources[0].named:
        return _run(sources[0])
    if any(source.run for source in sources):
        raise RequestError(
            f"{argument} holds runs, not only log files.", hint="Pass one of the runs."
        )
    found, unread = dict[str, list[Log]](), list[Unread]()
    for source in sources:
        parsed = dict[str, list[Log]]()
        # A table of results that lies beside logs, and was made of them, is no repeat.
        for configuration, entry in read_source(source, proof=proof, tables=True, markdown=True):
            if isinstance(entry, Unread):
                if entry.damaged:
                    raise MachineError(entry.reason)
                unread.append(entry)
                if source.named:
                    raise _unrecognized(source.name, [entry])
            elif len(sources) == 1 or {MPI_DEBUG, "NIC counters"}.isdisjoint(
                (entry.case, entry.facts.get("report"))
            ):
                parsed.setdefault(configuration, []).append(
                    entry
                )  # else it may be another rank, or a server
        for configuration, logs in parsed.items():
            # The files of a list are one column, whatever their markers say.
            found.setdefault(configuration if len(parsed) > 1 else "", []).extend(logs)
    if not any(found.values()):
        raise _unrecognized(argument, unread)
    return [
        Column(
            label=f"{configuration or _name(argument)} {what}".rstrip(),
            logs=tuple(logs),
            source=argument,
        )
        for configuration, each in found.items()
        for what, logs in _apart(each).items()
        if logs
    ]


def _apart(logs: Sequence[Log]) -> dict[str, list[Log]]:
    """Return the logs of each NIC, or of each setting, where all state theirs.

    A loop has no repeats.
    """
    for told in (_nic, _settings):
        groups: dict[str, list[Log]] = {}
        for log in logs:
            groups.setdefault(told(log), []).append(log)
        if len(groups) > 1 and "" not in groups:
            common = set.intersection(*({*words.split()} for words in groups))
            return {
                " ".join(word for word in words.split() if word not in common): groups[words]
                for words in groups
            }
    return {"": [*logs]}


def _settings(log: Log) -> str:
    given = [(name, log.facts[name]) for name in _SETTINGS if name in log.facts]
    return " ".join(f"{name}={value}" if isinstance(value, int) else value for name, value in given)


def _nic(log: Log) -> str:
    stated = str(log.facts.get(RAIL) or log.facts.get("domain", ""))
    return stated or next(iter(_NIC.findall(Path(log.source).name)), "")


def judged_together(logs: Sequence[Log]) -> list[Log]:
    """Return logs with what shows only beside the others.

    Of three NICs of the same nodes, one below 80 % of the median; a log far slower than the last of
    its test.
    """
    loops = Counter(source for source, _ in {(log.source, _nic(log)) for log in logs})
    tests = dict[tuple[Metric, int, object], dict[str, list[tuple[int, float]]]]()
    for at, log in enumerate(logs):
        one = Column(label="", logs=(log,), source=log.source)
        for group in (
            row_groups([column_rows(one, placement="out-of-place")], KEYS) if _nic(log) else ()
        ):
            nic = group.key[RAIL] or _nic(log)
            before, found, after = log.source.rpartition(nic)
            # A file of one NIC is named after it, or belongs with the others of its directory.
            place = (
                before + after if found or loops[log.source] > 1 else str(Path(log.source).parent)
            )
            test = (
                log.hosts,
                place,
                *map(log.facts.get, ("qps", "link")),
                *({**group.key, RAIL: ""}).values(),
            )
            for size, figure in [each for each in group.cells[0].items() if each[1].value][-1:]:
                tests.setdefault((group.metric, size, test), {}).setdefault(nic, []).append(
                    (at, figure.value)
                )
    judged = slower_paths(logs)
    for (metric, size, _), figures in tests.items():
        of = {nic: median(value for _, value in each) for nic, each in figures.items()}
        middle = median(of.values())
        for nic, value in of.items() if len(of) > 2 else ():
            share = middle / value if metric.lower_is_better else value / middle
            if share < 0.8:
                what = (
                    f"{share:.0%} of the median of {len(of)} NICs ({metric.name} at "
                    f"{format_size(size)})."
                )
                advice, at = (
                    "Compare its link, firmware and PCIe slot with those of the others.",
                    figures[nic][0][0],
                )
                seen = warning("slow-nic", f"{nic} is at {what}", advice)
                judged[at] = replace(judged[at], findings=(*judged[at].findings, seen))
    return judged


def _unrecognized(name: str, unread: Sequence[Unread]) -> MachineError:
    hint = (
        "docs/formats.md lists what is read. What is piped from a pod or job that has not "
        "started is empty."
    )
    known = next(
        (f"{name}: {each.reason}" for each in unread if each.reason != NO_KNOWN_OUTPUT), ""
    )
    return MachineError(
        known or f"Nothing in {name} is recognized as a benchmark's output.", hint=hint
    )


def _name(argument: str) -> str:
    """Return the label of files: the name of a directory, the stem of a file.

    ``a`` for ``a1.log,a2.log``.
    """
    paths = [Path("stdin" if part == "-" else part) for part in listed(argument)]
    names = [
        path.resolve().name if path.is_dir() else Path(_PACKED.sub("", path.name)).stem
        for path in paths
    ]
    common = {re.sub(r"[-_. ]*r?\d+$", "", name) for name in names}
    return common.pop() or names[0] if len(names) > 1 and len(common) == 1 else names[0]


def _run(source: Source) -> list[Column]:
    """Make a column of each configuration that was named. One that never started is `skipped`."""
    # Imported here: comparing files needs none of these.
    from fabbench.runs.store import StoredRun

    run = StoredRun(Path(source.name))
    if run.sweep is not None:
        raise RequestError(
            f"{run.id} is a sweep: it compares nodes, not configurations.",
            hint=f"fabbench show {run.id} prints what it found.",
        )
    if run.damage:
        raise MachineError(
            f"Run {run.id} is damaged: {run.damage[0]}",
            hint=f"fabbench show {run.id} prints what can be read.",
        )
    why, outcome = "No execution of this configuration started.", Outcome.SKIPPED
    skipped = Log(
        source=source.name,
        benchmark=run.benchmark,
        case=None,
        outcome=outcome,
        reason=why,
        facts={},
    )
    return stored_columns(run, source.configuration, [skipped])


def stored_columns(
    run: "StoredRun",
    only: str = "",
    skipped: Sequence[Log] = (),
    logs: Mapping[str, Sequence[Log]] | None = None,
) -> list[Column]:
    """Return the configurations of a run, or one, as columns, whose verdicts keep the run's significance level.

    One without results has the `skipped` logs, or is left out. `logs`: those of each, if they are known.
    """
    read = run.logs if logs is None else logs.__getitem__
    return [
        Column(
            label=each.label,
            logs=tuple(shown),
            source=f"run {run.id}",
            variant=run.variants.get(each.variant),
            max_repeats=run.request.most_repeats,
        )
        for each in run.configurations
        if only in {"", each.label} and (shown := read(each.label) or skipped)
    ]


def columns_within(columns: Sequence[Column], sizes: range | None) -> list[Column]:
    """Return columns with the rows of some sizes; None: of all.

    Raise RequestError if none has any.
    """
    found = [replace(each, logs=tuple(within(log, sizes) for log in each.logs)) for each in columns]
    if sizes is not None and not any(log.points for each in found for log in each.logs):
        known = format_sizes(
            point.size for each in columns for log in each.logs for point in log.points
        )
        raise RequestError(
            "Nothing was measured at the sizes of --size.", hint=f"Measured: {known or 'nothing'}."
        )
    return found


def matching_column(baseline: Sequence[Column], label: str) -> Column:
    """Return the only column of a baseline, or the one with a label.

    Raise RequestError if there is none.
    """
    fitting = [column for column in baseline if len(baseline) == 1 or column.label == label]
    if fitting:
        return fitting[0]
    labels = ", ".join(column.label for column in baseline)
    raise RequestError(
        f"The baseline has {len(baseline)} configurations ({labels}), and none of them is {label}.",
        hint="Specify one of them: --baseline RUN:CONFIG.",
    )


def with_labels(columns: Sequence[Column], labels: Sequence[str]) -> list[Column]:
    """Apply the user's labels to columns, if there are any.

    Equal labels get the source, and then a number.

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
            replace(each, label=label, label_given=True)
            for each, label in zip(columns, labels, strict=True)
        ]
    counts, found = Counter(column.label for column in columns), dict[str, Column]()
    for column in columns:
        name = f"{column.label} ({column.source})" if counts[column.label] > 1 else column.label
        label = next(
            each
            for each in chain([name], (f"{name} {number}" for number in count(2)))
            if each not in found
        )
        found[label] = replace(column, label=label)
    return list(found.values())
