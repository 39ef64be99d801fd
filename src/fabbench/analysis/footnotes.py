"""The notes below a comparison's table: everything that its reader must know. Pure.

A figure comes with its benchmark, dtype, ranks, hosts, versions and placement. Notes also name what
the logs do not state, and everything in which the columns differ.
"""

from collections.abc import Iterator, Sequence

from fabbench.analysis.aggregate import FIELDS, MUST_MATCH, RAIL
from fabbench.analysis.compare import ColumnSummary, Comparison, differing
from fabbench.analysis.outliers import irregularities
from fabbench.benchmarks import benchmark_named
from fabbench.model.log import Outcome, Severity
from fabbench.model.messages import counted
from fabbench.model.units import format_size, format_sizes

SPREAD = 0.1
"""Repeats that differ by more than this fraction of their median are noted."""

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


def footnotes(comparison: Comparison) -> tuple[str, ...]:
    """Return everything that a reader of the table must know, most important first."""
    columns = comparison.columns
    return (
        *_variants(columns),
        *_outcomes(comparison),
        *_transports(columns),
        *_findings(columns),
        _conditions(comparison),
        *_unknown(columns),
        *_differences(columns),
        _repeats(comparison),
        *(
            f"{column.label}: {column.copies} of "
            f"{counted(column.copies + column.executions, 'table')} are copies "
            "of another, and were counted once."
            for column in columns
            if column.copies
        ),
        *_spread(comparison),
        *irregularities(comparison),
        *_gaps(comparison),
        *(
            (
                f"{counted(column.empty, 'row')} of size 0 in {column.label} left out: they "
                "carry no "
                "data."
            )
            for column in columns
            if column.empty
        ),
        f"Sources: {'; '.join(f'{column.label} from {column.source}' for column in columns)}.",
    )


def versions_of(column: ColumnSummary) -> tuple[str, ...]:
    """Return the facts of a column that are versions, in the order in which they are written."""
    benchmarks = column.fields["benchmark"] or ("",)
    names = (name for benchmark in benchmarks for name in benchmark_named(benchmark).versions)
    return tuple(name for name in dict.fromkeys(names) if name in column.facts)


def _variants(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    """Yield what the variants are, and which logs do not show that they loaded different libraries."""
    known = [(column, column.variant) for column in columns if column.variant is not None]
    if known:
        variants = "; ".join(f"{column.label} is {variant}" for column, variant in known)
        yield f"The columns are variants: {variants}."
    for number, (column, variant) in enumerate(known):
        for other, other_variant in known[number + 1 :]:
            versions = [name for name in versions_of(column) if name in other.facts]
            same = all(column.facts[name] == other.facts[name] for name in versions)
            if versions and same and variant.paths != other_variant.paths:
                stated = ", ".join(f"{name} {_or(column.facts[name])}" for name in versions)
                yield (
                    f"{column.label} and {other.label} use different directories, but their logs "
                    "state the "
                    f"same versions ({stated}), which does not show that different libraries "
                    "were loaded."
                )


def _outcomes(comparison: Comparison) -> Iterator[str]:
    for index, column in enumerate(comparison.columns):
        if column.outcome is Outcome.OK:
            continue
        cut = any(section.partial[index] for section in comparison.sections)
        effect = (
            "The rows it has are shown without a ratio"
            if cut
            else "Its figures are shown as measured"
        )
        if column.hidden:
            partly = any(section.shown[index] for section in comparison.sections)
            effect = (
                "Executions that are not ok are left out" if partly else "Its figures are left out"
            )
        many = (
            f" ({len(column.reasons)} of {column.executions} executions)"
            if column.executions > 1
            else ""
        )
        yield f"{column.label} is not ok{many}. {effect}. {' '.join(column.reasons)}"


def _transports(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    """Yield what the logs state about the network; a label proves nothing."""
    silent = [column for column in columns if _transport(column) == ""]
    if silent:
        names = ", ".join(column.label for column in silent)
        given = any(column.label_given for column in silent)
        logs = "logs" if len(silent) > 1 or silent[0].executions > 1 else "log"
        labels = "are labels" if len(silent) > 1 else "is a label"
        yield (
            f"The {logs}{'' if given else f' of {names}'} {'do' if logs == 'logs' else 'does'} "
            "not state which network "
            "carried the data (transport "
            f"unknown){f': {names} {labels} given by the user' if given else ''}."
        )
    transports = [
        f"{column.label} = {_transport(column)}" for column in columns if _transport(column)
    ]
    if transports:
        yield f"Transport per the logs: {'; '.join(transports)}."


def _findings(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    """Yield what the logs show besides figures, where it is more than a note, and what to do about it."""
    columns_with: dict[tuple[str, str], list[str]] = {}
    for column in columns:
        for found in column.findings:
            if found.severity is not Severity.NOTE:
                columns_with.setdefault((found.meaning, found.advice), []).append(column.label)
    for (meaning, advice), labels in columns_with.items():
        yield f"{', '.join(labels)}: {meaning} {advice}".rstrip()


def _transport(column: ColumnSummary) -> str:
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
    """Return what is the same in every column that states it."""
    same = {
        name: value
        for name in FIELDS
        if (value := comparison.common(name)) not in {"", _NO_CHOICE.get(name)}
    }
    parts = list(dict.fromkeys(same[name] for name in ("benchmark", "case") if name in same))
    for name, (one, several) in _COUNTED.items():
        if name in same:
            noun = one if same[name] == "1" else several
            parts.append(f"{same[name]} {noun}")
    others = (name for name in same if name not in {"benchmark", "case", *_COUNTED})
    parts += [*(f"{name} {same[name]}" for name in others), *filter(None, [comparison.placement])]
    for name in dict.fromkeys(name for column in comparison.columns for name in column.facts):
        values = {value for column in comparison.columns for value in column.facts.get(name, ())}
        if (
            name not in _QUIET
            and len(values) == 1
            and all(name in column.facts for column in comparison.columns)
        ):
            parts.append(f"{name} {_cut(str(values.pop()))}")
    every = "Common to all columns" if len(comparison.columns) > 1 else "Conditions"
    return f"{every}: {', '.join(parts) or 'the logs do not state their conditions'}."


def _unknown(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    """Yield what the logs do not state.

    One sentence for what no column states, one for each other field.
    """
    pairs = all(
        benchmark_named(name).between_two
        for column in columns
        for name in column.fields["benchmark"]
    )
    nowhere = [
        name
        for name in _COUNTED
        if not any(each.fields[name] or name in each.facts for each in columns)
    ]
    if nowhere and not pairs:
        yield f"Not stated by the logs: {', '.join(nowhere)}."
    for name in MUST_MATCH:
        known = [column for column in columns if column.fields[name]]
        missing = [
            column.label
            for column in columns
            if not column.fields[name] and any(column.fields.values())
        ]
        if known and missing:
            stated = ", ".join(f"{_or(column.fields[name])} in {column.label}" for column in known)
            yield (
                f"{name} is not stated by {', '.join(missing)} ({stated}), so it could not be "
                "compared."
            )


def _differences(columns: Sequence[ColumnSummary]) -> Iterator[str]:
    for name in FIELDS:
        if known := differing((column.label, column.fields[name]) for column in columns):
            effect = " (allowed)" if name in MUST_MATCH else "; such rows are not paired"
            yield (
                f"{name} differs{effect}: "
                f"{', '.join(f'{_or(values)} in {label}' for label, values in known)}."
            )
    for name in dict.fromkeys(
        name for column in columns for name in column.facts if name not in _QUIET
    ):
        none = _NO_CHOICE.get(name)
        stated = (
            (each, (value for value in each.facts.get(name, ()) if str(value) != none))
            for each in columns
        )
        if facts := differing((each.label, tuple(values)) for each, values in stated):
            yield (
                f"{name} differs: "
                f"{', '.join(f'{_cut(_or(values))} in {label}' for label, values in facts)}."
            )


def _repeats(comparison: Comparison) -> str:
    rows = [row for section in comparison.sections for row in section.rows]
    counts = sorted({cell.n for row in rows for cell in row.figures if cell is not None})
    if not counts:
        return "No figures to show."
    once = any(test and test.once for row in rows for test in row.tests)
    noise = "intervals assume the noise of recorded repeats; repeat both sides to measure it"
    if counts == [1]:
        return f"Measured once (n = 1){f': {noise}' if once else ''}."
    many = " to ".join(dict.fromkeys(map(str, (counts[0], counts[-1]))))
    what = f"{many} repeats" if len(counts) == 1 else "its repeats"
    doubt = f"; where a side was measured once, {noise}" if once else ""
    return f"Each figure is the median of {what} (n = {many}){doubt}."


def _spread(comparison: Comparison) -> Iterator[str]:
    for index, column in enumerate(comparison.columns):
        wide = [
            (row.size, cell, section.scale)
            for section in comparison.sections
            for row in section.rows
            if (cell := row.figures[index]) is not None
            and cell.high - cell.low > max(SPREAD * cell.value, cell.step * (1 + 1e-6))
        ]
        if wide:
            size, cell, scale = max(
                wide, key=lambda each: (each[1].high - each[1].low) / (each[1].value or 1.0)
            )
            yield (
                f"{column.label} is noisy: repeats differ by more than {SPREAD:.0%} at "
                f"{format_sizes([each for each, *_ in wide])} (worst "
                f"{scale.text(cell.low)} to {scale.quantity(cell.high)} at {format_size(size)})."
            )


def _gaps(comparison: Comparison) -> Iterator[str]:
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
                yield f"{column.label} has no {metric.name} at {format_sizes(sizes)}."


def _cut(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def _or(values: Sequence[str | int]) -> str:
    return " or ".join(map(str, values))
