"""The notes below a comparison's table: everything that its reader must know. Pure.

A figure comes with its benchmark, dtype, ranks, hosts, versions and placement. Notes also name what
the logs do not state, and everything in which the columns differ.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, combinations
from typing import NamedTuple

from fabbench.analysis.aggregate import FIELDS, MUST_MATCH, RAIL, Figure
from fabbench.analysis.compare import ColumnSummary, Comparison, differing
from fabbench.analysis.outliers import irregularities
from fabbench.benchmarks import benchmark_named
from fabbench.model import records
from fabbench.model.log import Outcome, Severity
from fabbench.model.mappings import Names, Sentences, distinct, gathered
from fabbench.model.messages import counted
from fabbench.model.units import Scale, format_size, format_sizes

SPREAD = 0.1
"""Repeats that differ by more than this fraction of their median are noted."""

_PROGRAM = ("benchmark", "case")
_COUNTED = {
    "ranks": ("rank", "ranks"),
    "hosts": ("host", "hosts"),
    "gpus_per_host": ("GPU per host", "GPUs per host"),
}
EVIDENCE = frozenset(
    {"network", "transport", "provider", "nics", "link", "gdr", "domain", "fabric", "protocol"}
)
"""Facts about what carried the data: they differ on purpose."""
_NO_CHOICE = {"root": "-1", "redop": "none", "scope": "None", "nodes": "1"}
"""Values that say nothing.

The benchmark has no such property, or all that NVLink or memory connects is one node.
"""
_QUIET = (EVIDENCE | {"complete", *FIELDS}) - {RAIL}
_note = partial(records.sentence, "fabbench.analysis", "footnotes.toml")
"""Return a note by its code, with the values that are in it."""


def footnotes(comparison: Comparison) -> Sentences:
    """Return everything that a reader of the table must know, most important first."""
    columns = comparison.columns
    return (
        *_variants(columns),
        *_outcomes(comparison),
        *_transports(columns),
        *_findings(columns),
        _conditions(comparison),
        *_not_stated(columns),
        *_differences(columns),
        _repeats(comparison),
        *_copies(columns),
        *_spread(comparison),
        *irregularities(comparison),
        *_missing_sizes(comparison),
        *_empty_rows(columns),
        _sources(columns),
    )


def _copies(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    for column in columns:
        if column.copies:
            tables = counted(column.copies + column.executions, "table")
            yield _note("copies", column=column, tables=tables)


def _empty_rows(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    for column in columns:
        if column.empty:
            rows = counted(column.empty, "row")
            yield _note("empty-rows", column=column, rows=rows)


def _sources(columns: Sequence[ColumnSummary]) -> str:
    sources = "; ".join(f"{column.label} from {column.source}" for column in columns)
    return _note("sources", sources=sources)


def versions_of(column: ColumnSummary) -> Names:
    """Return the facts of a column that are versions, in the order in which they are written."""
    benchmarks = column.fields["benchmark"] or ("",)
    names = (name for benchmark in benchmarks for name in benchmark_named(benchmark).versions)
    return tuple(name for name in distinct(names) if name in column.facts)


def _variants(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    """Yield what the variants are, and which logs do not show that their libraries differ."""
    known = [(column, column.variant) for column in columns if column.variant is not None]
    if known:
        variants = "; ".join(f"{column.label} is {variant}" for column, variant in known)
        yield _note("variants", variants=variants)
    for (column, variant), (other, other_variant) in combinations(known, 2):
        versions = [name for name in versions_of(column) if name in other.facts]
        facts = {name: column.facts[name] for name in versions}
        # Other directories with the same versions may hold the same libraries.
        same = facts == {name: other.facts[name] for name in versions}
        if versions and same and variant.paths != other_variant.paths:
            stated = ", ".join(f"{name} {_or(facts[name])}" for name in facts)
            yield _note("variants.same-versions", one=column, other=other, stated=stated)


def _outcomes(comparison: Comparison) -> Iterator[str]:
    for index, column in enumerate(comparison.columns):
        if column.outcome is Outcome.OK:
            continue
        code = "not-ok.of-several" if column.executions > 1 else "not-ok"
        effect = _effect_on_figures(comparison, index)
        reasons = " ".join(column.reasons)
        yield _note(code, column=column, effect=effect, reasons=reasons)


def _effect_on_figures(comparison: Comparison, index: int) -> str:
    """Say what happens to the figures of a column that is not ok."""
    sections = comparison.sections
    if comparison.columns[index].hidden:
        # A section in which any log of the column is hidden shows none of it.
        partly = any(section.shown[index] for section in sections)
        return "Executions that are not ok are left out" if partly else "Its figures are left out"
    if any(section.partial[index] for section in sections):
        return "The rows it has are shown without a ratio"
    return "Its figures are shown as measured"


def _transports(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    """Yield what the logs state about the network; a label proves nothing."""
    silent = [column for column in columns if not _transport_words(column)]
    if silent:
        yield _silent_words(silent)
    alike = gathered((_transport_words(column), column.label) for column in columns)
    alike.pop("", None)
    transports: list[str] = []
    for shown, labels in alike.items():
        names = ", ".join(labels)
        transports.append(f"{names} = {shown}")
    if transports:
        every = "; ".join(transports)
        yield _note("transports", transports=every)


def _silent_words(silent: Sequence[ColumnSummary]) -> str:
    """Say which logs do not show the network, and where labels take its place."""
    names = ", ".join(column.label for column in silent)
    is_one_log = len(silent) == 1 and silent[0].executions == 1
    code = "silent.one-log" if is_one_log else "silent.logs"
    if any(column.label_given for column in silent):
        code = "silent.one-labeled-log" if is_one_log else "silent.one-label"
        if len(silent) > 1:
            code = "silent.labels"
    return _note(code, names=names)


def _findings(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    """Yield what the logs show besides figures and notes, and what to do about it."""
    columns_with = gathered(
        ((finding.meaning, finding.advice), column.label)
        for column in columns
        for finding in column.findings
        if finding.severity is not Severity.NOTE
    )
    for (meaning, advice), labels in columns_with.items():
        where = ", ".join(labels)
        yield f"{where}: {meaning} {advice}".rstrip()


def _transport_words(column: ColumnSummary) -> str:
    """Write what carried a column's data, else which network was chosen; empty: neither is shown.

    Where nothing was measured, a transport was only chosen, too.
    """
    carried = [value for value in column.facts.get("transport", ()) if value != "unknown"]
    if carried:
        chosen = "" if column.measured else " (chosen)"
        return f"{_or(carried)}{chosen}{_nics_per_rank(column)}"
    networks = [value for value in column.facts.get("network", ()) if value != "unknown"]
    return f"not shown ({_or(networks)} chosen)" if networks else ""


def _nics_per_rank(column: ColumnSummary) -> str:
    nics = column.facts.get("nics", ())
    if not nics:
        return ""
    noun = "NIC" if nics == (1,) else "NICs"
    return f" ({_or(nics)} {noun} per rank)"


def _conditions(comparison: Comparison) -> str:
    """Return what is the same in every column that states it.

    Values that say nothing (`_NO_CHOICE`, such as root -1) are left out.
    """
    same = {
        name: value
        for name in FIELDS
        if (value := comparison.common(name)) not in {"", _NO_CHOICE.get(name)}
    }
    program = [same[name] for name in _PROGRAM if name in same]
    parts = list(distinct(program))
    for name, (one, several) in _COUNTED.items():
        if name in same:
            noun = one if same[name] == "1" else several
            parts.append(f"{same[name]} {noun}")
    for name, value in same.items():
        if name not in {*_PROGRAM, *_COUNTED}:
            parts.append(f"{name} {value}")
    if comparison.placement:
        parts.append(comparison.placement)
    parts += _common_facts(comparison.columns)
    code = "conditions.common" if len(comparison.columns) > 1 else "conditions"
    conditions = ", ".join(parts) or "the logs do not state their conditions"
    return _note(code, conditions=conditions)


def _common_facts(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    """Yield the facts that every column has, with one value."""
    for name in _fact_names(columns):
        stated = [column.facts.get(name, ()) for column in columns]
        values = set().union(*stated)
        if all(stated) and len(values) == 1:
            yield f"{name} {_shortened(_or(stated[0]))}"


def _fact_names(columns: Sequence[ColumnSummary]) -> list[str]:
    """Return the names of facts that are worth a note, in order of appearance."""
    names = distinct(chain.from_iterable(column.facts for column in columns))
    return [name for name in names if name not in _QUIET]


def _not_stated(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    """Yield what the logs do not state.

    One sentence for what no column states, one for each other field.
    """
    # Of tests between two processes nobody expects ranks and hosts.
    pairs = all(
        benchmark_named(name).between_two
        for column in columns
        for name in column.fields["benchmark"]
    )
    facts = set().union(*(column.facts for column in columns))
    fields = {name for column in columns for name in column.fields if column.fields[name]}
    nowhere = [name for name in _COUNTED if name not in facts | fields]
    if nowhere and not pairs:
        names = ", ".join(nowhere)
        yield _note("not-stated", names=names)
    for name in MUST_MATCH:
        stated = [(column.label, column.fields[name]) for column in columns]
        known = [(label, values) for label, values in stated if values]
        measured = [column for column in columns if any(column.fields.values())]
        missing = [column.label for column in measured if not column.fields[name]]
        if known and missing:
            without = ", ".join(missing)
            values = _by_column(known)
            yield _note("not-stated.by-some", name=name, without=without, known=values)


def _differences(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    # First the fields by which rows are paired, then facts, which only explain.
    for name in FIELDS:
        known = differing([(column.label, column.fields[name]) for column in columns])
        if known:
            code = "differs.allowed" if name in MUST_MATCH else "differs.not-paired"
            yield _note(code, name=name, values=_by_column(known))
    for name in _fact_names(columns):
        facts = differing([(column.label, _telling_values(column, name)) for column in columns])
        if facts:
            yield _note("differs", name=name, values=_by_column(facts, _shortened))


def _telling_values(column: ColumnSummary, name: str) -> tuple[str | int, ...]:
    """Return the values of a fact that say something."""
    none = _NO_CHOICE.get(name)
    values = column.facts.get(name, ())
    return tuple(value for value in values if str(value) != none)


def _by_column(
    stated: Iterable[tuple[str, Sequence[str | int]]],
    write: Callable[[str], str] = str,
) -> str:
    """Write what each column states: ``"float in A, half in B"``."""
    words = [f"{write(_or(values))} in {label}" for label, values in stated]
    return ", ".join(words)


def _repeats(comparison: Comparison) -> str:
    rows = [row for section in comparison.sections for row in section.rows]
    cells = chain.from_iterable(row.figures for row in rows)
    counts = sorted({cell.n for cell in cells if cell is not None})
    if not counts:
        return _note("repeats.none")
    code = "repeats.different" if len(counts) > 1 else "repeats.alike"
    if counts == [1]:
        code = "repeats.once"
    if any(test and test.once for row in rows for test in row.tests):
        code += ".assumed"
    return _note(code, fewest=counts[0], most=counts[-1])


def _spread(comparison: Comparison) -> Iterator[str]:
    # A sentence for each column with noisy sizes, which names the worst of them.
    for index, column in enumerate(comparison.columns):
        wide = [
            _Repeats(size, figure, section.scale)
            for section in comparison.sections
            for size, figure in section.figures(index)
        ]
        wide = [each for each in wide if each.is_noisy]
        if wide:
            worst = max(wide, key=lambda each: each.relative_spread)
            sizes = format_sizes([each.size for each in wide])
            yield _note("noisy", column=column, spread=SPREAD, sizes=sizes, worst=worst)


class _Repeats(NamedTuple):
    """The repeats of one size."""

    size: int
    figure: Figure
    scale: Scale

    @property
    def spread(self) -> float:
        return self.figure.high - self.figure.low

    @property
    def relative_spread(self) -> float:
        return self.spread / (self.figure.value or 1.0)

    @property
    def is_noisy(self) -> bool:
        rounding = self.figure.step * (1 + 1e-6)
        return self.spread > max(SPREAD * self.figure.value, rounding)

    @property
    def words(self) -> str:
        low = self.scale.text(self.figure.low)
        high = self.scale.quantity(self.figure.high)
        return f"{low} to {high} at {format_size(self.size)}"


def _missing_sizes(comparison: Comparison) -> Iterator[str]:
    # Sizes that other columns have; a column whose figures are hidden shows its outcome instead.
    for index, column in enumerate(comparison.columns):
        for metric in comparison.metrics:
            sections = (
                each for each in comparison.sections if each.shown[index] and each.metric is metric
            )
            sizes = [
                row.size
                for section in sections
                for row in section.rows
                if row.figures[index] is None
            ]
            if sizes:
                at = format_sizes(sizes)
                yield _note("sizes-missing", column=column, metric=metric, sizes=at)


def _shortened(text: str) -> str:
    return text if len(text) <= 80 else text[:79] + "…"


def _or(values: Sequence[str | int]) -> str:
    return " or ".join(map(str, values))
