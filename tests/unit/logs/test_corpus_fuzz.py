"""Real logs, damaged at random: what is read as good must be what was printed, or nothing contradicts it.

FABBENCH_FUZZ=N tries N times as many. The counts by benchmark stand at the end of what pytest prints.
"""

import io
import json
import os
import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from fabbench.model.log import Log, Outcome, Point
from fabbench.report import json_contract
from fabbench.runs.parse_file import parse_stream
from tests.support.paths import LOGS
from tests.support.tiers import seeds

CASES = 250 * int(os.environ.get("FABBENCH_FUZZ", "1"))
NOISE = (
    b"node1:123:456 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",
    b"slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED ***",
    b"WARNING: something happened 12 times",
    b"8",
    b"1024 256 float",
    b"",
    b"N/A",
)

Rows = set[tuple[int, tuple[str, ...], tuple[float, ...]]]
Damage = Callable[[random.Random, bytes], bytes]


def read(data: bytes) -> list[Log]:
    return list(parse_stream(io.BytesIO(data), "x"))


def rows(logs: list[Log]) -> Rows:
    return {(point.size, point.metrics, point.values) for log in logs for point in log.points}


def good() -> dict[Path, tuple[bytes, list[Log]]]:
    found = {}
    for path in sorted(LOGS.rglob("*")):
        if path.suffix in {".txt", ".json"} and path.stat().st_size < 30_000:
            data = path.read_bytes()
            logs = read(data)
            if any(log.points for log in logs) and all(log.outcome is Outcome.OK for log in logs):
                found[path] = (data, logs)
    return found


# ---------------------------------------------------------------- damage


def digit(chance: random.Random, data: bytes) -> bytes:
    at = chance.choice([match.start() for match in re.finditer(rb"\d", data)])
    new = chance.choice([b"%d" % chance.randrange(10), b"", data[at : at + 1] * 2, b"x"])
    return data[:at] + new + data[at + 1 :]


def byte(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]


def tear(chance: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    at = chance.randrange(len(lines))
    cut = chance.randint(0, len(lines[at]))
    lines[at : at + 1] = [
        lines[at][:cut] + chance.choice(NOISE),
        *chance.choices(NOISE, k=chance.randint(0, 2)),
        lines[at][cut:],
    ]
    return b"\n".join(lines)


def lose(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + data[at + chance.choice([1, 4, 16, 64, 256]) :]


def swap(chance: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    return b"\n".join(lines)


COUNTED = ("cases", "other figures", "other figures, not ok", "invented or contradicted, ok")
DAMAGES: Mapping[str, Damage] = {"digit": digit, "byte": byte, "tear": tear, "lose": lose, "swap": swap}


# ---------------------------------------------------------------- what contradicts itself


def contradicts(point: Point, benchmark: str | None, factor: float | None) -> bool:
    """Return whether a point's figures cannot be of one measurement, by another way than the readers'."""
    found = dict(zip(point.metrics, point.values, strict=True))
    if benchmark == "pingpong" and {"latency", "bandwidth"} <= found.keys():
        latency, rate = found["latency"], found["bandwidth"]
        slack = 0.0051e-6 / latency + 0.0051e6 / rate
        # A size of a few digits may have been cut down: 1500 bytes are 1.4k.
        return point.size >= 10 and abs(latency * rate / point.size - 1) > slack + 0.11
    if benchmark == "nccl" and {"time", "algbw", "busbw"} <= found.keys():
        time, algbw, busbw = found["time"], found["algbw"], found["busbw"]
        if point.size and time and algbw > 1e8:
            slack = 0.0051e9 / algbw + (0.051e-6 if time >= 1e-4 else 0.0051e-6) / time + 0.0002
            if abs(algbw * time / point.size - 1) > slack:
                return True
            return factor is not None and abs(busbw - factor * algbw) > 0.0051e9 * (1 + factor) + 0.0001 * busbw
    return False


def factor_of(logs: list[Log]) -> float | None:
    """Return busbw / algbw of an undamaged log, from its large rows."""
    found = [
        point.values[2] / point.values[1]
        for log in logs
        for point in log.points
        if log.benchmark == "nccl" and point.metrics[1:3] == ("algbw", "busbw") and point.values[1] > 2e10
    ]
    return sum(found) / len(found) if found else None


@pytest.mark.slow
@seeds(0, 4)
def test_what_a_damaged_log_says_is_what_was_printed(seed: int, record_property: Callable[[str, object], None]) -> None:
    chance, corpus = random.Random(seed), good()
    counts: Counter[tuple[str, str]] = Counter()
    bad: list[str] = []
    by_benchmark: dict[str | None, list[Path]] = {}
    for path, (_, whole) in corpus.items():
        by_benchmark.setdefault(whole[0].benchmark, []).append(path)
    for number in range(CASES):
        path = chance.choice(by_benchmark[chance.choice([*by_benchmark])])
        data, whole = corpus[path]
        name = chance.choice([*DAMAGES])
        logs = read(DAMAGES[name](chance, data))
        benchmark = whole[0].benchmark or ""
        counts[benchmark, "cases"] += 1
        json.loads(f"[{','.join(''.join(json_contract.Elements().write(log)) for log in logs)}]")
        new = rows(logs) - rows(whole)
        trusted = all(log.outcome is Outcome.OK for log in logs)
        if not new:
            continue
        counts[benchmark, "other figures"] += 1
        if not trusted:
            counts[benchmark, "other figures, not ok"] += 1
            continue
        factor = factor_of(whole)
        points = [(log, point) for log in logs for point in log.points]
        wrong = [
            point
            for log, point in points
            if (point.size, point.metrics, point.values) in new and contradicts(point, log.benchmark, factor)
        ]
        if name in {"tear", "swap"} or wrong:
            counts[benchmark, "invented or contradicted, ok"] += 1
            bad.append(f"{path.name} {name} {seed}/{number}: {[*new][:2]}")
    for benchmark in sorted({benchmark for benchmark, _ in counts}):
        record_property("count", (benchmark, {what: counts[benchmark, what] for what in COUNTED}))
    assert bad == []
