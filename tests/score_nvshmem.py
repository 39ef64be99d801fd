"""What INDEX.tsv says of NVSHMEM's logs, in the terms of the public contract. See score.py."""

import re
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
Told: TypeAlias = tuple[str, object, object]
"""A fact's name, what INDEX.tsv says, and what was read."""

NOT_IN_CONTRACT = frozenset({"prefix", "note", "avg", "algbw", "pes_printed"})
"""`avg` depends on the sweep, `algbw` is said to be meaningless, and `pes_printed` is null in every entry."""


def concerns(name: str) -> bool:
    """Tell whether a file is NVSHMEM's."""
    return "nvshmem" in name


def facts(told: Json, logs: list[Json]) -> Iterator[Told]:
    """Compare every fact of one file."""
    found = [table for log in logs for table in tables(log, three=is_three(told))]
    expected = told.get("tables") or told["perf"]
    yield "tables", len(expected), len(found)
    for table, rows in zip(expected, found, strict=False):
        yield from table_facts(table, rows, told.get("unit") or table.get("unit"))
    yield "outcome", {told["outcome"]}, {log["outcome"] for log in logs}
    for key, expected_value in told.items():
        if key in {"pes", "pes_from_ratio"}:
            yield key, expected_value, logs[0]["facts"].get("ranks")
        elif key == "incomplete_rows":
            yield key, expected_value, sum(len(log["damaged"]) for log in logs)
        elif key == "unit":
            yield key, expected_value, logs[0]["facts"].get("unit")
        elif key == "sizes_without_traffic":
            below = int(expected_value.removeprefix("below "))
            (finding,) = [one for one in logs[0]["findings"] if one["code"] == "moves-nothing"]
            yield key, True, finding["meaning"].startswith(f"Below {below} B ")
        elif key not in {"tables", "perf", "outcome"} | NOT_IN_CONTRACT:
            yield key, expected_value, "not mapped"


def is_three(told: Json) -> bool:
    """Tell the tables of 1.x, with a latency for each of three scopes in a row."""
    return any("operand" in (table.get("title") or "") for table in told.get("tables", ()))


def tables(log: Json, *, three: bool) -> list[list[Json]]:
    """Split a log's samples by what tells tables apart."""
    found: dict[tuple[str | None, ...], list[Json]] = {}
    for sample in log["samples"]:
        if "stat" not in sample["labels"]:
            names = ("dtype", "redop") if three else ("dtype", "redop", "scope")
            key = tuple(sample["labels"].get(name) for name in names)
            found.setdefault(key, []).append({**sample, "unit_read": log["facts"].get("unit")})
    return list(found.values())


def table_facts(expected: Json, rows: list[Json], unit: str | None) -> Iterator[Told]:
    """Compare one table."""
    labels, sizes = rows[-1]["labels"], list(dict.fromkeys(row["size"] for row in rows))
    title = expected.get("title") or expected.get("job")
    yield "title", *titled(title, rows[-1])
    for key, value in expected.items():
        if key == "rows":
            yield key, value, len(sizes)
        elif key == "first_size":
            yield key, value, sizes[0]
        elif key == "last_size":
            yield key, value, sizes[-1]
        elif key == "sub":
            words = [labels.get(name) for name in ("dtype", "scope") if name in labels]
            yield key, value, "-".join(map(str, words)) or "None"
        elif key in {"last_row", "last"}:
            yield key, *last_row(value, rows, unit)
        elif key == "bandwidth":
            yield key, *last_row([str(sizes[-1]), value], rows, unit)
        elif key == "unit":
            yield key, value, rows[-1]["unit_read"]
        elif key not in {"title", "job"} | NOT_IN_CONTRACT:
            yield key, value, "not mapped"


def titled(title: str | None, row: Json) -> tuple[object, object]:
    """Compare a title with the case, or with the labels that it tells."""
    if title is None or re.fullmatch(r"[\d.]+", title):
        return None, row["case"]
    if match := re.fullmatch(r"(\S+) operand", title):
        return match[1], row["labels"]["dtype"]
    if match := re.fullmatch(r"Put with (\w+)", title):
        return ("shmem_put_bw", match[1]), (row["case"], row["labels"]["scope"])
    if match := re.fullmatch(r"(\w+)_(uni|bi)(?:di)?", title):
        return match.groups(), (row["case"], row["labels"]["direction"])
    return title.replace("_device", "_latency"), row["case"]


def last_row(cells: list[str], rows: list[Json], unit: str | None) -> tuple[object, object]:
    """Compare the figures of the last row with the cells that were printed, as strings."""
    size, *rest = (cell for cell in cells if re.fullmatch(r"[\d.]+", cell))
    last = [row for row in rows if row["size"] == rows[-1]["size"]]
    found = [row["value"] for row in last]
    names = [row["metric"] for row in last]
    if names == ["latency", "algbw", "busbw"]:
        # Between size and latency stands the count; behind it may stand the smallest and the largest latency.
        first = next(index for index, cell in enumerate(rest) if re.fullmatch(r"\d+\.\d{6}", cell))
        rest = [rest[first], *rest[-2:]]
    scale = {"latency": Decimal("1e-6"), "algbw": Decimal(10**9), "busbw": Decimal(10**9)}
    scale["bandwidth"] = Decimal(2**30 if unit == "GiB/s" else 10**9)
    wanted = [float(Decimal(cell) * scale[name]) for cell, name in zip(rest, names, strict=True)]
    return (int(size), wanted), (rows[-1]["size"], found)
