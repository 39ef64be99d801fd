"""Any bytes may come in: never an exception, never a row that is not in the text, never endless work.

FABBENCH_FUZZ=N multiplies the number of texts by N.
"""

import io
import json
import math
import os
import random
import re
import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

import pytest

from fabbench.model.log import Log, Point
from fabbench.report import json_contract
from fabbench.report.log_report import log_records, log_tables
from fabbench.runs.parse_file import parse_stream
from tests.support.nccl_layouts import Layout, cells, log, sweep
from tests.support.read_logs import LOGS
from tests.support.tiers import EVERY_CUT, sampled, seeds

TIMES = int(os.environ.get("FABBENCH_FUZZ", "1"))
TEXTS = [path.read_bytes() for path in sorted(LOGS.rglob("*")) if path.suffix in {".txt", ".json"}]
REAL = [path.read_bytes() for path in sorted((LOGS / "nccl").glob("*.txt"))]
SENTENCES = """\
# Rank Pid on device nThread nGpus minBytes maxBytes step: 2(factor) warmup iters: size count type redop root
time algbw busbw #wrong error float half sum -1 0 8 1024 27.30 1e+06 N/A e+ NCCL INFO WARN vm:1:1 [0]
[1,0]<stdout>: (head, pid=1) Out of bounds values : OK FAILED Avg bus bandwidth USAGE bytes #sent #ack =10 1k
0.00s fi_pingpong #@fabbench begin end x/1 0: \x1b[36m \x1b[0m \r \x00 \ufffd
"""
WORDS = [*re.split(r"[ \n]", SENTENCES), "\t", "\n"]


def read(data: bytes) -> list[Log]:
    return list(parse_stream(io.BytesIO(data), "x"))


def written(logs: list[Log]) -> str:
    """Write logs as the public contract."""
    elements = json_contract.Elements()
    pieces = json_contract.SEPARATOR.join("".join(elements.write(judged)) for judged in logs)
    return json_contract.OPENING + pieces + json_contract.closing([])


def sound(logs: list[Log]) -> None:
    """Demand what every log promises, in every form it is printed in."""
    document = json.loads(written(logs))
    assert len(document["logs"]) == len(logs)
    for judged in logs:
        assert (judged.reason is None) == (judged.outcome == "ok")
        assert judged.outcome != "ok" or judged.points
        for point in judged.points:
            assert point.size >= 0
            assert all(math.isfinite(value) and value >= 0 for value in point.values)
        assert len(list(log_records(judged))) == sum(len(point.values) for point in judged.points)
        log_tables(judged)


# ---------------------------------------------------------------- rows that are in the text


def rows_of(text: str) -> list[list[str]]:
    return [line.split() for line in re.split(r"[\n\r]", text)]


EXPONENTS = {"time": (-6, -3), "cpu_time": (-6,), "algbw": (9,), "busbw": (9,), "wrong": (0,)}


def shows(tokens: list[str], point: Point) -> bool:
    """Return whether a line has a point's size and figures, in order."""
    wanted: list[set[float]] = [{float(point.size)}]
    for metric, value in zip(point.metrics, point.values, strict=True):
        wanted.append({float(f"{value!r}") / 10.0**exponent for exponent in EXPONENTS[metric]})
    at = 0
    for token in tokens:
        number = numeric(token)
        if number is not None and any(math.isclose(number, known, rel_tol=1e-12) for known in wanted[at]):
            at += 1
            if at == len(wanted):
                return True
    return False


def numeric(token: str) -> float | None:
    try:
        return float(token)
    except ValueError:
        # The last token may have a debug line behind it.
        digits = re.match(r"-?[\d.]+(?:e[+-]\d+)?", token)
        try:
            return float(digits[0]) if digits else None
        except ValueError:
            return None


def derivable(text: str, logs: list[Log]) -> Iterator[Point]:
    """Yield the points of nccl-tests that no line of the text shows, and no two pieces of lines together."""
    lines = rows_of(text)
    by_size: dict[str, list[list[str]]] = {}
    for tokens in lines:
        for token in {re.sub(r"\D*$", "", token) for token in tokens[:12]}:
            by_size.setdefault(token, []).append(tokens)
    for judged in logs:
        if judged.benchmark != "nccl":
            continue
        for point in judged.points:
            if not any(shows(tokens, point) for tokens in by_size.get(str(point.size), ())):
                yield point


def mutated(chance: random.Random, text: bytes) -> bytes:
    """Damage a log as copying, editing and transfers do, and worse."""
    lines = text.split(b"\n")
    for _ in range(chance.randint(1, 8)):
        at = chance.randrange(len(lines))
        damaged = damage(chance, lines[at])
        match chance.randrange(5):
            case 0:
                del lines[at : at + chance.randint(1, 3)]
            case 1:
                lines.insert(at, damaged)
            case 2:
                other = chance.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                block = chance.choice(TEXTS).split(b"\n")
                begin = chance.randrange(len(block))
                lines[at:at] = block[begin : begin + chance.randint(1, 40)]
            case _:
                lines[at] = damaged
        if not lines:
            return b""
    return b"\n".join(lines)


def damage(chance: random.Random, line: bytes) -> bytes:
    """Damage one line."""
    spot = chance.randint(0, len(line))
    match chance.randrange(5):
        case 0:
            return line[:spot] + bytes([chance.randrange(256)]) + line[spot + 1 :]
        case 1:
            return line[:spot]
        case 2:
            return line[spot:]
        case 3:
            words = line.split(b" ")
            chance.shuffle(words)
            return b" ".join(words)
        case _:
            return line[:spot] + b"\n" + line[spot:]


# ---------------------------------------------------------------- texts


@seeds(8, 40 * TIMES)
def test_damaged_logs_are_read_without_an_exception(seed: int) -> None:
    chance = random.Random(f"damaged {seed}")
    for _ in range(5):
        sound(read(mutated(chance, chance.choice(TEXTS))))


@seeds(4, 20 * TIMES)
def test_no_row_is_read_that_no_line_of_a_damaged_log_shows(seed: int) -> None:
    chance = random.Random(f"derivable {seed}")
    whole = [text for text in REAL if b"SUBSYS" not in text and b"-I 1" not in text]
    for _ in range(5):
        data = mutated(chance, chance.choice(whole))
        if data.startswith(b"{"):  # a block of the JSON log came first
            continue
        text = data.decode("utf-8", "replace")
        missing = list(derivable(text, read(data)))
        joined = "\n".join(f"{first}{second}" for first, second in pairwise(text.split("\n")))
        assert not missing or not list(derivable(f"{text}\n{joined}", read(data)))


@seeds(4, 20 * TIMES)
def test_random_words_and_bytes_are_read_without_an_exception(seed: int) -> None:
    chance = random.Random(f"words {seed}")
    for _ in range(10):
        words = (chance.choice(WORDS) + chance.choice(["", " ", "  ", "\n", "      "]) for _ in range(400))
        sound(read("".join(words).encode()))
    sound(read(chance.randbytes(4000)))
    sound(read(bytes(chance.choices(b"0123456789 \n.e+-#[]<>:", k=4000))))


@seeds(4, 20 * TIMES)
def test_damaged_json_is_read_without_an_exception(seed: int) -> None:
    chance = random.Random(f"json {seed}")
    text = (LOGS / "nccl/all_reduce.json").read_bytes()
    values = [b"null", b"-1", b"1e400", b"NaN", b'""', b"[]", b"{}", b"true", b'"N/A"', b"9" * 5000]
    for _ in range(10):
        data = text
        for _ in range(chance.randint(1, 5)):
            at = chance.randrange(len(data))
            match chance.randrange(4):
                case 0:
                    data = data[:at]
                case 1:
                    data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
                case 2:
                    data = re.sub(rb"(?<=:)[\d.]+(?=[,}])", chance.choice(values), data, count=chance.randint(1, 40))
                case _:
                    data = data[:at] + data[at + chance.randint(1, 200) :]
            data = data or b"{"
        logs = read(data)
        sound(logs)
        assert "AWS_SECRET" not in written(logs)


@EVERY_CUT
def test_a_json_file_cut_anywhere_gives_its_whole_rows(every: int) -> None:
    text = (LOGS / "nccl/all_reduce.json").read_bytes()
    begin = text.index(b'"results":[') + len(b'"results":[')
    (whole,) = read(text)
    for cut in range(begin, len(text), every):
        logs = read(text[:cut])
        assert len(logs) == 1
        (judged,) = logs
        rows = text[begin:cut].count(b'"experiment_name":""}')
        assert judged.points == whole.points[: 2 * rows]
        assert judged.outcome == ("truncated" if cut < len(text.rstrip()) else "ok")


@pytest.mark.parametrize(
    ("digits", "texts"),
    [(19, TEXTS), (5000, TEXTS[:2]), *(pytest.param(n, TEXTS, marks=pytest.mark.slow) for n in (400, 5000))],
    ids=lambda value: str(value if isinstance(value, int) else len(value)),
)
def test_numbers_of_any_length_are_no_exception(digits: int, texts: list[bytes]) -> None:
    for text in texts:
        for number in (b"9" * digits, b"1" + b"0" * digits, b"1e" + b"9" * digits):
            sound(read(re.sub(rb"\d+", number, text[:4000], count=2000 // digits + 8)))


def test_numbers_beyond_every_double_are_no_rows() -> None:
    layout = Layout()
    (row,) = sweep(layout, low=1 << 20, high=1 << 20)
    lines = log(layout, [row])
    text = cells(layout, row).text
    time = text.split()[5]
    lines[lines.index(text)] = text.replace(time, "1e+999", 1)
    (judged,) = read("\n".join(lines).encode())
    assert judged.points == []
    assert judged.outcome == "truncated"


# ---------------------------------------------------------------- sizes that nobody expects


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
    logs = list(parse_stream(io.BufferedReader(Endless()), "x"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    sound(logs)
    assert peak < 30 << 20


TINY = [b"\n", b"#\n", b"8\n", b"x\n", b"[1,0]<stdout>: \n", b"\x00\xff\n", b"vm:1:1 [0] NCCL INFO x\n", b"0: \n"]


@pytest.mark.parametrize("times", [1_000, pytest.param(30_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("line", TINY)
def test_very_many_tiny_lines_are_read(line: bytes, times: int) -> None:
    head = "\n".join(log(Layout(), sweep(Layout()), footer=False)).encode()
    (judged,) = read(head + b"\n" + line * times)
    assert len(judged.points) == 36
    assert len(judged.damaged) <= times


PIECES = """\
a|1|:| |a:|1:1 |[|<std|(|x\x1b[|\x1b[3|NCCL |vm:1:1 [0] | NCCL INFO |Rank 1 |8 2 float |e+|1.|_perf |error
|Rank 1 Pid 1 on |fi_pingpong |\x00|\\n|a b|-|.|0:|/|#|1a|N/A |nThread 1 nGpus 1 minBytes 1 |via NET/"""


@pytest.mark.parametrize("piece", sampled(PIECES.replace("\n", "").split("|"), every=3))
def test_a_long_line_of_one_piece_is_no_endless_search(piece: str) -> None:
    """A search that goes back and forth over 60 kB would not end within this test's lifetime."""
    text = (piece * (60_000 // len(piece)))[:60_000]
    layout = Layout()
    lines = [*log(layout, sweep(layout), footer=False), text, f"{text} NCCL INFO {text}", f"NCCL {text}:1:1 [0] NCC"]
    logs = read("\n".join(lines * 3).encode())
    sound(logs)
    assert sum(len(judged.points) for judged in logs) >= 36


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"results":[', '{"results":[{"size":'])
def test_deep_json_is_read_without_an_exception(opening: str) -> None:
    for text in (
        '{"args":[],"a":' + opening * 100_000,
        '{"args":[],"nccl_version":1,"config":{},"env":' + opening * 100_000,
    ):
        sound(read(text.encode()))
        sound(read((text + '"results":[' + opening * 1000).encode()))
