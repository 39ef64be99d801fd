"""fabbench's own JSON as logs: of `parse` (`logs`), of a comparison or a run (`rows`).

A table is no run: nothing is proven, and nothing is better than what is written.
"""

from collections.abc import Iterable, Iterator, Mapping
from operator import attrgetter
from typing import Annotated, Any, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import asdict

from fabbench.benchmarks import benchmark_named
from fabbench.model.log import METRICS, Log, Outcome, Point, Proof
from fabbench.model.mappings import grouped_by
from fabbench.report.log_report import LABELS
from fabbench.runs.document import Format, decoded

_COUNTS = ("ranks", "hosts", "gpus_per_host")
_what_was_measured = attrgetter("column", "benchmark", "case", "outcome", *_COUNTS)
_METRICS = "|".join(METRICS)
_METRIC = rf"^(?:{_METRICS})\Z"
_Text: TypeAlias = str | None
_Count: TypeAlias = int | str | None  # Text where a column has several


class _Figure(Struct, kw_only=True):
    """A sample of a log."""

    size: Annotated[int, Meta(ge=0)]
    metric: Annotated[str, Meta(pattern=_METRIC)]
    value: Annotated[float, Meta(ge=0)] | None  # None: nothing was measured there
    labels: dict[str, str] = {}


class _Row(_Figure, kw_only=True):
    """The figure of a column of a comparison, which has labels among its fields."""

    column: str
    benchmark: _Text
    case: _Text
    outcome: Outcome
    ranks: _Count
    hosts: _Count
    gpus_per_host: _Count
    placement: _Text = None
    dtype: _Text = None
    redop: _Text = None
    root: _Text = None
    scope: _Text = None
    way: _Text = None
    direction: _Text = None
    device: _Text = None
    endpoint: _Text = None
    operation: _Text = None
    batch: _Text = None

    def __post_init__(self) -> None:
        fields = asdict(self)
        self.labels = {name: fields[name] for name in LABELS if fields.get(name)}


class _LogOfDocument(Struct):
    benchmark: _Text
    case: _Text
    outcome: Outcome
    facts: dict[str, bool | int | str]
    samples: list[_Figure]


class _Document(Struct):
    format: Format
    logs: list[_LogOfDocument] = []
    rows: list[_Row] = []


def logs_of_document(
    text: str,
    source: str,
    proof: Proof | None,
) -> Iterator[tuple[str, Log]]:
    """Yield the logs of fabbench's own JSON, each with its column; ``""``: it has none.

    Raise MachineError for a damaged one.
    """
    document = decoded(text, _Document, source)
    for log in document.logs:
        yield "", _log(log, log.facts, log.samples, source, proof)
    rows_of_logs = grouped_by(_what_was_measured, document.rows)
    for rows in rows_of_logs.values():
        first = rows[0]
        yield first.column, _log(first, asdict(first), rows, source, proof)


def _log(
    stated: _LogOfDocument | _Row,
    facts: Mapping[str, Any],
    figures: Iterable[_Figure],
    source: str,
    proof: Proof | None,
) -> Log:
    kept = (*_COUNTS, *benchmark_named(stated.benchmark).versions)
    return Log(
        source=source,
        benchmark=stated.benchmark,
        case=stated.case,
        outcome=Outcome.UNPROVEN if stated.outcome is Outcome.OK else stated.outcome,
        reason="From a table, nothing proven.",
        facts={name: facts[name] for name in kept if facts.get(name)},
        points=[
            Point(each.size, each.labels, (each.metric,), (each.value,))
            for each in figures
            if each.value is not None
        ],
        proof=proof,
    )
