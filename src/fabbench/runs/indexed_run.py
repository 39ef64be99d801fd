"""What the index of a store keeps of a run: the data for lists, histories and baselines, without samples."""

import json
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from fabbench.model.errors import FabbenchError
from fabbench.model.units import format_size
from fabbench.runs.folders import RUN_NAME

if TYPE_CHECKING:
    from pathlib import Path

    from fabbench.analysis.compare import Comparison
    from fabbench.runs.store import StoredRun


_NOTHING: Mapping[str, Any] = MappingProxyType({})


class IndexedConfiguration(NamedTuple):
    """One configuration of a run."""

    label: str
    fabric: str
    variant: str = ""
    """Its variant as text; empty if it has none."""
    versions: Mapping[str, str] = _NOTHING
    """Library → version, as the logs state it."""


class RunSetup(NamedTuple):
    """What was measured, where, and with what. Most runs of a store share it with others."""

    benchmark: str
    target: str = ""
    fabbench: str = ""
    """The version of fabbench that measured."""
    image: str = ""
    hosts: Sequence[str] = ()
    instance_types: Sequence[str] = ()
    configurations: Sequence[IndexedConfiguration] = ()
    options: str = "{}"
    """The benchmark's own options, as JSON with sorted keys."""
    env: Mapping[str, str] = _NOTHING

    def __hash__(self) -> int:
        """Return a hash for caches, from a few fields only."""
        return hash((self.benchmark, self.target, self.image, self.options))

    def to_json(self) -> str:
        """Serialize it for the index."""
        return json.dumps(self, ensure_ascii=False, default=dict)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parse the output of `to_json`."""
        setup = cls(*json.loads(text))
        return setup._replace(configurations=[IndexedConfiguration(*each) for each in setup.configurations])


class IndexedRun(NamedTuple):
    """One run, as of the last read of its directory. Not a dataclass: there may be tens of thousands."""

    path: str
    """Its directory, relative to the store."""
    id: str
    name: str
    created: str
    setup: RunSetup
    sizes: str = ""
    peak: str = ""
    gate: str = ""
    """`passed` or `failed`; empty if there were none, or the run did not end."""
    outcomes: Mapping[str, int] = _NOTHING
    """Outcome → number of executions."""
    damaged: Sequence[str] = ()
    """Sentences: what cannot be read, and why."""

    @property
    def folder(self) -> str:
        """The folder of the store that contains the run, such as a machine's; empty for the store itself."""
        return self.path.rpartition("/")[0]

    @property
    def is_ok(self) -> bool:
        """Whether every execution is ok, nothing is damaged, and no gate failed."""
        return set(self.outcomes) == {"ok"} and not self.damaged and self.gate != "failed"


class IndexedFigure(NamedTuple):
    """The value of one metric of a configuration of a run, at one size or the best of all sizes."""

    configuration: str
    key: tuple[tuple[str, str], ...]
    """As `Measured` has it."""
    value: float


class IndexedMetric(NamedTuple):
    """The values of one metric of a configuration of a run: for each size the median of its repeats."""

    configuration: str
    metric: str
    key: tuple[tuple[str, str], ...]
    """What distinguishes it within the configuration: case, ranks, dtype, … and their values."""
    sizes: tuple[int, ...]
    values: tuple[float, ...]
    executions: int


def unreadable(path: str, reason: str) -> IndexedRun:
    """Return what is known about a run whose directory cannot be read at all."""
    match = RUN_NAME.fullmatch(path.rpartition("/")[2])
    known = match.groupdict() if match else {"id": path, "when": "", "benchmark": ""}
    return IndexedRun(
        path=path, id=known["id"], name="", created=known["when"], setup=RunSetup(known["benchmark"]), damaged=[reason]
    )


def read_run(store: "Path", path: str) -> tuple[IndexedRun, Sequence[IndexedMetric]]:
    """Read the directory of a run. Any problem with it becomes its damage."""
    from fabbench.runs.store import StoredRun

    try:
        run = StoredRun(store / path)
        return _indexed(path, run), [] if run.damage else list(_measured(run))
    except OSError as error:
        return unreadable(path, f"{path} cannot be read: {error.strerror or error}."), []


def _indexed(path: str, run: "StoredRun") -> IndexedRun:
    sizes, peak = _sizes_and_peak(run)
    return IndexedRun(
        path=path,
        id=run.id,
        name=run.name,
        created=run.created,
        setup=_setup(run),
        sizes=sizes,
        peak=peak,
        gate=run.gates,
        outcomes=run.outcomes,
        damaged=list(run.damage),
    )


def _sizes_and_peak(run: "StoredRun") -> tuple[str, str]:
    """Return sizes (``8 B - 2 GB``) and the best value (``77.35 GB/s``) of a run's first configuration, if known."""
    from fabbench.analysis.aggregate import Column
    from fabbench.analysis.compare import compare

    first = next((each.label for each in run.configurations), "")
    logs = run.logs(first)
    sizes = sorted({point.size for log in logs for point in log.points if point.size})
    span = " - ".join(dict.fromkeys(map(format_size, (*sizes[:1], *sizes[-1:]))))
    try:
        column = Column(label=first, logs=logs, source=f"run {run.id}")
        return span, _peak(compare([column], only_ok=True)) if logs else ""
    except FabbenchError:
        return span, ""


def _peak(comparison: "Comparison") -> str:
    metric, *_ = comparison.metrics or (None,)
    sections = [section for section in comparison.sections if section.metric == metric and section.shown[0]]
    figures = [row.figures[0] for section in sections for row in section.rows]
    values = [figure.value for figure in figures if figure is not None]
    if metric is None or not values:
        return ""
    return sections[0].scale.quantity((min if metric.lower_is_better else max)(values))


def _setup(run: "StoredRun") -> RunSetup:
    return RunSetup(
        benchmark=run.benchmark,
        target=run.target,
        fabbench=run.document.fabbench,
        image=run.image,
        hosts=list(run.hosts),
        instance_types=sorted({host.instance_type for host in run.document.hosts} - {""}),
        configurations=[
            IndexedConfiguration(
                label=each.label,
                fabric=each.fabric,
                variant=str(run.variant(each) or ""),
                versions=_versions(run, each.label),
            )
            for each in run.configurations
        ],
        options=json.dumps(run.options, sort_keys=True, default=str),
        env=dict(run.request.env),
    )


def _versions(run: "StoredRun", label: str) -> dict[str, str]:
    """Return the versions that a configuration's logs state; several of one library separated by a slash."""
    from fabbench.benchmarks import benchmark_named

    versions: dict[str, dict[str, None]] = {}
    for log in run.logs(label):
        for name in benchmark_named(log.benchmark).versions:
            if name in log.facts:
                versions.setdefault(name, {})[str(log.facts[name])] = None
    return {name: "/".join(values) for name, values in versions.items()}


def _measured(run: "StoredRun") -> Iterator[IndexedMetric]:
    """Yield the benchmark's main figure of each size, from executions that are ok."""
    from fabbench.analysis.aggregate import FIELDS, Column, column_rows, pooled_figures
    from fabbench.model.log import METRICS, Outcome

    for configuration in run.configurations:
        logs = tuple(log for log in run.logs(configuration.label) if log.outcome is Outcome.OK)
        column = Column(label=configuration.label, logs=logs, source="")
        for fields, rows in column_rows(column, placement="out-of-place").rows.items():
            key = tuple((name, value) for name, value in zip(FIELDS, fields, strict=False) if value)
            for name in dict.fromkeys(name for row in rows for name in row.point.metrics if name != "wrong"):
                figures = pooled_figures(rows, METRICS[name], run.benchmark)
                yield IndexedMetric(
                    configuration=configuration.label,
                    metric=name,
                    key=key,
                    sizes=tuple(figures),
                    values=tuple(figure.value for figure in figures.values()),
                    executions=len({row.execution for row in rows}),
                )
