"""Tables of results → logs: fabbench's own JSON and CSV, and comparisons in Markdown. No run: nothing is proven.

Whatever the form, a table becomes records: size, metric and value in base units, labels, and conditions.
"""

import csv
import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

from fabbench.benchmarks import benchmark_named
from fabbench.model.errors import MachineError
from fabbench.model.log import METRICS, Log, Outcome, Point, Proof
from fabbench.model.patterns import lazy
from fabbench.model.units import RATE_UNITS, TIME_UNITS, parse_size
from fabbench.report.log_report import LABELS

_COUNTS = ("ranks", "hosts", "gpus_per_host")
_ABOUT = ("source", "log", "run", "execution", "outcome", "benchmark", "case", *_COUNTS, "versions")  # of logs
_UNITS = {**RATE_UNITS, **TIME_UNITS, "M/s": 1e6}
_JSON = lazy(r'\s*\{\s*"(?:format":\s*1\s*,\s*"(?:logs"|metric":[^{[]*"lower_is_better")|run":)')
_CELL_END = lazy(r"(?<!\\)\|")
_SIZE = "Message Size"
_FIGURE = lazy(rf"({'|'.join(METRICS)})(?: (.+))? \(([^()]+)\)(?:, ([a-z-]+))?")
_SAME = lazy(r"(?m)^- (?:C[a-z ]+|\w+ column): (?P<benchmark>\w+), (?P<case>[\w.-]+)(?=, |\.$)(?P<more>.*)\.$")
_CONDITION = lazy(r"(?<![^ ])([a-z_]+) ([^\s,]+)(?=,|$)")
_HEADLINE = lazy(r"([\w.-]+): .* vs .* at .*")

_Rows: TypeAlias = dict[tuple[int, tuple[tuple[str, str], ...]], dict[str, float]]  # size and labels → metric → value


def is_table(text: str) -> bool:
    """Return whether a text begins like fabbench's own JSON or CSV."""
    return _JSON.match(text) is not None or {"size", "metric", "value"} <= {*text.partition("\n")[0].split(",")}


def table_logs(text: str, source: str, proof: Proof | None = None) -> list[tuple[str, Log]]:
    """Return the logs of a table, each with the name of its column; ``""`` for a column without a name.

    A text that is no table has none. Raise MachineError for a damaged one, and for Markdown with two rows of one size.
    """
    own, columns = is_table(text), dict[str, dict[tuple[str, ...], list[_Rows]]]()
    rows = csv.DictReader(text.splitlines(keepends=True))
    try:
        for record in _markdown(text) if not own else _json(text) if _JSON.match(text) else rows:
            label = record.get("column") or ":".join(filter(None, (record.get("run"), record.get("configuration"))))
            about = tuple(str(record.get(name) or "") for name in _ABOUT)
            _add(record, columns.setdefault(label, {}).setdefault(about, [{}]), once=not own)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, csv.Error) as error:
        raise MachineError(f"{source} is a table of results, and damaged: {error}.") from error
    return [
        (label, _log(about, rows, source, proof))
        for label, logs in columns.items()
        for about, tables in logs.items()
        for rows in tables
    ]


def _add(record: Mapping[str, Any], tables: list[_Rows], *, once: bool) -> None:
    """Add a figure to the last table; one that it has begins a repeat, unless a text has only one of each."""
    labels = tuple((name, str(record[name])) for name in LABELS if record.get(name) not in {None, ""})
    row, metric, value = (int(record["size"]), labels), METRICS[record["metric"]].name, record["value"]
    if isinstance(record["size"], str) and None in record.values():
        raise ValueError(f"a row of {row[0]} bytes was cut")
    if metric in tables[-1].get(row, {}):
        if once:
            raise ValueError(f"{row[0]} bytes are there twice; keep one table of them")
        tables.append({})
    if value not in {None, ""}:
        number = tables[-1].setdefault(row, {})[metric] = float(value)
        if not 0 <= number < math.inf or row[0] < 0:
            raise ValueError(f"{value} at {row[0]} bytes is no figure")


def _log(about: tuple[str, ...], rows: _Rows, source: str, proof: Proof | None) -> Log:
    known = dict(zip(_ABOUT, about, strict=True))
    bad = known["outcome"] in {*Outcome} - {Outcome.OK, Outcome.UNPROVEN}  # it is not better here
    versions = (each.partition(" ") for each in known["versions"].split(", ") if each)
    counts = {name: int(known[name]) for name in _COUNTS if known[name].isdecimal()}
    return Log(
        source=source,
        benchmark=known["benchmark"] or None,
        case=known["case"] or None,
        outcome=Outcome(known["outcome"]) if bad else Outcome.UNPROVEN,
        reason=f"From a table, nothing proven{', not even that it is ' + known['outcome'] if bad else ''}.",
        facts={**counts, **{name: version for name, _, version in versions}},
        points=[Point(size, dict(labels), (*row,), (*row.values(),)) for (size, labels), row in rows.items()],
        proof=proof,
    )


def _json(text: str) -> Iterator[Mapping[str, Any]]:
    lines = text.splitlines() if '"run"' in text[:10] else ()  # of export
    document: Any = {"rows": map(json.loads, lines)} if lines else json.loads(text)
    yield from document.get("rows", ())
    for number, log in enumerate(document.get("logs", ())):
        facts = log["facts"]
        versions = [f"{name} {facts[name]}" for name in benchmark_named(log["benchmark"]).versions if name in facts]
        about = {name: log[name] for name in ("source", "benchmark", "case", "outcome")}
        about |= {"log": str(number), "versions": ", ".join(versions), **{name: facts.get(name) for name in _COUNTS}}
        for sample in log["samples"] or [{"labels": {}, "size": 0, "metric": "time", "value": None}]:
            yield {**sample["labels"], **sample, **about}


def _markdown(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the figures of tables with the headers of a comparison, such as those that fabbench publishes."""
    same, header, section = list(_SAME.finditer(text)), list[str](), dict[str, str]()
    shared = {**same[0].groupdict(), **dict(_CONDITION.findall(same[0]["more"]))} if len(same) == 1 else {}
    for line in map(str.strip, text.splitlines()):
        if not line.startswith("|"):
            header = header if line else []
            if (match := _HEADLINE.fullmatch(line)) is not None:
                section |= {"case": match[1]}
            elif line.startswith("### "):
                section = dict(_CONDITION.findall(line[4:]))
            continue
        cells = [cell.strip().replace("\\", "") for cell in _CELL_END.split(line[1:].removesuffix("|"))]
        if _SIZE in header and (len(cells) != len(header) or line[-1] != "|"):
            raise ValueError(f"a row was cut: {line}")
        row = dict(zip(header, cells, strict=False))
        header = header or cells
        for name, cell in row.items() if row.get(_SIZE, "")[:1].isdecimal() else ():
            if (match := _FIGURE.fullmatch(name)) is not None:
                metric, label, unit, mark = match.groups()
                value = float(cell) * _UNITS[unit] if cell[:1].isdecimal() and " " not in cell else None
                figure = {"column": label, "outcome": mark, "metric": metric, "value": value}
                device = row.get("Device", "").strip("-")
                yield {**shared, **section, **figure, "size": parse_size(row[_SIZE]), "device": device}
