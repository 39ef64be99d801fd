"""What INDEX.tsv says of perftest's logs, in the terms of the public contract. See score.py."""

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, TypeAlias

Json: TypeAlias = dict[str, Any]
Told: TypeAlias = tuple[str, object, object]
"""A fact's name, what INDEX.tsv says, and what was read."""

FACTOR = {
    "MB/sec": Decimal(1 << 20),
    "MiB/sec": Decimal(1 << 20),
    "MB/sec (MiB)": Decimal(1 << 20),
    "Gb/sec": Decimal(125_000_000),
}
LATENCY = ("min", "max", "median", None, "stdev", "p99", "p99.9")

NOT_IN_CONTRACT = frozenset({"prefix", "note", "row_tokens", "unit"})
"""`row_tokens` are said again in `true_values`, and `unit` in the values of the rows."""


def concerns(name: str, told: Json) -> bool:
    """Tell whether a file is perftest's, or a summary line of its figures."""
    return name.startswith("perftest/") or "mean_bw_peak_Gbps" in told or "total_bw_GBps" in told or (
        name.startswith("seeds/") and told.get("unit") == ["usec"]
    )  # fmt: skip


def facts(told: Json, logs: list[Json]) -> Iterator[Told]:
    """Compare every fact of one file."""
    units = told.get("unit", "")
    units = units if isinstance(units, list) else [units]
    for key, expected in told.items():
        if key in NOT_IN_CONTRACT:
            continue
        if key in {"first_row", "last_row", "row"}:
            unit = units[0] if key != "last_row" else units[-1]
            log = logs[0] if key != "last_row" else [log for log in logs if log["samples"]][-1]
            yield key, *row(list(map(str, expected)), unit, log, last=key == "last_row")
        else:
            yield key, *simple(key, expected, logs)


def simple(key: str, expected: Any, logs: list[Json]) -> tuple[object, object]:
    """Compare a fact that is not a row of the table."""
    samples = [sample for log in logs for sample in log["samples"]]
    if key in {"mean_bw_peak_Gbps", "mean_bw_avg_Gbps", "total_bw_GBps"}:
        factor = FACTOR["Gb/sec"] if key.endswith("Gbps") else Decimal(10**9)
        stat = "peak" if "peak" in key else None
        return [scaled(expected, factor)], [s["value"] for s in samples if s["labels"].get("stat") == stat]
    if key == "results":
        names = ("MsgSize", "n_iterations", "BW_peak", "BW_average", "MsgRate")
        return row([str(expected[name]) for name in names], "MiB/sec", logs[0], last=False)
    if key == "true_values":
        return latencies(list(expected.values()), figures=samples)
    if key == "outcome" and "second run" in expected:
        return ["ok", "truncated"], [log["outcome"] for log in logs]
    mains = [s for s in samples if "stat" not in s["labels"] and s["metric"] in {"bandwidth", "latency"}]
    found: dict[str, object] = {
        "rows": len(mains),
        "incomplete_rows": sum(len(log["damaged"]) for log in logs),
        "peak_measured": any(sample["labels"].get("stat") == "peak" for sample in samples),
        "bidirectional_sum": {sample["labels"].get("direction") for sample in samples} == {"bi"},
        "outcome": worst(logs),
        "rank": ",".join({sample["labels"].get("rank", "") for sample in samples}),
    }
    wanted = {"outcome": str(expected).partition(" ")[0], "rank": str(expected)}
    return wanted.get(key, expected), found[key] if key in found else logs[0]["facts"].get(key)


def worst(logs: list[Json]) -> str:
    """Give the outcome of a file: `ok` only if all its logs are."""
    return next((log["outcome"] for log in logs if log["outcome"] != "ok"), "ok")


def row(tokens: list[str], unit: str, log: Json, *, last: bool) -> tuple[object, object]:
    """Compare a row, column by column, with the samples of its size."""
    size = int(tokens[0])
    of_size = [sample for sample in log["samples"] if sample["size"] == size]
    if unit == "usec":
        return latencies(tokens[2:], figures=one_row(of_size, "latency", last=last))
    if unit.startswith("usec"):
        expected = [scaled(tokens[2], Decimal("1e-6")), scaled(tokens[3], Decimal(1))]
        return expected, [sample["value"] for sample in of_size]
    peak, average, rate = tokens[2:]
    factor = FACTOR[unit]
    wanted = {
        ("bandwidth", "peak"): scaled(peak, factor),
        ("bandwidth", None): scaled(average, factor),
        ("message_rate", None): scaled(rate, Decimal(1_000_000)),
    }
    # Of several rows of one size, the first or the last.
    order = of_size if last else reversed(of_size)
    found = {(sample["metric"], sample["labels"].get("stat")): sample["value"] for sample in order}
    return {key: value for key, value in wanted.items() if value is not None}, found


def one_row(samples: list[Json], metric: str, *, last: bool) -> list[Json]:
    """Give the samples of the first or last row of several of one size: the ranks print one each."""
    ranks = list(dict.fromkeys(sample["labels"].get("rank") for sample in samples))
    rank = ranks[-1 if last else 0]
    return [s for s in samples if s["metric"] == metric and s["labels"].get("rank") == rank]


def latencies(tokens: list[str], *, figures: list[Json]) -> tuple[object, object]:
    """Compare the seven times of a row."""
    wanted = {stat: scaled(token, Decimal("1e-6")) for stat, token in zip(LATENCY, tokens, strict=True)}
    found = {sample["labels"].get("stat"): sample["value"] for sample in figures}
    return {stat: value for stat, value in wanted.items() if value is not None}, found


def scaled(token: str, factor: Decimal) -> float | None:
    """Give a number in base units; None for zero, which means: not measured, or nothing left of it."""
    return float(Decimal(token) * factor) if Decimal(token) else None
