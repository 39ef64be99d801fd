"""``summary.json``: what lists, histories and baselines of thousands of runs read of each one, instead of its logs.

A run writes it when it ends. One that is missing, such as a killed run's, or of another format is made from the
run's documents and logs, and kept as soon as the run is no longer in progress. It can be removed at any time.
"""

import json
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from itertools import chain, dropwhile, islice
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import msgspec

from fabbench.model.errors import MachineError, RequestError
from fabbench.model.log import METRICS, Log, Metric, Outcome
from fabbench.model.units import format_size, scale
from fabbench.runs.document import REQUEST, SUMMARY, RunDocument, read, run_folders, write

if TYPE_CHECKING:
    from fabbench.model.hosts import Inventory
    from fabbench.model.plan import Plan
    from fabbench.plan.request import RunRequest
    from fabbench.runs.store import StoredRun
    from fabbench.runs.sweep_store import TestResult

Reading: TypeAlias = Callable[[int], AbstractContextManager[Callable[[], None]]]
"""Called with the number of summaries to make; yields the function to call after each."""
LAST_GOOD = "last-good"
Pairs: TypeAlias = tuple[tuple[str, str], ...]


class SetupConfiguration(msgspec.Struct, frozen=True):
    """One configuration of a run."""

    label: str
    fabric: str
    variant: str = ""  # Its variant as text; empty if it has none
    versions: Pairs = ()  # Libraries and their versions, as the logs state them


class RunSetup(msgspec.Struct, frozen=True):
    """What was measured, where, and with what. Most runs of a store share it with others."""

    benchmark: str
    target: str = ""
    fabbench: str = ""  # The version of fabbench that measured
    image: str = ""
    hosts: tuple[str, ...] = ()
    instance_types: tuple[str, ...] = ()
    configurations: tuple[SetupConfiguration, ...] = ()
    options: str = "{}"  # The benchmark's own options, as JSON with sorted keys
    env: Pairs = ()


class Measured(msgspec.Struct, frozen=True, gc=False):
    """The values of one metric of a configuration of a run: for each size the median of its repeats."""

    configuration: str
    metric: str
    key: Pairs  # What distinguishes it within the configuration: case, ranks, dtype, … and their values
    sizes: tuple[int, ...]
    values: tuple[float, ...]

    def value(self, metric: Metric, sizes: range | None = None) -> float | None:
        """Return the best value of some sizes, or of all; None if there is none."""
        pairs = zip(self.sizes, self.values, strict=False)
        known = self.values if sizes is None else [value for size, value in pairs if size in sizes]
        return (min if metric.lower_is_better else max)(known, default=None)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One run, without its figures."""

    format: Literal[1] = 1  # To raise if older summaries lack something, or if logs are read differently now
    id: str
    name: str = ""
    created: str
    setup: RunSetup
    sizes: str = ""
    peak: str = ""
    gate: str = ""  # `passed` or `failed`; empty if there were none, or the run did not end
    outcomes: Mapping[str, int] = {}  # Outcome → number of executions
    damaged: tuple[str, ...] = ()  # Sentences: what cannot be read, and why
    path: str = ""  # The name of its directory; not stored

    @property
    def is_ok(self) -> bool:
        """Whether every execution is ok, nothing is damaged, and no gate failed."""
        return set(self.outcomes) == {"ok"} and not self.damaged and self.gate != "failed"


class FullSummary(Summary, frozen=True, kw_only=True):
    """One run, with its figures."""

    measured: tuple[Measured, ...] = ()


def summaries(
    store: Path,
    reading: Reading = lambda count: nullcontext(lambda: None),  # noqa: ARG005 - no progress is shown
    *,
    figures: bool = False,
) -> Iterator[Summary]:
    """Yield the summary of each run of a store, newest first; as `FullSummary` if `figures` are needed.

    Missing ones are made, on all cores.
    """
    paths = run_folders(store)
    found = {path: _stored(store / path / SUMMARY, FullSummary if figures else Summary) for path in paths}
    missing = [store / path for path, summary in found.items() if summary is None]
    with closing(_made(missing)) as made, reading(len(missing)) as read:
        for path, known in found.items():
            summary = known
            if summary is None:
                summary = next(made)
                read()
            if summary is not None:
                msgspec.structs.force_setattr(summary, "path", path)
                yield summary


def _stored(file: Path, kind: type[Summary]) -> Summary | None:
    with suppress(MachineError):
        return read(file, kind)
    return None


# ---------------------------------------------------------------- made


def _made(paths: Sequence[Path]) -> Generator[Summary | None]:
    if paths:
        from fabbench.runs.inputs import on_cores  # loads all that reads logs

        yield from on_cores(_make_summary, paths)


def _make_summary(path: Path) -> FullSummary | None:
    """Read a run, and keep its summary if it is not in progress; None for a directory that is not a run."""
    from fabbench.runs.store import StoredRun, in_progress

    if not (path / REQUEST).is_file():
        return None
    run = StoredRun(path)
    try:
        ended, summary = not in_progress(path), summary_of(run)
    except OSError as error:
        reason = f"{path.name} cannot be read: {error.strerror or error}."
        return FullSummary(id=run.id, created=run.created, setup=RunSetup(run.benchmark), damaged=(reason,))
    if ended:
        _keep(path, summary)
    return summary


def write_summary(path: Path, logs: Mapping[str, Sequence[Log]] | None = None) -> None:
    """Write the summary of a run that has ended; `logs`: those of each configuration, if they are known."""
    from fabbench.runs.store import StoredRun

    _keep(path, summary_of(StoredRun(path), logs))


def _keep(path: Path, summary: FullSummary) -> None:
    # Whoever may not write the store reads the run each time.
    with suppress(OSError):
        write(path / SUMMARY, summary, indent=None, durable=False)


def summary_of(run: "StoredRun", logs: Mapping[str, Sequence[Log]] | None = None) -> FullSummary:
    """Return the summary of a run as it is now. Any problem with it becomes its damage."""
    from fabbench.runs.sweep_store import stored_sweep

    damage = run.damage if logs is None else ()
    known = logs if logs is not None else {each.label: run.logs(each.label) for each in run.configurations}
    sweep = stored_sweep(run) if run.sweep is not None else None
    damage = (*damage, *sweep.damage) if sweep else damage
    measured = () if damage else tuple(_measured(run, known))
    first = next((each.label for each in run.configurations), "")
    return FullSummary(
        id=run.id,
        name=run.name,
        created=run.created,
        setup=setup_of(run.document, run.benchmark, known),
        sizes=_span(known.get(first, ())),
        peak=_peak(run.benchmark, [each for each in measured if each.configuration == first]),
        gate=run.gates,
        outcomes=outcomes_of(run, (*chain.from_iterable(known.values()), *(sweep.tests if sweep else ()))),
        damaged=damage,
        measured=measured,
    )


def outcomes_of(run: "StoredRun", ended: "Iterable[Log | TestResult]") -> dict[str, int]:
    """Return outcome → number of logs or tests. Scheduled executions that never started are `not begun`."""
    counts = Counter(str(each.outcome) for each in ended)
    counts.update("not begun" for name, _ in run.schedule if not (run.path / "exec" / name / "plan.json").is_file())
    return dict(counts)


def _span(logs: Iterable[Log]) -> str:
    sizes = sorted({point.size for log in logs for point in log.points if point.size})
    return " - ".join(dict.fromkeys(map(format_size, (*sizes[:1], *sizes[-1:]))))


def _peak(benchmark: str, measured: Sequence[Measured]) -> str:
    from fabbench.benchmarks import benchmark_named

    if not measured:
        return ""
    usual = benchmark_named(benchmark).metrics_of(dict(measured[0].key).get("case", ""))
    metric = METRICS[min((each.metric for each in measured), key=[*usual, *METRICS].index)]
    values = [value for each in measured if each.metric == metric.name and (value := each.value(metric)) is not None]
    best = (min if metric.lower_is_better else max)(values)
    return scale(metric.unit, best).quantity(best)


def setup_of(document: RunDocument, benchmark: str = "", known: Mapping[str, Sequence[Log]] | None = None) -> RunSetup:
    """Return what a run measures; `benchmark`: the name of a damaged one's, `known`: the logs of its configurations."""
    variants, known = {each.name: each for each in document.request.variants}, known or {}
    return RunSetup(
        benchmark=document.request.benchmark or benchmark,
        target=document.request.target,
        fabbench=document.fabbench,
        image=document.image,
        hosts=tuple(host.name for host in document.hosts),
        instance_types=tuple(sorted({host.instance_type for host in document.hosts} - {""})),
        configurations=tuple(
            SetupConfiguration(
                label=each.label,
                fabric=each.fabric,
                variant=str(variants.get(each.variant) or ""),
                versions=tuple(_versions(known.get(each.label, ())).items()),
            )
            for each in document.arms
        ),
        options=json.dumps(document.request.options, sort_keys=True, default=str),
        env=tuple(document.request.env.items()),
    )


def _versions(logs: Iterable[Log]) -> dict[str, str]:
    """Return the versions that a configuration's logs state; several of one library separated by a slash."""
    from fabbench.benchmarks import benchmark_named

    versions: dict[str, dict[str, None]] = {}
    for log in logs:
        for name in benchmark_named(log.benchmark).versions:
            if name in log.facts:
                versions.setdefault(name, {})[str(log.facts[name])] = None
    return {name: "/".join(values) for name, values in versions.items()}


def _measured(run: "StoredRun", known: Mapping[str, Sequence[Log]]) -> Iterator[Measured]:
    """Yield the benchmark's main figures of each size, from executions that are ok."""
    from fabbench.analysis.aggregate import FIELDS, Column, column_rows
    from fabbench.analysis.statistics import median

    for configuration in run.configurations:
        logs = tuple(log for log in known.get(configuration.label, ()) if log.outcome is Outcome.OK)
        column = Column(label=configuration.label, logs=logs, source="")
        for fields, rows in column_rows(column, placement="out-of-place").rows.items():
            key = tuple((name, value) for name, value in zip(FIELDS, fields, strict=False) if value)
            pooled: dict[str, dict[int, list[float]]] = {}
            for point in (row.point for row in rows):
                for name, value in zip(point.metrics, point.values, strict=True):
                    if name != "wrong" and isfinite(value):
                        pooled.setdefault(name, {}).setdefault(point.size, []).append(value)
            for name, figures in pooled.items():
                sizes = tuple(sorted(figures))
                values = tuple(median(figures[size]) for size in sizes)
                yield Measured(configuration.label, name, key, sizes, values)


# ---------------------------------------------------------------- the last good run


def last_good_for(request: "RunRequest", inventory: "Inventory", planned: "Plan") -> str:
    """Return the newest good run of what is about to be measured; see `_newest_good`."""
    from fabbench.runs.store import document_of

    setup = setup_of(document_of(request, inventory, planned))
    return _newest_good(setup, planned.configurations[0].label, summaries(request.store), request.store)


def last_good_before(ref: str, store: Path) -> str:
    """Return the newest good run before a run, that measured the same; see `_newest_good`."""
    from fabbench.runs.inputs import open_run

    run_ref, _, configuration = ref.partition(":")
    run = open_run(run_ref, store)
    if not run.configurations:
        raise MachineError(f"Run {run.id} is damaged.", hint=f"fabbench show {run.id} prints what can be read.")
    earlier = islice(dropwhile(lambda each: each.id != run.id, summaries(store)), 1, None)
    return _newest_good(setup_of(run.document), configuration or run.configurations[0].label, earlier, store)


def _newest_good(setup: RunSetup, configuration: str, runs: Iterable[Summary], store: Path) -> str:
    """Return the newest good run with a configuration that measured the same, as an input of a comparison.

    It may have other configurations too. Raise RequestError if there is none.
    """
    for run in runs:
        labels = [each.label for each in run.setup.configurations]
        if run.is_ok and configuration in labels and _measured_by(run.setup) == _measured_by(setup):
            return f"{store / run.path}:{configuration}"
    raise RequestError(
        f"No earlier run of {setup.benchmark} on {setup.target} in {store} measured {configuration} "
        "the same way and is good.",
        hint="Run once without --baseline. A good run has the same options, nodes and configuration, "
        "all executions ok, and no failed gate.",
    )


def _measured_by(setup: RunSetup) -> tuple[object, ...]:
    return setup.benchmark, setup.target, setup.options, len(setup.hosts), setup.instance_types
