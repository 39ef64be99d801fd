"""Score the parser against a folder of published logs: ``python tests/score.py FOLDER``.

FOLDER/INDEX.tsv names the files and says, as JSON, what a reader sees in each. Its facts are mapped to the
public contract (`fabbench parse --format json`) and compared. Printed: every mismatch, every difference that
is meant, and `n of m` facts. The exit status is 0 if nothing is amiss.
"""

import csv
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import score_nvshmem
import score_perftest

Json: TypeAlias = dict[str, Any]

FOLDERS = ("nccl-tests/", "nccl-debug/", "libfabric/", "torch/", "seeds/")

# Facts that the contract has no field for; what depends on them is scored through other facts.
NOT_IN_CONTRACT = frozenset(
    {
        "count_at_max", "header_seen", "failure_lines", "failure_chain_lines", "prefix", "note", "trap",
        "ranks_from_prose", "busbw_formula", "coll_channels", "protocol_source", "platform", "plugin_path",
        "ib", "order", "time_unit", "ranks_per_copy", "avg_busbw_printed", "footers",
    }
)  # fmt: skip

NO_MPI = (
    "copies of a program without MPI are a mistake in how it was started: `failed`, and the reason says so"
)
MEANT = {
    ("nccl-tests/issue107-two-nonmpi-copies-head.txt", "outcome"): NO_MPI,
    ("nccl-tests/issue182-two-nonmpi-copies.txt", "outcome"): NO_MPI,
    ("nccl-tests/dgx2-old-all_gather-failed.txt", "sizes_with_wrong"): (
        "this layout prints a relative error and no count: the contract has no field for it"
    ),
    ("nccl-debug/issue244-ib.txt", "plugin_missing"): (
        "the finding plugin-missing is for a fall-back to sockets; InfiniBand needs no plugin"
    ),
    ("nccl-debug/jeanzay-ib-failed-socket.txt", "gdr"): (
        "no channel is in the excerpt, so nothing shows what was sent directly"
    ),
}


class Fact(NamedTuple):
    """One thing that INDEX.tsv says, in the contract's terms, and what was read."""

    name: str
    expected: object
    found: object


def parsed(path: Path) -> Json:
    """Read a file by the public command."""
    done = subprocess.run(
        [sys.executable, "-m", "fabbench", "parse", "--format", "json", str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    document: Json = json.loads(done.stdout)
    return document


def main(folder: Path) -> int:
    """Print the score of a folder."""
    counts: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    with (folder / "INDEX.tsv").open(newline="") as index:
        entries = [entry for entry in csv.DictReader(index, delimiter="\t") if concerns(entry)]
    for entry in entries:
        name, told = entry["file"], json.loads(entry["facts"])
        for fact in facts(name, told, parsed(folder / name)["logs"], left_out):
            meant = MEANT.get((name, fact.name))
            if fact.expected == fact.found:
                counts["right"] += 1
            elif meant is not None:
                counts["meant"] += 1
                print(f"meant     {name}: {fact.name}: {fact.found!r}, not {fact.expected!r}: {meant}")
            else:
                counts["wrong"] += 1
                print(f"MISMATCH  {name}: {fact.name}: {fact.found!r}, not {fact.expected!r}")
    if left_out:
        print("not in the contract:", ", ".join(f"{key} ({n})" for key, n in sorted(left_out.items())))
    total = counts["right"] + counts["wrong"]
    print(f"{counts['right']} of {total} facts of {len(entries)} files; {counts['meant']} differ on purpose")
    return 1 if counts["wrong"] or not total else 0


def concerns(entry: Json) -> bool:
    """Tell whether a file is of a benchmark whose facts are mapped here, or of NCCL's debug text."""
    name, told = entry["file"], json.loads(entry["facts"])
    if score_nvshmem.concerns(name) or score_perftest.concerns(name, told):
        return True
    if not name.startswith(FOLDERS):
        return False
    if name.startswith("nccl"):
        return True
    if "record" in told or "results" in told:
        return True
    tables = told.get("tables")
    if tables == []:
        return "pingpong" in entry["special"] or "connect" in name
    return bool(tables) and all({"#ack", "iters"} & set(table.get("columns", "").split()) for table in tables)


def facts(name: str, told: Json, logs: list[Json], left_out: Counter[str]) -> Iterator[Fact]:
    """Map what is told of one file to the contract."""
    if score_nvshmem.concerns(name):
        yield from (Fact(*fact) for fact in score_nvshmem.facts(told, logs))
    elif score_perftest.concerns(name, told):
        yield from (Fact(*fact) for fact in score_perftest.facts(told, logs))
        left_out.update(key for key in told if key in score_perftest.NOT_IN_CONTRACT - NOT_IN_CONTRACT)
    elif "results" in told:
        yield from torch_facts(told, logs)
    elif "record" in told:
        yield from machine_facts(told, logs)
    elif any("iters" in table["columns"] for table in told.get("tables", ())):
        yield from fabtests_facts(told, logs)
    elif "tables" in told:
        yield from pingpong_facts(told, logs)
    elif "runs" in told:
        yield from nccl_facts(told, logs, left_out)
    else:
        (log,) = logs
        yield from debug_facts(told, log, left_out)
    left_out.update(key for key in told if key in NOT_IN_CONTRACT)


# ---------------------------------------------------------------- nccl-tests


def nccl_facts(told: Json, logs: list[Json], left_out: Counter[str]) -> Iterator[Fact]:
    """Compare the runs of a file. Runs without a row that are cut behind a whole one are not told."""
    runs = told["runs"]
    yield Fact("runs", len(runs), len([log for log in logs if log["samples"] or log is logs[0]]))
    for run, log in zip(runs, logs, strict=False):
        known = dict(run)
        for key in NOT_IN_CONTRACT & set(run):
            left_out[key] += 1
            del known[key]
        yield from run_facts(known, log)
        carrier = told.get("transport")
        if isinstance(carrier, dict):
            yield from debug_facts(carrier, log, left_out)
        elif carrier is not None:
            yield Fact("network", None, log["facts"].get("network"))
    codes = {finding["code"] for finding in logs[0]["findings"]}
    if "excerpt_mean_mismatch" in told:
        yield Fact("excerpt_mean_mismatch", told["excerpt_mean_mismatch"], "average-mismatch" in codes)
    if "wrong" in told:
        sizes = {int(size): found for size, found in told["wrong"].items()}
        yield Fact("wrong", sizes, {size: figures(logs[0], "wrong", size) for size in sizes})
    if "rows_with_wrong" in told:
        yield Fact("rows_with_wrong", told["rows_with_wrong"], len(sizes_with_wrong(logs[0])))


def run_facts(run: Json, log: Json) -> Iterator[Fact]:
    """Compare one run."""
    rows = [sample for sample in samples(log, "time") if sample["labels"]["placement"] == "out-of-place"]
    sizes = [row["size"] for row in rows]
    facts = log["facts"]
    simple: dict[str, object] = {
        "rows": len(rows),
        "rows_total": len(rows),
        "types": list(dict.fromkeys(row["labels"]["dtype"] for row in rows)),
        "size_zero_rows": sizes.count(0),
        "max_size": max(sizes, default=None),
        "highest_rank": facts.get("ranks", 0) - 1,
        "program": log["case"],
        "nccl_tests_version": facts.get("nccl_tests"),
        "sizes_with_wrong": sizes_with_wrong(log),
        "incomplete_rows": len(log["damaged"]),
        "between_type_and_time": between(rows),
        "rows_max": sum(1 for row in rows if row["labels"].get("redop") == "max"),
        "rows_min": sum(1 for row in rows if row["labels"].get("redop") == "min"),
        "copies": 2 if "without MPI" in (log["reason"] or "") else 1,
    }
    for key, expected in run.items():
        if key in simple:
            yield Fact(key, without_suffix(expected), simple[key])
        elif key.startswith(("oop_", "ip_")):
            yield from at_largest(key, expected, run, log)
        else:
            yield from odd_fact(key, expected, run, log)


def odd_fact(key: str, expected: Any, run: Json, log: Json) -> Iterator[Fact]:
    """Compare a fact that is not simply a value of the contract."""
    facts = log["facts"]
    if key == "ranks_listed":
        yield Fact("ranks", run.get("highest_rank", expected - 1) + 1, facts.get("ranks"))
    elif key == "hosts_listed":
        # With some ranks of an excerpt not listed, the number of hosts is not known.
        listed = run["ranks_listed"] == run.get("highest_rank", run["ranks_listed"] - 1) + 1
        yield Fact("hosts", expected if listed else None, facts.get("hosts"))
    elif key == "out_of_bounds":
        wrong = "FAILED" in str(expected)
        yield Fact("out_of_bounds", wrong, log["outcome"] == "corrupt")
    elif key == "outcome":
        bad = run.get("sizes_with_wrong") or "FAILED" in str(run.get("out_of_bounds"))
        yield Fact("outcome", "corrupt" if bad else expected, log["outcome"])
    elif key == "failure_first":
        if log["outcome"] == "corrupt":
            yield Fact("failure_first", True, "wrong data" in log["reason"])
        else:
            yield Fact("failure_first", True, expected in log["reason"])
    elif key == "hosts":
        yield Fact("copies", True, "without MPI" in log["reason"])
    else:
        yield Fact(key, expected, "not mapped")


def at_largest(key: str, expected: str, run: Json, log: Json) -> Iterator[Fact]:
    """Compare a figure at the largest size."""
    side, metric, _ = key.split("_", 2)
    placement = "out-of-place" if side == "oop" else "in-place"
    found = [
        sample["value"]
        for sample in samples(log, metric)
        if sample["labels"]["placement"] == placement and sample["size"] == run["max_size"]
    ]
    if metric == "wrong" and (expected == "N/A" or relative_error(run)):
        yield Fact(key, [], found)
        return
    exponent = {"time": -6, "algbw": 9, "busbw": 9, "wrong": 0}[metric]
    if metric == "time" and v1_layout(log):
        exponent = -3
    yield Fact(key, float(Decimal(expected).scaleb(exponent)), found[-1] if found else None)


def relative_error(run: Json) -> bool:
    """Tell the `error` column of before 2.13, which counts nothing, from `#wrong`."""
    cells = [str(run.get(f"{side}_wrong_at_max")) for side in ("oop", "ip")]
    return any(len(cell) == 5 and cell[1:3] in {"e-", "e+"} for cell in cells)


def v1_layout(log: Json) -> bool:
    """Tell the layout of v1, in milliseconds: its algbw only fits so."""
    sample = samples(log, "algbw")[-1]
    time = figures(log, "time", sample["size"])[-1]
    return bool(
        sample["value"] and 0.5 < sample["size"] / time / sample["value"] < 2 and "v1" in log["source"]
    )


def between(rows: list[Json]) -> list[str]:
    """Give the cells between type and time, each kind once."""
    kinds = (
        " ".join(row["labels"][name] for name in ("redop", "root") if name in row["labels"]) for row in rows
    )
    return list(dict.fromkeys(kinds))


def without_suffix(expected: object) -> object:
    """Give a program's name as the contract has it."""
    if isinstance(expected, str):
        return expected.removesuffix("_mpi").removesuffix("_perf")
    return expected


def samples(log: Json, metric: str) -> list[Json]:
    """Give the samples of a metric, as they were printed."""
    return [
        sample for sample in log["samples"] if sample["metric"] == metric and "stat" not in sample["labels"]
    ]


def figures(log: Json, metric: str, size: int) -> list[float]:
    """Give the figures at one size."""
    return [sample["value"] for sample in samples(log, metric) if sample["size"] == size]


def sizes_with_wrong(log: Json) -> list[int]:
    """Give the sizes where the benchmark counted wrong elements, or the older one said that all are wrong."""
    counted = {sample["size"] for sample in samples(log, "wrong") if sample["value"]}
    return sorted(counted)


# ---------------------------------------------------------------- NCCL's debug text


def debug_facts(told: Json, log: Json, left_out: Counter[str]) -> Iterator[Fact]:
    """Compare what the debug lines state."""
    facts = log["facts"]
    codes = {finding["code"] for finding in log["findings"]}
    names = {"nNodes": "nodes", "nRanks": "ranks", "nranks_debug": "ranks"}
    for key, expected in told.items():
        if key in NOT_IN_CONTRACT:
            left_out[key] += key != "prefix"
        elif key == "network":
            yield Fact(key, network(expected, told), facts.get("network"))
        elif key == "nccl":
            nccl, _, cuda = expected.partition("+cuda")
            yield Fact("nccl", (nccl, cuda), (facts.get("nccl"), facts.get("cuda")))
        elif key == "gdr":
            yield Fact("gdr", "yes" if expected else "no", facts.get("gdr"))
        elif key in {"interface", "interfaces"}:
            wanted = "+".join(expected) if isinstance(expected, list) else expected
            yield Fact("interface", wanted, facts.get("interface"))
        elif key == "plugin_missing":
            yield Fact(key, expected, "plugin-missing" in codes)
        elif key == "ib_failed":
            yield Fact(key, expected, facts.get("network") != "ib")
        elif key == "outcome":
            yield Fact(key, expected, log["outcome"])
        else:
            yield Fact(key, expected, facts.get(names.get(key, key)))


def network(expected: str | None, told: Json) -> str | None:
    """Give a printed network name as the contract has it."""
    if expected is None:
        return None
    name = expected.split()[-1] if expected.endswith("Libfabric") else expected.split()[0]
    if name == "Libfabric":
        return "efa" if told["provider"] == "efa" else f"libfabric-{told['provider']}"
    return "ib" if name.startswith("IB") else name.lower()


# ---------------------------------------------------------------- fi_pingpong


def pingpong_facts(told: Json, logs: list[Json]) -> Iterator[Fact]:
    """Compare the tables of a file; client and server of a pair are one log."""
    tables = [table for log in logs for table in sides(log)]
    damaged = sum(len(log["damaged"]) for log in logs)
    yield Fact("tables", len(told["tables"]), len(tables))
    yield Fact("cut_rows", sum(table["cut_rows"] for table in told["tables"]), damaged)
    outcomes = [log["outcome"] for log in logs]
    wanted = ["ok", "ok", "failed"] if told["outcome"].startswith("mixed: two ok") else [told["outcome"]]
    yield Fact("outcome", wanted, outcomes)
    if "error" in told:
        words = told["error"].replace("() ret", "(),ret").split(",")
        yield Fact("error", True, all(word in logs[-1]["reason"] for word in words))
    for expected in told["tables"]:
        yield from table_facts(expected, tables)


def table_facts(expected: Json, tables: list[list[Json]]) -> Iterator[Fact]:
    """Compare one table with the one that ends in its last row."""
    size, *_, bandwidth, latency, rate = expected["last_row"]
    number = size_of(size)
    last = {
        "latency": float(Decimal(latency).scaleb(-6)),
        "bandwidth": float(Decimal(bandwidth).scaleb(6)),
        "message_rate": float(Decimal(rate).scaleb(6)) if Decimal(rate) else None,
    }
    found = [table for table in tables if {metric: one(table, metric, number) for metric in last} == last]
    yield Fact(f"last row {latency}", 1, len(found))
    for table in found[:1]:
        yield Fact("rows", expected["rows"], len([row for row in table if row["metric"] == "latency"]))
        yield Fact("largest size", number, max(row["size"] for row in table))


def sides(log: Json) -> list[list[Json]]:
    """Split a pair's samples into the tables of its sides."""
    tables: dict[str, list[Json]] = {}
    for sample in log["samples"]:
        tables.setdefault(sample["labels"].get("side", ""), []).append(sample)
    return list(tables.values())


def one(table: list[Json], metric: str, size: int) -> float | None:
    """Give the figure of one row."""
    values = [row["value"] for row in table if row["metric"] == metric and row["size"] == size]
    return values[-1] if values else None


# ---------------------------------------------------------------- the fabtests, torch


def fabtests_facts(told: Json, logs: list[Json]) -> Iterator[Fact]:
    """Compare the table of a fabtest with the one log."""
    (log,), (table,) = logs, told["tables"]
    yield Fact("benchmark", "fabtests", log["benchmark"])
    yield Fact("outcome", told["outcome"], log["outcome"])
    yield Fact("cut_rows", table["cut_rows"], len(log["damaged"]))
    yield Fact("rows", table["rows"], len(samples(log, "latency")))
    if "error" in told:
        yield Fact("error", True, told["error"] in log["reason"])
    if not table["last_row"]:
        return
    row = dict(zip(table["columns"].split(), table["last_row"], strict=True))
    size = size_of(row["bytes"])
    expected = {
        "latency": float(Decimal(row["usec/xfer"]).scaleb(-6)),
        "bandwidth": float(Decimal(row["MB/sec"]).scaleb(6))
        if "MB/sec" in row
        else float(Decimal(row["Gb/sec"]).scaleb(9)) / 8,
        "message_rate": float(Decimal(row.get("Mxfers/sec", "0")).scaleb(6)) or None,
    }
    last = [sample for sample in log["samples"] if sample["size"] == size]
    for metric, value in expected.items():
        yield Fact(f"last_row {metric}", value, one(last, metric, size))
    name = row.get("name")
    yield Fact("last_row name", name, last[-1]["labels"].get("name"))


def machine_facts(told: Json, logs: list[Json]) -> Iterator[Fact]:
    """Compare a machine readable row of a fabtest."""
    (log,), row = logs, told["record"]
    yield Fact("outcome", told["outcome"], log["outcome"])
    yield Fact("iterations", row["iterations"], log["facts"].get("iterations"))
    columns = {
        "latency": ("usec_per_xfer", -6),
        "bandwidth": ("MB_per_sec", 6),
        "message_rate": ("Mxfers_per_sec", 6),
    }
    for metric, (column, exponent) in columns.items():
        expected = float(Decimal(str(row[column])).scaleb(exponent))
        yield Fact(metric, expected, one(log["samples"], metric, row["xfer_size"]))


def torch_facts(told: Json, logs: list[Json]) -> Iterator[Fact]:
    """Compare reports; each is a log."""
    yield Fact("results", len(told["results"]), len(logs))
    for expected, log in zip(told["results"], logs, strict=False):
        size = int(Decimal(expected["payload_GB"]).scaleb(9))
        yield Fact("outcome", told["outcome"], log["outcome"])
        for name in ("trials", "ranks"):
            yield Fact(name, expected[name], log["facts"].get(name))
        for metric in ("algbw", "busbw"):
            printed = float(Decimal(expected[f"{metric}_GBps"]).scaleb(9))
            yield Fact(metric, printed, one(samples(log, metric), metric, size))
        # The rates in bits are checked against those in bytes; a difference is a finding.
        yield Fact("Gbps", False, "rate-mismatch" in {finding["code"] for finding in log["findings"]})


def size_of(text: str) -> int:
    """Read a size as fi_pingpong prints it."""
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    return int(float(text[:-1]) * units[text[-1]]) if text[-1] in units else int(text)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(Path(sys.argv[1])))
