"""``summary.json``.

What lists, histories and baselines of thousands of runs read of each one, instead of its logs.

A run writes it when it ends. One that is missing, such as a killed run's, or of another format is
made from the run's documents and logs, and kept as soon as the run is no longer in progress. It can
be removed at any time.
"""

import json
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from fabbench.model.errors import RequestError
from fabbench.model.log import METRICS, Log, Logs, Metric, Outcome
from fabbench.model.mappings import Names, distinct, first_of, gathered, map_values
from fabbench.model.plan import Configuration
from fabbench.model.units import Sizes, format_ends, format_quantity, format_size
from fabbench.runs.directories import runs
from fabbench.runs.document import SUMMARY, RunDocument, StoreError, readable, write

if TYPE_CHECKING:
    from fabbench.runs.document import TestResult
    from fabbench.runs.store import StoredRun

Reading: TypeAlias = Callable[[int], AbstractContextManager[Callable[[], None]]]
"""Called with the number of summaries to make; yields the function to call after each."""
LAST_GOOD = "last-good"
Pairs: TypeAlias = tuple[tuple[str, str], ...]
Parts: TypeAlias = Mapping[str, str]
"""Parts of a key: name → value."""


class Measured(msgspec.Struct, frozen=True, gc=False):
    """The values of one metric of a configuration of a run.

    For each size the median of its repeats.
    """

    configuration: str
    metric: str
    # What the runs of a series have in common: what was measured and how, and on which nodes
    key: Pairs
    sizes: tuple[int, ...]
    values: tuple[float, ...]

    def value(self, metric: Metric, sizes: Sizes | None = None) -> float | None:
        """Return the best value of some sizes, or of all; None if there is none."""
        values = self.values
        if sizes is not None:
            # Not strict: nothing ensures that a file has equally many of both.
            pairs = zip(self.sizes, self.values, strict=False)
            values = tuple(value for size, value in pairs if size in sizes)
        best = min if metric.lower_is_better else max
        return best(values, default=None)


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One run, without its figures."""

    # To raise if older summaries lack something, or if logs are read differently now
    format: Literal[3] = 3
    id: str
    name: str = ""
    created: str
    benchmark: str
    target: str = ""
    hosts: Names = ()
    arms: Names = ()  # Labels of the configurations
    basis: str = ""  # See `basis_of`
    sizes: str = ""
    peak: str = ""
    gate: str = ""  # `passed` or `failed`; empty if there were none, or the run did not end
    outcomes: Mapping[str, int] = {}  # Outcome → number of executions
    damaged: tuple[str, ...] = ()  # Sentences: what cannot be read, and why
    path: str = ""  # The name of its directory; not stored

    @property
    def is_ok(self) -> bool:
        """Whether every execution is ok, nothing is damaged, and no gate failed."""
        if self.damaged or self.gate == "failed":
            return False
        return set(self.outcomes) == {"ok"}


class FullSummary(Summary, frozen=True, kw_only=True):
    """One run, with its figures."""

    circumstances: Mapping[str, Mapping[str, str]] = {}
    """Configuration → what may differ between runs of a series.

    Versions, image, nodes, environment.
    """
    measured: tuple[Measured, ...] = ()
    dated: str = "run"
    """What `created` is from; of a log file: `log`, `name` (of the file) or `mtime`."""


def summaries(
    store: Path,
    reading: Reading = lambda count: nullcontext(lambda: None),  # noqa: ARG005 - no progress is shown
    *,
    figures: bool = False,
) -> Iterator[Summary]:
    """Yield the summary of each run of a store, newest first.

    As `FullSummary` if `figures` are needed.

    Missing ones are made, on all cores.
    """
    stored = {
        path: readable(path / SUMMARY, FullSummary if figures else Summary) for path in runs(store)
    }
    missing = [path for path, summary in stored.items() if summary is None]
    with closing(_made_summaries(missing)) as made, reading(len(missing)) as count_one:
        for path, known in stored.items():
            summary = known
            if summary is None:
                summary = next(made)  # in the order of those that are missing
                count_one()
            # Which is not stored; the structure is frozen otherwise.
            msgspec.structs.force_setattr(summary, "path", path.name)
            yield summary


# ---------------------------------------------------------------- made


def _made_summaries(paths: Sequence[Path]) -> Generator[Summary]:
    if paths:
        from fabbench.runs.inputs import on_cores  # loads all that reads logs

        yield from on_cores(_make_summary, paths)


def _make_summary(path: Path) -> FullSummary:
    """Read a run, and keep its summary if it is not in progress."""
    from fabbench.runs.store import StoredRun, in_progress

    run = StoredRun(path)
    try:
        return summary_of(run) if in_progress(run) else write_summary(path)
    except OSError as error:
        why = error.strerror or error
        damage = (f"{path.name} cannot be read: {why}.",)
        return FullSummary(id=run.id, created=run.created, benchmark=run.benchmark, damaged=damage)


def write_summary(path: Path, logs: Logs | None = None) -> FullSummary:
    """Write the summary of a run that has ended.

    `logs`: those of each configuration, if they are known.
    """
    from fabbench.runs.store import StoredRun

    summary = summary_of(StoredRun(path), logs)
    with suppress(StoreError):  # Whoever may not write the store reads the run each time
        # Not durable: if it is lost, it is made again.
        write(path / SUMMARY, summary, indent=None, durable=False)
    return summary


def summary_of(run: "StoredRun", logs: Logs | None = None) -> FullSummary:
    """Return the summary of a run as it is now. Any problem with it becomes its damage.

    `logs`: configuration → its logs, where they are still in memory; None: read them from the run.
    """
    logs_of = logs
    labels = tuple(each.label for each in run.configurations)
    damage: Sequence[str] = ()  # What is still in memory was not read, and has none
    if logs_of is None:
        logs_of = {label: run.logs(label) for label in labels}
        damage = run.damage
    ended: list[Log | TestResult] = [*chain.from_iterable(logs_of.values())]
    if run.sweep is not None:
        from fabbench.runs.store import stored_sweep

        sweep = stored_sweep(run)
        damage = sweep.damage
        ended += sweep.tests
    measured = () if damage else tuple(_measured(run, logs_of))
    first = first_of(labels, "")  # the one in question: its sizes and peak are shown
    return FullSummary(
        id=run.id,
        name=run.name,
        created=run.created,
        benchmark=run.benchmark,
        target=run.target,
        hosts=run.hosts,
        arms=labels,
        basis=basis_of(run.document),
        sizes=_sizes_in_words(logs_of.get(first, ())),
        peak=_best_figure(
            run.benchmark, [each for each in measured if each.configuration == first]
        ),
        gate=run.gates,
        outcomes=outcomes_of(run, ended),
        damaged=tuple(damage),
        circumstances={
            each.label: _circumstances(run, each, logs_of.get(each.label, ()))
            for each in run.configurations
        },
        measured=measured,
    )


def _circumstances(
    run: "StoredRun", configuration: Configuration, logs: Iterable[Log]
) -> dict[str, str]:
    """Return what may differ between runs of a series: see `FullSummary`."""
    return {
        **stated_versions(logs),
        "variant": str(run.variants.get(configuration.variant) or ""),
        "image": run.image,
        "node names": ", ".join(run.hosts),
        **{f"env {name}": value for name, value in run.request.env.items()},
        "fabbench": run.document.fabbench,
        "neighbor": first_of(neighbors(logs), default=""),
    }


def neighbors(logs: Iterable[Log]) -> Iterator[str]:
    """Yield what logs say of other runs of fabbench that were there at the same time."""
    for log in logs:
        for each in log.findings:
            if each.code == "neighbor":
                yield each.meaning


def basis_of(document: RunDocument) -> str:
    """Return what was measured and where, as text.

    Runs with the same can be each other's baseline.
    """
    what = document.request
    types = sorted({host.instance_type for host in document.hosts})
    basis = [what.benchmark, what.target, what.options, len(document.hosts), types]
    return json.dumps(basis, sort_keys=True, default=str)


def outcomes_of(run: "StoredRun", ended: "Iterable[Log | TestResult]") -> dict[str, int]:
    """Return outcome → number of logs or tests.

    Scheduled executions that never started are `not begun`.
    """
    counts = Counter(str(each.outcome) for each in ended)
    folder = run.path / "exec"
    # An execution writes its plan when it begins.
    for name, _ in run.schedule:
        if not (folder / name / "plan.json").is_file():
            counts["not begun"] += 1
    return counts


def _sizes_in_words(logs: Iterable[Log]) -> str:
    sizes = {point.size for log in logs for point in log.points if point.size}
    return format_ends(sizes, format_size, " - ") if sizes else ""


def _best_figure(benchmark: str, measured: Sequence[Measured]) -> str:
    """Return the best figure of what was measured, with its unit; empty: nothing was.

    It is of the first metric that was measured of the benchmark's usual ones, else of all.
    """
    from fabbench.benchmarks import benchmark_named

    if not measured:
        return ""
    case = dict(measured[0].key).get("case", "")
    order = [*benchmark_named(benchmark).metrics_of(case), *METRICS]
    metric = METRICS[min((each.metric for each in measured), key=order.index)]
    known = [each.value(metric) for each in measured if each.metric == metric.name]
    values = [value for value in known if value is not None]
    best = min(values) if metric.lower_is_better else max(values)
    return format_quantity(best, metric.unit)


def stated_versions(logs: Iterable[Log]) -> dict[str, str]:
    """Return the versions that a configuration's logs state.

    Several of one library separated by a slash.
    """
    from fabbench.benchmarks import benchmark_named

    stated = distinct(
        (name, str(log.facts[name]))
        for log in logs
        for name in benchmark_named(log.benchmark).versions
        if name in log.facts
    )
    by_library = gathered(stated)
    return map_values("/".join, by_library)


def _measured(run: "StoredRun", logs_of: Logs) -> Iterator[Measured]:
    """Yield the benchmark's main figures of each size, from executions that are ok."""
    options = _options_in_words(run.options)
    nodes = _about_nodes(run)
    for configuration in run.configurations:
        label = configuration.label
        # The case is as the rows of a log show it.
        about = {"benchmark": run.benchmark, "case": "", "configuration": label, **nodes}
        logs = logs_of.get(label, ())
        good = [log for log in logs if log.outcome is Outcome.OK]
        yield from figures_of(good, about, **options)


def figures_of(logs: Iterable[Log], about: Parts, **options: str) -> Iterator[Measured]:
    """Yield the main figures of each size. `about` and `options` are parts of the key.

    A configuration without a name is called by its transport.
    """
    from fabbench.analysis.aggregate import FIELDS, Column, column_rows, pooled_figures

    column = Column(label="", logs=tuple(logs), source="")
    for fields, rows in column_rows(column, placement="out-of-place").rows.items():
        *known, _, transport = fields  # The values of `FIELDS`, the library, and the transport
        label = about["configuration"] or transport
        fields_seen = zip(FIELDS, known, strict=True)
        seen = {name: value for name, value in fields_seen if value}
        first = {**about, "configuration": label, **seen}
        # What was seen comes first, and outranks options of the same names.
        key = tuple({**first, **options, **first}.items())
        for metric in METRICS.values():
            figures = pooled_figures(rows, metric, first["benchmark"])
            values = tuple(figure.value for figure in figures.values())
            if values and metric.name != "wrong":  # a count of errors is no main figure
                yield Measured(label, metric.name, key, tuple(figures), values)


def _options_in_words(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that are set, as text."""
    texts: dict[str, str] = {}
    for name, value in options.items():
        if value not in (None, "", [], False):
            parts = value if isinstance(value, list) else [value]
            texts[name] = ",".join(map(str, parts))
    return texts


def _about_nodes(run: "StoredRun") -> dict[str, str]:
    types = {host.instance_type for host in run.document.hosts} - {""}
    return {
        "target": run.target,
        "nodes": str(len(run.hosts)),
        "type": ", ".join(sorted(types)),
    }


# ---------------------------------------------------------------- the last good run


def last_good(document: RunDocument, configuration: str, store: Path) -> str:
    """Return the newest good run before another that measured a configuration the same way.

    As an input. It may have other configurations too. Raise RequestError if there is none.
    """
    basis = basis_of(document)
    for run in summaries(store):
        earlier = run.created <= document.created and run.id != document.id
        if earlier and run.is_ok and configuration in run.arms and run.basis == basis:
            path = store / run.path
            return f"{path}:{configuration}"
    asked = document.request
    raise RequestError(
        f"No earlier run of {asked.benchmark} on {asked.target} in {store} measured "
        f"{configuration} the same way and is good.",
        hint="Run once without --baseline. A good run has the same options, nodes and "
        "configuration, all executions ok, and no failed gate.",
    )
