"""Inputs of a command → columns.

Runs, their configurations, log files, nccl-tests JSON, in any combination.

One file is one column, and so is a directory or a comma-separated list of files: its executions are
repeats if they agree in what matters, and separate tables if not (several cases, dtypes, numbers of
ranks). The output of a fabbench script has a column per configuration.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from fabbench.analysis.aggregate import KEYS, RAIL, Column, RowGroup, column_rows, row_groups
from fabbench.evidence.judge import with_slower_paths
from fabbench.logs.signs import NO_KNOWN_OUTPUT, Unread
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.log import (
    INSPECTOR,
    MPI_DEBUG,
    Finding,
    Log,
    Logs,
    Metric,
    Outcome,
    Proof,
    Severity,
)
from fabbench.model.mappings import distinct, gathered, grouped_by, map_values
from fabbench.model.messages import counted
from fabbench.model.patterns import lazy
from fabbench.model.units import Sizes, format_size, format_sizes
from fabbench.plan import STORE
from fabbench.runs.inputs import (
    Source,
    listed_files,
    read_source,
    require_logs,
    require_names,
    sources_of,
)
from fabbench.runs.parse_file import parse_together, within

if TYPE_CHECKING:
    from fabbench.runs.store import StoredRun

_NO_FABRIC = frozenset({"any", "-"})  # Values of `--fabric` for an input that is not judged
_PACKED = lazy(r"(?:\.(?:gz|bz2|xz|zst)){1,9}$")
_SLOW_NIC = 0.8
"""Below this fraction of the median of the NICs of its nodes, a NIC is slow."""
_NUMBER = lazy(r"(?:(?<![-_. ])[-_. ]++)?(?:r|(?<!\d))\d+$")
_FEWEST_NICS = 3
_ADVICE_ON_SLOW_NIC = "Compare its link, firmware and PCIe slot with those of the others."
# facts
_SETTINGS = (
    "settings",
    "backend",
    "enable_pt",
    "initiator_seg_type",
    "target_seg_type",
    "op_type",
)
_NIC = lazy(r"mlx[45]_(?:bond_)?\d+|bnxt_re\d+|irdma\d+|(?:ib|roce|rdma)p\d+s\d+(?:f\d+)?")


_ByLabel: TypeAlias = dict[str, list[Log]]
"""Configuration, or another label of a column → logs."""


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
    script. `fabrics` judges log files as measured on these, one for all or one per input (``any``:
    not judged); `labels` names the columns; `known` is what is known about the nodes of log files.
    Raise MachineError for an input that cannot be read, RequestError for a wrong number of fabrics
    or labels.
    """
    if len(fabrics) not in {0, 1, len(inputs)}:
        number = counted(len(inputs), "input")
        raise RequestError(
            f"Got {len(fabrics)} --fabric for {number}.",
            hint="Pass --fabric once for all, or once per input, in order (`any`: not judged).",
        )
    arguments = list(map(str, inputs))
    require_names(arguments)
    sources = [sources_of([argument], store) for argument in arguments]
    require_logs(list(chain.from_iterable(sources)), known)
    loaded: list[Column] = []
    judged_by = list(fabrics or ["any"])
    if len(judged_by) == 1:
        judged_by *= len(inputs)
    for argument, of_argument, fabric in zip(arguments, sources, judged_by, strict=True):
        proof = known
        if fabric not in _NO_FABRIC:
            require_logs(of_argument, Proof(fabric=fabric))
            proof = replace(known or Proof(), fabric=fabric)
        loaded += _columns_of_input(argument, of_argument, proof)
    return with_labels(_judged_columns(loaded), labels)


def _judged_columns(columns: Sequence[Column]) -> list[Column]:
    """Return columns whose logs are judged together with those of the other columns."""
    judged = iter(judged_together(_logs(columns)))
    return [
        replace(each, logs=tuple(islice(judged, len(each.logs))))
        for each in columns  # in the order of the logs: each takes its own
    ]


def _logs(columns: Sequence[Column]) -> list[Log]:
    return [log for column in columns for log in column.logs]


def _columns_of_input(
    argument: str, sources: Sequence[Source], proof: Proof | None
) -> list[Column]:
    """Return the columns of a run, or of the files of one input, which are read as repeats.

    A file with several configurations has a column for each, named as in the file; others are named
    after the input. NICs or settings that a loop went through are columns of their own.
    """
    alone = len(sources) == 1
    # Named itself, and not only a directory that holds it
    if alone and sources[0].run and sources[0].named:
        return _columns_of_run(sources[0])
    if any(source.run for source in sources):
        raise RequestError(
            f"{argument} holds runs, not only log files.", hint="Pass one of the runs."
        )
    logs_of: _ByLabel = {}
    unread: list[Unread] = []
    for source in sources:
        parsed = _parsed(source, proof, unread, alone=alone)
        for configuration, logs in parsed.items():
            # The files of a list are one column, whatever their markers say.
            name = configuration if len(parsed) > 1 else ""
            logs_of.setdefault(name, []).extend(logs)
    unnamed = logs_of.get("", [])
    ranks = [log.source for log in unnamed if log.benchmark == INSPECTOR]
    if ranks and not alone:  # of one job, and no repeats
        logs_of = {"": parse_together(distinct(ranks), proof=proof)}
    if not any(logs_of.values()):
        raise _unrecognized(argument, unread)
    return [
        Column(label=label, logs=tuple(logs), source=argument)
        for configuration, repeats in logs_of.items()
        for label, logs in _by_nic_or_settings(
            configuration or _label_of_input(argument), repeats
        ).items()
    ]


def _parsed(source: Source, proof: Proof | None, unread: list[Unread], *, alone: bool) -> _ByLabel:
    """Return configuration → its logs in one source, and add what has none to `unread`.

    Raise MachineError for a damaged source, or a named one without any log.
    """
    parsed: _ByLabel = {}
    # `tables`: only of a named source. One that lies beside logs was made of them: no repeat.
    for configuration, entry in read_source(source, proof=proof, tables=True):
        if isinstance(entry, Unread):
            _require_readable(source, entry)
            unread.append(entry)
        elif alone or _is_measurement(entry):  # beside others, no mere debug output or counters
            parsed.setdefault(configuration, []).append(entry)
    return parsed


def _require_readable(source: Source, entry: Unread) -> None:
    if entry.damaged:
        raise MachineError(entry.reason)
    if source.named:  # others of a directory need not be logs
        raise _unrecognized(source.name, [entry])


def _is_measurement(log: Log) -> bool:
    """Return whether a log is no other rank's, no server's and no table of NIC counters."""
    return log.case != MPI_DEBUG and log.facts.get("report") != "NIC counters"


def _by_nic_or_settings(name: str, logs: list[Log]) -> _ByLabel:
    """Return label → the logs of each NIC, or of each setting, where all state theirs.

    They come from a loop over these, and are no repeats of one another.
    """
    for label_of in (_named_nic, _stated_settings):
        groups = grouped_by(label_of, logs)
        if len(groups) > 1 and "" not in groups:
            return _with_different_words(name, groups)
    return {name: logs}


def _with_different_words(name: str, groups: _ByLabel) -> _ByLabel:
    """Return groups under a name, and the words of their own that not all have."""
    common = set.intersection(*(set(words.split()) for words in groups))
    labelled: _ByLabel = {}
    for words, logs in groups.items():
        different = [word for word in words.split() if word not in common]
        labelled[" ".join([name, *different])] = logs
    return labelled


def _stated_settings(log: Log) -> str:
    """Return the settings that a log states, as words; a bare number with its name."""
    words: list[str] = []
    for name in _SETTINGS:
        value = log.facts.get(name)
        if value is not None:
            words.append(f"{name}={value}" if isinstance(value, int) else value)
    return " ".join(words)


def _named_nic(log: Log) -> str:
    """Return the NIC that a log states, or its file is named after; empty: neither."""
    stated = log.facts.get(RAIL) or log.facts.get("domain", "")  # libfabric's name of a NIC
    if stated:
        return str(stated)
    in_name = _NIC.search(Path(log.source).name)
    return in_name[0] if in_name else ""


@dataclass(frozen=True, slots=True)
class _NicTest:
    """What NICs of the same nodes have in common where their figures can be compared."""

    metric: Metric
    size: int
    hosts: frozenset[str]
    place: str  # Of the files, without the name of the NIC
    settings: tuple[object, ...]


class _NicFigure(NamedTuple):
    """The figure of a NIC, and the place of its log among all."""

    log: int
    value: float


_LogFinding: TypeAlias = tuple[int, Finding]  # The place of a log among all, and what it shows


def judged_together(logs: Sequence[Log]) -> list[Log]:
    """Return logs with the findings that only a comparison of logs shows.

    A NIC below 80 % of the median of at least three NICs of the same nodes, and a log far slower
    than the last of the logs of the same test and nodes.
    """
    judged = with_slower_paths(logs)
    for test, figures in gathered(_nic_tests(logs)).items():
        for at, finding in _slow_nics(test, figures):
            log = judged[at]
            judged[at] = replace(log, findings=(*log.findings, finding))
    return judged


def _slow_nics(
    test: _NicTest, figures_of_nics: Iterable[tuple[str, _NicFigure]]
) -> Iterator[_LogFinding]:
    """Yield what the first log of each slow NIC shows: the place of the log, and the finding."""
    figures = gathered(figures_of_nics)
    if len(figures) < _FEWEST_NICS:
        return
    medians = map_values(_median, figures)
    middle = median(medians.values())
    at = format_size(test.size)
    metric = test.metric.name
    of_nics = f"{len(medians)} NICs ({metric} at {at})"
    for nic, value in medians.items():
        share = middle / value if test.metric.lower_is_better else value / middle
        if share < _SLOW_NIC:
            percent = format(share, ".0%")
            meaning = f"{nic} is at {percent} of the median of {of_nics}."
            slow = Finding(
                code="slow-nic",
                severity=Severity.WARNING,
                meaning=meaning,
                advice=_ADVICE_ON_SLOW_NIC,
            )
            yield figures[nic][0].log, slow


def _median(figures: Sequence[_NicFigure]) -> float:
    return median(each.value for each in figures)


def _nic_tests(
    logs: Sequence[Log],
) -> Iterator[tuple[_NicTest, tuple[str, _NicFigure]]]:
    """Yield each test with a NIC and its figure, of all logs.

    A file with logs of several NICs was written by a loop over them, and is one test.
    """
    files_and_nics = {(log.source, _named_nic(log)) for log in logs}
    nics_of_files = Counter(source for source, _ in files_and_nics)
    for at, log in enumerate(logs):
        shared = nics_of_files[log.source] > 1
        for test, nic, value in _nic_figures(log, shared_file=shared):
            yield test, (nic, _NicFigure(at, value))


def _nic_figures(log: Log, *, shared_file: bool) -> Iterator[tuple[_NicTest, str, float]]:
    """Yield the test, NIC and figure of the largest size of each NIC of a log.

    `shared_file`: whether its file has logs of several NICs, as a loop over them writes it.
    """
    named = _named_nic(log)
    if not named:
        return
    column = Column(label="", logs=(log,), source=log.source)
    rows = column_rows(column, placement="out-of-place")  # nccl-tests' usual half
    for group in row_groups([rows], KEYS):
        figures = group.cells[0]  # of the only column
        sizes = [size for size, figure in figures.items() if figure.value]  # the largest last
        if sizes:
            nic = group.key[RAIL] or named
            place = _place_of_nic(log.source, nic, shared_file=shared_file)
            test = _nic_test(log, group, sizes[-1], place)
            yield test, nic, figures[test.size].value


def _nic_test(log: Log, group: RowGroup, size: int, place: str) -> _NicTest:
    """Return the test of a NIC's figure, which is that of other NICs if nothing else differs."""
    besides_nic = [text for name, text in group.key.items() if name != RAIL]
    settings = (*map(log.facts.get, ("qps", "link")), *besides_nic)
    return _NicTest(group.metric, size, log.hosts, place, settings)


def _place_of_nic(source: str, nic: str, *, shared_file: bool) -> str:
    """Return what the files of NICs that belong together have in common, to group them by.

    The rest of the path of a file that is named after its NIC; else its directory, as the others
    there are of other NICs. A file of several NICs belongs with no other.
    """
    before, name_in_path, after = source.rpartition(nic)
    return before + after if name_in_path or shared_file else str(Path(source).parent)


def _unrecognized(name: str, unread: Sequence[Unread]) -> MachineError:
    hint = (
        "docs/formats.md lists what is read. What is piped from a pod or job that has not "
        "started is empty."
    )
    for each in unread:  # the first that says more than that nothing is known
        if each.reason != NO_KNOWN_OUTPUT:
            return MachineError(f"{name}: {each.reason}", hint=hint)
    return MachineError(f"Nothing in {name} is recognized as a benchmark's output.", hint=hint)


def _label_of_input(argument: str) -> str:
    """Return the label of files: the name of a directory, the stem of a file.

    ``a`` for ``a1.log,a2.log``.
    """
    names = [_stem(part) for part in listed_files(argument)]
    numberless = {_NUMBER.sub("", name) for name in names}
    if len(names) > 1 and len(numberless) == 1:
        return numberless.pop() or names[0]
    return names[0]


def repeats_of(arguments: Sequence[str]) -> Sequence[str]:
    """Return files with those as one list whose names differ in numbers only.

    Of fewer than three nothing can be told.
    """
    named_files = all(Path(each).is_file() for each in arguments)
    if len(arguments) < 3 or not named_files:
        return arguments
    alike = grouped_by(_without_number, arguments)
    return list(map(",".join, alike.values()))


def _without_number(name: str) -> str:
    """Return a file name without the number at its end; one that is only a number stays."""
    path = Path(name)
    stem = _NUMBER.sub("", path.stem)
    return str(path.with_stem(stem or path.stem))


def _stem(name: str) -> str:
    path = Path("stdin" if name == "-" else name)
    if path.is_dir():  # `.` has a name once it is resolved
        return path.resolve().name
    return Path(_PACKED.sub("", path.name)).stem


def _columns_of_run(source: Source) -> list[Column]:
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
    skipped = Log(
        source=source.name,
        benchmark=run.benchmark,
        case=None,
        outcome=Outcome.SKIPPED,
        reason="No execution of this configuration started.",
        facts={},
    )
    return stored_columns(run, source.configuration, [skipped])


def stored_columns(
    run: "StoredRun",
    only: str = "",
    skipped: Sequence[Log] = (),
    logs: Logs | None = None,
) -> list[Column]:
    """Return the configurations of a run, or one, as columns.

    Their verdicts keep the run's significance level, which depends on how many repeats were
    possible. One without results has the `skipped` logs, or is left out. `logs`: those of each, if
    they are known.
    """
    logs_of = run.logs if logs is None else logs.__getitem__
    columns: list[Column] = []
    for each in run.configurations:
        if only and only != each.label:
            continue
        shown = logs_of(each.label) or skipped
        if shown:
            column = Column(
                label=each.label,
                logs=tuple(shown),
                source=f"run {run.id}",
                variant=run.variants.get(each.variant),
                max_repeats=run.request.most_repeats,
            )
            columns.append(column)
    return columns


def columns_within(columns: Sequence[Column], sizes: Sizes | None) -> list[Column]:
    """Return columns with the rows of some sizes; None: of all.

    Raise RequestError if none has any.
    """
    narrowed = [
        replace(column, logs=tuple(within(log, sizes) for log in column.logs))
        for column in columns  # also those that have none of them
    ]
    if sizes is not None and not _sizes(narrowed):
        known = format_sizes(_sizes(columns)) or "nothing"
        raise RequestError(
            "Nothing was measured at the sizes of --size.", hint=f"Measured: {known}."
        )
    return narrowed


def _sizes(columns: Sequence[Column]) -> list[int]:
    return [point.size for log in _logs(columns) for point in log.points]


def matching_column(baseline: Sequence[Column], label: str) -> Column:
    """Return the only column of a baseline, or the one with a label.

    Raise RequestError if there is none.
    """
    if len(baseline) == 1:
        return baseline[0]
    for column in baseline:
        if column.label == label:
            return column
    labels = ", ".join(column.label for column in baseline)
    raise RequestError(
        f"The baseline has {len(baseline)} configurations ({labels}), and none of them is {label}.",
        hint="Specify one of them: --baseline RUN:CONFIG.",
    )


def with_labels(columns: Sequence[Column], labels: Sequence[str]) -> list[Column]:
    """Apply the user's labels to columns, if there are any.

    Equal labels get the source, and then a number.

    Raise RequestError if the numbers of labels and columns differ, or a label is empty.
    """
    if "" in labels:
        raise RequestError("A label is empty.", hint="Pass --label with a name for each column.")
    if labels and len(labels) != len(columns):
        names = ", ".join(column.label for column in columns)
        given = counted(len(labels), "label")
        wanted = counted(len(columns), "column")
        raise RequestError(
            f"Got {given} for {wanted} ({names}).",
            hint="Pass --label once per column, in order, or not at all.",
        )
    if labels:
        pairs = zip(columns, labels, strict=True)
        columns = [replace(each, label=label, label_given=True) for each, label in pairs]
    counts = Counter(column.label for column in columns)
    by_label: dict[str, Column] = {}
    for column in columns:
        name = column.label
        if counts[name] > 1:
            name = f"{name} ({column.source})"
        label = _unused(name, by_label)
        by_label[label] = replace(column, label=label)
    return list(by_label.values())


def _unused(name: str, used: Container[str]) -> str:
    """Return a name, with a number from 2 on if it is used."""
    label = name
    numbers = count(2)
    while label in used:
        label = f"{name} {next(numbers)}"
    return label
