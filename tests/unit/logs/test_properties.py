"""What holds for every log of every benchmark.

Cut, damaged, among other lines, or of any bytes at all.

The logs are those of the corpus. FABBENCH_FUZZ=N tries N times as many; `make test-slow` takes
every log.
"""

import io
import json
import math
import os
import random
import re
import tracemalloc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from fabbench.benchmarks import benchmarks
from fabbench.logs.signs import unread_reason
from fabbench.model.log import Log, Outcome, Point
from fabbench.report.log_report import diagnosis, log_records, log_tables, log_writer
from fabbench.runs.parse_file import parse_stream
from tests.support.corpus import CORPUS, recorded
from tests.support.paths import LOGS, ROOT
from tests.support.tiers import EVERY_CUT, sampled, seeds

TIMES = int(os.environ.get("FABBENCH_FUZZ", "1"))
OWN = sorted({*benchmarks()} - {"nccl-debug"})
Rows = Counter[tuple[int, tuple[str, ...], tuple[float, ...]]]


def read(data: bytes) -> list[Log]:
    return [log for _, log in parse_stream(io.BytesIO(data), "x")]


def rows(logs: Sequence[Log]) -> Rows:
    return Counter(
        (point.size, point.metrics, point.values) for log in logs for point in log.points
    )


def is_ok(logs: Sequence[Log]) -> bool:
    return bool(logs) and all(log.outcome is Outcome.OK for log in logs)


def good(benchmark: str, most: int | None) -> list[tuple[bytes, dict[str, Any]]]:
    """Return small logs that are ok, of one side and no documents, and what each is read as.

    All, or up to `most`.
    """
    found = []
    for name, logs in recorded().items():
        if len(logs) == 1 and (logs[0]["benchmark"], logs[0]["outcome"]) == (benchmark, "ok"):
            data, sides = (
                (ROOT / name).read_bytes().rstrip(),
                re.findall("side=server|side=client", str(logs[0])),
            )
            if (
                len(data) < 4000
                and len({*sides}) < 2
                and b'"' not in data
                and "wrapped" not in name
            ):
                found.append((data, logs[0]))
    assert found
    return found[:: math.ceil(len(found) / (most or len(found)))]


HOW_MANY = pytest.mark.parametrize("most", [4, pytest.param(None, marks=pytest.mark.slow)])

# ---------------------------------------------------------------- cut


@HOW_MANY
@pytest.mark.parametrize("benchmark", OWN)
def test_a_log_cut_anywhere_is_never_taken_for_whole(benchmark: str, most: int | None) -> None:
    """It has no other figures; where it shows its end, none are missing.

    Half a row is seen.
    """
    for data, _ in good(benchmark, most):
        all_rows = rows(read(data))
        for cut in range(0, len(data), max(len(data) // (20 if most else 60), 1)):
            logs = read(data[:cut])
            in_figure = re.fullmatch(rb"[\d.]{2}", data[cut - 1 : cut + 1])
            if not is_ok(logs) or (benchmark == "osu" and in_figure):  # see the test below
                continue
            found = rows(logs)
            assert not found - all_rows, data[:cut]
            assert not all(log.shows_end for log in logs) or found == all_rows, data[:cut]
            begin = data.rfind(b"\n", 0, cut) + 1
            if len(re.findall(rb"(?<!\S)[\d.]+[kmg]?(?!\S)", data[begin:cut])) > 1:
                end = data.find(b"\n", cut)
                assert found == rows(read(data[: end if end > 0 else None])), data[:cut]


@EVERY_CUT
def test_a_json_file_cut_anywhere_is_truncated_and_not_read(every: int) -> None:
    text = (LOGS / "nccl/all_reduce.json").read_bytes().rstrip()
    (whole,) = read(text)
    assert (whole.outcome, bool(whole.points)) == ("ok", True)
    for cut in range(text.index(b'"results":[') + len(b'"results":['), len(text), every):
        (log,) = read(text[:cut])
        assert (log.outcome, log.benchmark, len(log.points)) == ("truncated", "nccl", 0)


# ---------------------------------------------------------------- rows that are damaged

TABLES: Mapping[str, Path] = {
    "pingpong": LOGS / "fi_pingpong/shm-rdm.client.txt",
    "fabtests": CORPUS / "fabtests/layout-1-fi_rdm_bw-now.txt",
    "nccl": LOGS / "nccl/allreduce-1proc-g4.txt",
    "nvshmem": CORPUS / "nvshmem/layout-collective_3_3.txt",
    "nvshmem, point to point": LOGS / "nvshmem/shmem_put_bw.txt",
    "perftest": CORPUS / "perftest/layout-mb-sec.txt",
    "imb": CORPUS / "imb/ping-pong.txt",
    "nixl": CORPUS / "nixl/the-times-of-phases.txt",
    "osu": CORPUS / "osu/every-kind-of-table-5.txt",
    "torch": CORPUS / "torch/the-usual-table.txt",
}
"""A good log of each table."""
FIGURE = re.compile(rb"(?<![\w.=])[\d.]{2,}[kmg]?(?:GBps|s)?(?![\w.])")


def broken(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the log with one digit of a row made an `x`, and the line's number."""
    lines = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        figures = [*FIGURE.finditer(line)]
        if len(figures) < 2 or not re.match(rb"[\s|]*\d", line) or b"payload" in line:
            continue
        for at in (
            spot
            for figure in figures
            for spot in range(*figure.span())
            if line[spot : spot + 1].isdigit()
        ):
            yield (
                number,
                b"\n".join(
                    [*lines[: number - 1], line[:at] + b"x" + line[at + 1 :], *lines[number:]]
                ),
            )


@pytest.mark.parametrize("name", TABLES)
def test_a_row_that_cannot_be_read_is_damaged(name: str) -> None:
    data = TABLES[name].read_bytes()
    assert is_ok(read(data))
    cases = list(broken(data))
    assert len(cases) > 5
    for number, changed in cases[:: max(len(cases) // 40, 1)]:
        (log,) = read(changed)
        assert (log.outcome, [row.line for row in log.damaged]) == (Outcome.TRUNCATED, [number])


NOISE = (
    b"node1:123:456 [0] NCCL INFO Using network Socket",
    b"libfabric:1:1700000000::efa:av:efa_av_open():12<warn> hello",
    b"Warning: Permanently added '10.0.0.1' (ED25519) to the list of known hosts.",
    (
        b"Conflicting CPU frequency values detected: 800.000000 != 2601.239000. CPU Frequency is "
        b"not "
        b"max."
    ),
    b"",
    b"real 0m3.2s",
    b"# a remark of 2 words",
    b"    indented: text",
    b"step 12 loss 3.14",
    b"     Broadcast |        0         0         1   |             1              1",
    b"node1:1:1 [0] NCCL INFO 1024 256 float sum -1 27.30 0.04 0.06 0 27.19 0.04 0.06 0",
)


@HOW_MANY
@pytest.mark.parametrize("benchmark", OWN)
def test_lines_of_others_within_a_table_change_no_row(benchmark: str, most: int | None) -> None:
    chance = random.Random(benchmark)
    for data, _ in good(benchmark, most):
        lines = data.split(b"\n")
        noise = [[*chance.choices(NOISE, k=chance.randint(0, 1)), line] for line in lines]
        logs = [
            log
            for log in read(b"\n".join(line for group in noise for line in group))
            if log.benchmark
        ]
        assert rows(logs) == rows(read(data)), data
        assert not any(log.damaged for log in logs)


# ---------------------------------------------------------------- logs that are damaged


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
    noise = chance.choices((*NOISE, b"8", b"1024 256 float", b"N/A"), k=chance.randint(1, 3))
    lines[at : at + 1] = [lines[at][:cut] + noise[0], *noise[1:], lines[at][cut:]]
    return b"\n".join(lines)


def lose(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data))
    return data[:at] + data[at + chance.choice([1, 4, 16, 64, 256]) :]


def swap(chance: random.Random, data: bytes) -> bytes:
    lines = data.split(b"\n")
    one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
    lines[one], lines[two] = lines[two], lines[one]
    return b"\n".join(lines)


def repeat(chance: random.Random, data: bytes) -> bytes:
    """Lines are lost, or printed twice."""
    lines = data.split(b"\n")
    at, count = chance.randrange(len(lines)), chance.randint(1, 4)
    lines[at : at + count] = lines[at : at + count] * chance.choice([0, 2])
    return b"\n".join(lines)


def join(chance: random.Random, data: bytes) -> bytes:
    """A row lost its end, its head, or its end and the newline."""
    lines = data.split(b"\n")
    at = chance.choice(
        [at for at, line in enumerate(lines) if re.match(rb"\s*\d", line)] or range(len(lines))
    )
    cut = chance.randint(0, len(lines[at]))
    head, tail, after = lines[at][:cut], lines[at][cut:], b"".join(lines[at + 1 : at + 2])
    lines[at : at + 2] = chance.choice([[head, after], [tail, after], [head + after]])
    return b"\n".join(lines)


def insert(chance: random.Random, data: bytes) -> bytes:
    at = chance.randrange(len(data))
    return (
        data[:at]
        + chance.choice([b"\0" * 8, b"\x1b[0m", b"\x1b]0;x\x07", b"\x08", b"\r", b"\r\n\r\n"])
        + data[at:]
    )


def prefix(chance: random.Random, data: bytes) -> bytes:
    """Every line has a prefix, or nearly every one."""
    tag, share = chance.choice(TAGS)[0], chance.choice([1.0, 0.9])
    return b"\n".join(
        (tag if chance.random() < share else b"") + line for line in data.split(b"\n")
    )


TAGS = (
    (b"", b""),
    (b"[1,0]<stdout>:", b"[1,1]<stdout>:"),
    (b"0: ", b"1: "),
    (b"(head, rank=0, pid=1) ", b"(worker1, rank=1, pid=2) "),
    (b"[pod/a/x] ", b"[pod/b/x] "),
)


def interleaved(chance: random.Random, one: bytes, other: bytes) -> bytes:
    """Two programs print to one file."""
    tags, lines = chance.choice(TAGS), [one.split(b"\n")[::-1], other.split(b"\n")[::-1]]
    mixed = list[bytes]()
    while any(lines):
        at = chance.randrange(2)
        mixed += (
            tags[at] + lines[at].pop() for _ in range(min(chance.randint(1, 5), len(lines[at])))
        )
    return b"\n".join(mixed)


FIGURES_DAMAGED = (digit, byte)
LINES_DAMAGED = (tear, tear, lose, swap, repeat, join, join, insert, prefix)


def contradicts(point: Point, benchmark: str | None, factor: float | None) -> bool:
    """Return whether a point's figures cannot be of one measurement, by another way."""
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
            return (
                factor is not None
                and abs(busbw - factor * algbw) > 0.0051e9 * (1 + factor) + 0.0001 * busbw
            )
    return False


def factor_of(logs: Sequence[Log]) -> float | None:
    """Return busbw / algbw of an undamaged log, from its large rows."""
    found = [
        point.values[2] / point.values[1]
        for log in logs
        for point in log.points
        if log.benchmark == "nccl"
        and point.metrics[1:3] == ("algbw", "busbw")
        and point.values[1] > 2e10
    ]
    return sum(found) / len(found) if found else None


TEXTS = [path.read_bytes() for path in sorted(LOGS.rglob("*.txt")) if path.stat().st_size < 40_000]


UNREPEATED = re.compile(rb"\{|cputime|i_min|busbw +res\b|alltoallv|PERF_STATS|window size: varied")
"""Nothing contradicts these.

Documents, some times of nccl-tests, rows that name themselves, equal columns.
"""


@cache
def wholes() -> list[bytes]:
    """Return the recorded logs that are ok."""
    known = {
        ROOT / name: logs
        for name, logs in recorded().items()
        if {log["outcome"] for log in logs} == {"ok"}
    }
    small = map(Path.read_bytes, known)
    return [data for data in small if len(data) < 30_000 and not UNREPEATED.search(data)]


def drawn(chance: random.Random) -> bytes:
    """Draw a recorded log that is ok, with a table."""
    while not has_table(as_recorded(data := chance.choice(wholes()))):
        pass
    return data


@cache
def as_recorded(data: bytes) -> Sequence[Log]:
    """Return what a log says that is drawn again and again."""
    return read(data)


def has_table(logs: Sequence[Log]) -> bool:
    return all(len({point.size for point in log.points}) > FEW for log in logs)


FEW = 3  # sizes, or less, contradict no other


def shown(logs: Sequence[Log]) -> set[tuple[int, Any]]:
    """Return each figure with its size; nothing contradicts those of empty messages."""
    return {
        (point.size, value)
        for log in logs
        for point in log.points
        if point.size
        for value in point.values
    }


@cache
def figures(data: bytes) -> set[tuple[int, Any]]:
    return shown(as_recorded(data))


def excepted(new: set[tuple[int, Any]], whole: bytes, logs: Sequence[Log]) -> str:
    """Return the name of what is counted as excepted: whose figure or size was altered."""
    known = {size for size, _ in figures(whole)}
    altered = "figure" if all(size in known for size, _ in new) else "size"
    (benchmark, *_) = {log.benchmark for log in logs}
    return f"ok with an altered {altered} of {benchmark} that nothing contradicts"


@seeds(1, 12)
def test_what_a_damaged_log_says_is_what_was_printed(
    seed: int, record_property: Callable[[str, object], None]
) -> None:
    """As good is read what was printed, or an altered figure that nothing contradicts."""
    chance, counts, bad = random.Random(seed), Counter[str](), list[str]()
    for number in range((1500 if seed else 100) * TIMES):
        data, other, damages, known = (
            drawn(chance),
            chance.choice(TEXTS),
            [*FIGURES_DAMAGED],
            set[Any](),
        )
        whole, altered = data, chance.random() < 0.2
        if altered:
            damages = [chance.choice(damages)]
        else:
            damages = chance.choices(LINES_DAMAGED, k=chance.choice([1, 1, 1, 2, 3]))
            if chance.random() < 0.15:
                data, known = interleaved(chance, data, other), figures(other)
        for damage in damages:
            data = damage(chance, data or b"8 0")
        logs = sound(data)
        new = shown([log for log in logs if altered or has_table([log])]) - figures(whole) - known
        counts["cases"] += 1
        counts["other figures"] += bool(new)
        # Rows of these stand by their arithmetic: one that lost characters, and still fits, is
        # no other case than an altered digit.
        any_figure = altered or any(log.benchmark == "nccl" for log in logs)
        factor = factor_of(as_recorded(whole)) if any_figure and new else None
        wrong = not any_figure or any(
            contradicts(point, log.benchmark, factor)
            for log in logs
            for point in log.points
            if not new.isdisjoint((point.size, value) for value in point.values)
        )
        if new and is_ok(logs):
            if wrong:
                names = [damage.__name__ for damage in damages]
                bad.append(f"{seed}/{number} {names}: {[*new][:2]}")
            else:
                counts[excepted(new, whole, logs)] += 1
    record_property("count", ("damaged", dict(counts)))
    assert bad == []


# ---------------------------------------------------------------- any bytes

WORDS = """\
# Rank Pid on device nThread nGpus minBytes maxBytes step: 2(factor) warmup iters: size count type
redop root time algbw busbw #wrong error float half sum -1 0 8 1024 27.30 1e+06 N/A e+ NCCL INFO
WARN vm:1:1 [0] [1,0]<stdout>: (head, pid=1) Out of bounds values : OK FAILED Avg bus bandwidth
USAGE bytes #sent #ack =10 1k
0.00s fi_pingpong #@fabbench begin end x/1 0: \x1b[36m \x1b[0m \r \x00 \ufffd \t""".replace(
    "\n", " \n "
).split(" ")


def written(logs: Sequence[Log]) -> str:
    """Write logs as the public contract."""
    writer = log_writer("json")
    return (
        writer.opening
        + writer.separator.join("".join(writer.log(log, None)) for log in logs)
        + writer.closing([])
    )


def sound(data: bytes) -> list[Log]:
    """Demand what every log promises, in every form it is printed in."""
    logs = read(data)
    assert len(json.loads(written(logs))["logs"]) == len(logs)
    for log in logs:
        assert (log.reason is None) == (log.outcome == "ok")
        assert log.outcome != "ok" or log.points
        assert all(point.size >= 0 for point in log.points)
        assert all(
            math.isfinite(value) and value >= 0 for point in log.points for value in point.values
        )
        assert len(list(log_records(log))) == sum(len(point.values) for point in log.points)
        log_tables(log)
    return logs


@seeds(2, 20 * TIMES)
def test_random_words_and_bytes_are_no_exception(seed: int) -> None:
    chance = random.Random(f"words {seed}")
    for _ in range(5):
        words = (
            chance.choice(WORDS) + chance.choice(["", " ", "  ", "\n", "      "])
            for _ in range(400)
        )
        sound("".join(words).encode())
    sound(chance.randbytes(4000))
    sound(bytes(chance.choices(b"0123456789 \n.e+-#[]<>:", k=4000)))


@seeds(2, 20 * TIMES)
def test_damaged_json_is_no_exception(seed: int) -> None:
    chance = random.Random(f"json {seed}")
    values = [b"null", b"-1", b"1e400", b"NaN", b'""', b"[]", b"{}", b"true", b'"N/A"', b"9" * 5000]
    for _ in range(10):
        data = (LOGS / "nccl/all_reduce.json").read_bytes()
        for _ in range(chance.randint(1, 5)):
            value, count = chance.choice(values), chance.randint(1, 40)
            data = (
                re.sub(rb"(?<=:)[\d.]+(?=[,}])", value, data, count=count)
                if count % 2
                else lose(chance, data or b"{")
            )
        assert "AWS_SECRET" not in written(sound(data))


HOSTILE = (
    *("9" * 5000, "1" + "0" * 600, "9" * 24, "9" * 19, "18446744073709551616", "1_000"),
    *(
        "1e999",
        "1e-999",
        "9e99999",
        f"1e{'9' * 600}",
        "nan",
        "-inf",
        "-1",
        "00",
        "",
        "0x",
        ".",
        "1.2.3",
    ),
    *("1,,2", ", ,", "0-99999999999", "5-", "9999-99-99", "25:61:61", "99999999999T", "1000000%"),
    *("\u0661\u0662", "\u00b2", "\uff11\uff12"),  # Arabic digits, a superscript, and wide ones
)
"""In place of a number: what no program prints, and what a program of a broken memory may print."""
NUMBER = re.compile(
    r"\d{4}-\d\d-\d\d|\d+(?::\d\d)+|\d+(?:, *\d+)+|\d+-\d+|0x[\da-f]+|\d+(?:\.\d+)*(?:e[+-]?\d+)?",
    re.IGNORECASE,
)
"""A date, a time, a list, a range, an address, a version or a number, as whole as it stands."""
MOST = 1 << 50
"""Bytes and bytes per second that none of these logs has."""


@cache
def shown_lines() -> tuple[str, ...]:
    """Return the examples of all lines that are known, and texts of the corpus: each a log."""
    tables = map(Path.read_bytes, sorted((ROOT / "src").rglob("*.toml")))
    examples = [
        line
        for table in tables
        for line in re.findall(r"(?m)^(?:example|text) = ['\"](.*)['\"]$", table.decode())
        if NUMBER.search(line)
    ]
    groups = ["\n".join(examples[at : at + 40]) for at in range(0, len(examples), 40)]
    return (*groups, *(text[:4000].decode("utf-8", "replace") for text in TEXTS))


def one_in_each_line(chance: random.Random, text: str, value: str) -> str:
    lines = text.split("\n")
    for at, line in enumerate(lines):
        if spots := [*NUMBER.finditer(line)]:
            spot = chance.choice(spots)
            lines[at] = line[: spot.start()] + value + line[spot.end() :]
    return "\n".join(lines)


def one_alone(chance: random.Random, text: str, value: str) -> str:
    spots = [*NUMBER.finditer(text)]
    spot = chance.choice(spots)
    return text[: spot.start()] + value + text[spot.end() :]


def one_column(chance: random.Random, text: str, value: str) -> str:
    cell = rf"(?m)^(\s*(?:\S+\s+){{{chance.randrange(9)}}})\d\S*"
    return re.sub(cell, lambda spot: f"{spot[1]}{value}", text)


def each_like_one(chance: random.Random, text: str, value: str) -> str:
    number = chance.choice(NUMBER.findall(text))
    return text.replace(number, value)


@seeds(1, 60 * TIMES)
def test_numbers_that_no_program_prints_are_no_exception(seed: int) -> None:
    """And no figure of a log that is ok, in any form in which logs are shown."""
    chance = random.Random(f"numbers {seed}")
    for _ in range(200 if seed else 30):
        replace = chance.choice([one_in_each_line, one_alone, one_column, each_like_one])
        text = replace(chance, chance.choice(shown_lines()), chance.choice(HOSTILE))
        logs = sound(text.encode())
        for log in logs:
            diagnosis(log)
        assert not any(
            max(point.size, *point.values) > MOST
            for log in logs
            if log.outcome is Outcome.OK
            for point in log.points
        )


NIXL, TORCH = "nixl/writes-over-tcp.txt", "torch/a-payload-with-three-decimals-is-not-exact-2.txt"
OSU = "osu/the-transport-is-what-mpi-says-said0-socket-fabrics0.txt"
UCCL = "kv_transfer/uccl-writes-of-one-block.txt"


@pytest.mark.parametrize(
    ("name", "number", "hostile", "left"),
    [
        (NIXL, rb"(?<=threads=N\)) +: 1", b": 1000000%", "all"),  # the threads of most rows
        (NIXL, rb"(?<=threads=N\)) +: 1", b": 1e999", "all"),
        (TORCH, rb"0\.268435456GB", b"9e99999GB", "none"),
        (TORCH, rb"0\.268435456GB", b"9" * 24 + b"GB", "none"),
        (OSU, rb"(?m)^1 ", b"9" * 18, "damaged"),
        (OSU, rb"\d+\.\d+(?=\n2 )", b"2619636671876.63", "damaged"),
        (UCCL, rb"102\.4 KB", b"102.4 B", "damaged"),
    ],
)
def test_a_number_that_no_program_prints_is_in_no_figure(
    name: str, number: bytes, hostile: bytes, left: str
) -> None:
    data = (CORPUS / name).read_bytes()
    (whole,) = read(data)
    changed, times = re.subn(number, hostile, data)
    assert times
    (log,) = sound(changed)
    assert rows([log]) <= rows([whole])
    found = "damaged" if log.damaged else "all" if log.points else "none"
    assert found == left


HEAD = b"\n".join((LOGS / "nccl/alltoall-mpi.txt").read_bytes().split(b"\n")[:30])


def test_a_line_of_50_mb_without_a_newline_takes_little_memory() -> None:
    class Endless(io.RawIOBase):
        """50 MB of a row's beginning, never held in memory."""

        left = 50 << 20

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: object) -> int:
            view = memoryview(buffer).cast("B")  # type: ignore[arg-type]
            size = min(len(view), self.left)
            view[:size] = (b"8 2 float " * (size // 10 + 1))[:size]
            self.left -= size
            return size

    tracemalloc.start()
    list(parse_stream(io.BufferedReader(Endless()), "x"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 30 << 20


PIECES = """\
a|1|:| |a:|1:1 |[|<std|(|x\x1b[|\x1b[3|NCCL |vm:1:1 [0] | NCCL INFO |Rank 1 |8 2 float |e+
|1.|_perf |error|Rank 1 Pid 1 on |fi_pingpong |\x00|\\n|a b|-|.|0:|/|#|1a|N/A
 |nThread 1 nGpus 1 minBytes 1 |via NET/|"a|a: |Device |server | busbw|size(B) latency
 |# size count type |{"a":|gpu-1: |[1,0]<stdout>: """


@pytest.mark.parametrize("piece", sampled(PIECES.replace("\n", "").split("|"), every=12))
def test_a_long_line_of_one_piece_is_no_endless_search(piece: str) -> None:
    """A search that goes back and forth over 30 kB would not end within this test's lifetime."""
    text = (piece * (30_000 // len(piece)))[:30_000]
    perftest = TABLES["perftest"].read_text().split("\n")[:-3]
    ends = (" NCCL INFO # nThread 1 nGpus 1 minBytes 8 float ", '"test_info": { |')
    lines = [
        HEAD.decode(),
        *(f"{text}{end}" for end in ends),
        *perftest,
        f"NCCL {text}:1:1 [0] NCC",
    ]
    assert rows(sound("\n".join(lines).encode())) >= rows(read(HEAD))
    assert unread_reason(text)[1] in {False, True}


def test_a_tag_that_is_longer_than_prefixes_are_ends_no_reader() -> None:
    """What looks for tags sees the whole line, and what cuts them only its beginning."""
    for before in ("", "8 "):
        sound(f"{before}[1,{'9' * 5000}]<stdout>: # nThread 1\n".encode() + HEAD)


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"results":[', '{"results":[{"size":'])
def test_deep_json_is_no_exception(opening: str) -> None:
    for text in ('{"args":[],"a":', '{"args":[],"nccl_version":1,"config":{},"env":'):
        sound((text + opening * 100_000).encode())
        sound((text + opening * 100_000 + '"results":[' + opening * 1000).encode())
