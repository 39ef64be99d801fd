"""Rows that NCCL's debug text tore apart: exact again, or reported.

Never another value, never lost.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest

from fabbench.model.log import Log, Outcome, Point
from tests.support.corpus import CORPUS
from tests.support.read_logs import read
from tests.support.tiers import EVERY_CUT

NEWEST = "release-2.19.6-all_reduce"
TABLES = (
    NEWEST,
    "release-2.13-alltoall",
    "release-2.17.3-all_gather",
    "release-2.0-broadcast",
    "release-2.10-all_reduce",
    "release-1.0-all_reduce",
    "option-per-iteration-2.19.6",
    "option-timestamps-2.19.6",
    "not-checked-2.19.6-all_reduce",
)
HOSTS = (
    "node0",
    "vm",
    "ip-10-0-3-17",
    "10-0-3-17",
    "3gpu.example",
    "p5-dy-gpu-2",
    "4711",
    "e1",
    "0",
)


class Table:
    """A log of the corpus whose last row but one is to be torn.

    Its device lines name the host `known`.
    """

    def __init__(self, name: str, known: str = "node0") -> None:
        text = (CORPUS / f"nccl/{name}.txt").read_text().replace(" node0 ", f" {known} ")
        self.lines = text.rstrip().split("\n")
        self.at = [
            number
            for number, line in enumerate(self.lines)
            if re.match(r"(?:[\d:. -]+)? +\d+ +\d+ ", line)
        ][-2]
        self.row = self.lines[self.at]
        self.points = list(self.read([self.row]).points)
        self.without = list(self.read([]).points)

    def read(self, row: Sequence[str], tag: str = "") -> Log:
        lines = [*self.lines[: self.at], *row, *self.lines[self.at + 1 :]]
        (log,) = read("\n".join(tag + line for line in lines))
        return log

    def verdict(self, row: Sequence[str], tag: str = "") -> str:
        """Say `exact` or `reported`; anything else is an error."""
        log = self.read(row, tag)
        if found(log) == [figures(point) for point in self.points]:
            assert (log.outcome, log.damaged) == (Outcome.OK, ())
            return "exact"
        assert found(log) == [figures(point) for point in self.without], (
            "a row not printed, or a whole row lost"
        )
        assert log.damaged
        assert log.outcome is Outcome.TRUNCATED
        return "reported"

    def cuts(self, every: int) -> Iterator[tuple[str, str]]:
        return ((self.row[:cut], self.row[cut:]) for cut in range(0, len(self.row) + 1, every))


def figures(point: Point) -> tuple[object, ...]:
    labels = {name: label for name, label in point.labels.items() if name != "rank"}
    return point.size, labels, point.metrics, point.values


def found(log: Log) -> list[tuple[object, ...]]:
    return [figures(point) for point in log.points]


def torn(pieces: Sequence[str], host: str, count: int, *, glued: bool = True) -> list[str]:
    """Return the lines of a row in pieces, with `count` debug lines after each but the last.

    `glued`: the first debug line is on the piece's own line, as NCCL leaves it; else a launcher
    ended it.
    """
    lines: list[str] = []
    for piece in pieces[:-1]:
        noise = [
            f"{host}:871:{900 + n} [0] NCCL INFO AllReduce: {n} Bytes -> Algo RING"
            for n in range(count)
        ]
        lines += [piece + noise[0], *noise[1:]] if glued and noise else [piece, *noise]
    return [*lines, pieces[-1]]


@pytest.mark.parametrize(
    ("name", "count"), [*((name, 1) for name in TABLES), (NEWEST, 2), (NEWEST, 200)]
)
@EVERY_CUT
def test_a_row_cut_at_any_byte_by_debug_lines_of_a_known_host_is_exact(
    name: str, count: int, every: int
) -> None:
    table = Table(name)
    for pieces in table.cuts(every):
        assert table.verdict(torn(pieces, "node0", count)) == "exact", pieces


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("glued", [True, False])
@EVERY_CUT
def test_a_row_cut_at_any_byte_is_exact_or_reported_whatever_the_host_is_called(
    host: str, *, known: bool, glued: bool, every: int
) -> None:
    table = Table(NEWEST, host if known else "other")
    counts = Counter(
        table.verdict(torn(pieces, host, 1, glued=glued)) for pieces in table.cuts(every)
    )
    assert not counts["reported"] or not (known or not glued)


@pytest.mark.parametrize("name", TABLES[:2])
@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("glued", [True, False])
@EVERY_CUT
def test_a_row_cut_twice_is_exact_or_reported(
    name: str, count: int, *, glued: bool, every: int
) -> None:
    table = Table(name)
    for first, second in combinations(range(0, len(table.row) + 1, max(every + 7, 4)), 2):
        pieces = (table.row[:first], table.row[first:second], table.row[second:])
        assert table.verdict(torn(pieces, "node0", count, glued=glued)) == "exact" or not (
            glued and count
        )


@pytest.mark.parametrize(
    "tag", ["[1,0]<stdout>: ", "[1,0]<stdout>:", "(head, rank=0, pid=8) [1,0]<stdout>:"]
)
@pytest.mark.parametrize("glued", [True, False])
@EVERY_CUT
def test_a_row_cut_at_any_byte_behind_a_launchers_tag_is_exact(
    tag: str, *, glued: bool, every: int
) -> None:
    table = Table(NEWEST)
    for pieces in table.cuts(every):
        assert table.verdict(torn(pieces, "node0", 3, glued=glued), tag) == "exact", pieces


@EVERY_CUT
def test_a_row_that_lost_its_blanks_to_a_launcher_is_exact_or_reported(every: int) -> None:
    table = Table(NEWEST)
    pieces = ((first.rstrip(), second.lstrip()) for first, second in table.cuts(every))
    counts = Counter(table.verdict(torn(each, "node0", 1, glued=False)) for each in pieces)
    assert counts["exact"] > counts["reported"]


@pytest.mark.parametrize("name", ["1.04858e+06", "96"])
@EVERY_CUT
def test_a_count_of_wrong_elements_that_was_cut_is_whole_again(name: str, every: int) -> None:
    """The last one of the row in the middle."""
    table = Table(NEWEST)
    table.row = f"{table.row[:-7]}{name:>7}"
    whole = table.read([table.row])
    assert whole.outcome is Outcome.CORRUPT
    for pieces in table.cuts(every):
        log = table.read(torn(pieces, "node0", 2))
        assert (found(log), log.outcome) == (found(whole), Outcome.CORRUPT), pieces


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_which_every_row_is_torn_at_another_byte(name: str) -> None:
    table, lines = Table(name), []
    for number, line in enumerate(table.lines):
        cut = 5 + number * 7 % 40
        row = re.match(r" +\d+ +\d+ ", line)
        lines += torn((line[:cut], line[cut:]), "node0", 1 + number % 3) if row else [line]
    (log,) = read("\n".join(lines))
    assert (log.outcome, found(log)) == (Outcome.OK, [figures(point) for point in table.points])
