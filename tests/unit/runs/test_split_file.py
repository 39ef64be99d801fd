"""A large log that is read in parts gives what it gives as a whole."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from fabbench.model.log import Log
from fabbench.runs import inputs
from fabbench.runs.inputs import ParseJob, Source, parts, read, read_source
from fabbench.runs.parse_file import parse_file
from tests.support.nccl_text import HEADER

DEVICES = (
    "# Using devices\n#  Rank  0 Group  0 Pid  871 on         vm device  0 [0x05] NVIDIA H100\n"
)
CLOSING = "# Out of bounds values : 0 OK\n# Avg bus bandwidth    : 8.74\n#\n"
CONCLUDED = "# Collective test concluded: all_reduce_perf\n#\n"
SIZE = 1048576


def table(number: int, *, damaged: bool = False, concluded: str = CONCLUDED) -> str:
    """One program's output; a debug line tears its row, or cuts it."""
    torn = f"vm:871:871 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/{number}\n"
    time = f"{120 + number / 100:.2f}"
    begin = f"     {SIZE}        262144     float     sum      -1    {time}    8.74    8.74      0"
    end = "" if damaged else "    120.0    8.74    8.74      0\n"
    banner = "# nccl-tests version 2.18.0 nccl-headers=22907 nccl-library=22907\n"
    return f"{banner}#\n{DEVICES}{HEADER}{begin}{torn}{end}{CLOSING}{concluded}"


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inputs, "PART", 100)
    monkeypatch.setattr(inputs, "LARGE", 1000)


def in_parts(path: Path) -> list[list[Log]]:
    read = map(read_source, parts(Source(name=str(path))))
    return [[entry for _, entry in entries if isinstance(entry, Log)] for entries in read]


def count(path: Path) -> int:
    return len(list(parts(Source(name=str(path)))))


@pytest.mark.parametrize(
    ("newline", "concluded"), [("\n", CONCLUDED), ("\r\n", CONCLUDED), ("\n", "")]
)
def test_parts_are_read_as_the_whole_is(tmp_path: Path, newline: str, concluded: str) -> None:
    """Before 2.18 the average is the last line of a table."""
    path = tmp_path / "log.txt"
    text = "".join(table(number, damaged=number == 3, concluded=concluded) for number in range(5))
    path.write_bytes(text.replace("\n", newline).encode())
    whole = list(parse_file(path))
    assert in_parts(path) == [[log] for log in whole]
    assert [len(log.damaged) for log in whole] == [0, 0, 0, 1, 0]
    assert whole[3].damaged[0].line > 3 * len(table(0, concluded=concluded).splitlines())


@pytest.mark.parametrize(
    "concluded",
    [
        f"{CONCLUDED}vm:871:871 [0] NCCL INFO comm 0x1 - Destroy\n",
        f"{CONCLUDED}srun: error: node 1\n",
    ],
)
def test_what_may_belong_to_either_table_is_no_place_to_split(
    tmp_path: Path, concluded: str
) -> None:
    path = tmp_path / "log.txt"
    path.write_text("".join(table(number, concluded=concluded) for number in range(3)))
    assert count(path) == 1


def test_prefixes_keep_a_log_whole(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    lines = "".join(map(table, range(3))).splitlines(keepends=True)
    path.write_text("".join(f"[1,0]<stdout>:{line}" for line in lines))
    assert count(path) == 1


def test_what_has_no_boundary_for_long_is_read_as_one_stream(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "_MAX_SEARCH", 3000)
    path = tmp_path / "log.txt"
    path.write_text(
        "".join(map(table, range(3))) + f"{table(3)}{'a line of something else' * 200}\n" + table(4)
    )
    assert [isinstance(part.text, bytes) for part in parts(Source(name=str(path)))] == [
        True,
        True,
        True,
        False,
    ]
    assert [log for logs in in_parts(path) for log in logs] == list(parse_file(path))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lambda data: gzip.compress(data)[:-5]])
def test_several_processes_print_what_one_prints(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(
        pack("".join(table(number, damaged=number == 30) for number in range(40)).encode())
    )
    source, job = Source(name=str(path)), ParseJob(form="csv")
    one, two = (list(read([source], job, cores=cores)) for cores in (1, 2))
    assert "".join(piece.text for piece in one) == "".join(piece.text for piece in two)
    assert [piece.ends for piece in two if piece.ends] == [True]
    assert [sum(piece.outcome is not None for piece in each) for each in (one, two)] == [40, 40]
    assert any(piece.outcome not in {None, "ok"} for piece in two)
    assert [piece.unread for piece in one if piece.unread] == [
        piece.unread for piece in two if piece.unread
    ]
