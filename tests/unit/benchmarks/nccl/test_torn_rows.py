"""Rows that NCCL's debug text tore apart: exact again, or reported; never another value, never lost."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest

from fabbench.model.log import Log
from tests.support.nccl_layouts import Layout, Row, cells, footer_lines, half, log, points, sweep
from tests.support.read_logs import found, read
from tests.support.tiers import EVERY_CUT

LAYOUTS = (
    Layout(era="2.19.6"),
    Layout(era="2.13", case="alltoall"),
    Layout(era="2.17.3", case="all_gather", ranks=16),
    Layout(era="2.0", case="broadcast"),
    Layout(era="2.10", case="all_reduce"),
    Layout(era="1.0"),
    Layout(per_iteration=True),
    Layout(timestamps=True),
    Layout(checked=False),
)
HOSTS = ("node0", "vm", "ip-10-0-3-17", "10-0-3-17", "3gpu.example", "p5-dy-gpu-2", "4711", "e1", "0")


def rows_of(layout: Layout) -> list[Row]:
    """Three rows: below, at and above what shows in GB/s; the middle one will be torn."""
    return [
        Row(
            size=size,
            out_of_place=half(layout, size, 41.25),
            in_place=half(layout, size, 43.75, wrong=0),
            root=0 if layout.case == "broadcast" else -1,
        )
        for size in (8192, 1 << 20, 1 << 24)
    ]


def debug(host: str, count: int) -> Iterator[str]:
    for number in range(count):
        yield f"{host}:871:{900 + number} [0] NCCL INFO AllReduce: {number} Bytes -> Algo RING proto SIMPLE"


def torn(pieces: Sequence[str], host: str, count: int, *, glued: bool) -> list[str]:
    """Return the lines of a row in pieces, with `count` debug lines after each but the last.

    `glued`: the first debug line is on the piece's own line, as NCCL leaves it; else a launcher ended it.
    """
    lines: list[str] = []
    for piece in pieces[:-1]:
        noise = list(debug(host, count))
        if glued and noise:
            noise[0] = piece + noise[0]
        else:
            noise.insert(0, piece)
        lines += noise
    return [*lines, pieces[-1]]


def around(layout: Layout, lines: list[str], *, known: str) -> str:
    """Put a torn row into a whole log, whose device lines name the host `known`."""
    first, _, last = rows_of(layout)
    whole = log(layout, [first], footer=False, host=known)
    whole = [line.replace(f" {known}0 ", f" {known} ") for line in whole]
    return "\n".join([*whole, *lines, cells(layout, last).text, *footer_lines(layout, rows_of(layout))])


def verdict(layout: Layout, judged: Log) -> str:
    """Say `exact` or `reported`; anything else is an error."""
    first, middle, last = rows_of(layout)
    if found(judged) == points(layout, [first, middle, last]):
        assert judged.damaged == ()
        assert judged.outcome == "ok", judged.reason
        return "exact"
    assert found(judged) == points(layout, [first, last]), "a row that was not printed, or a whole row lost"
    assert judged.damaged
    assert judged.outcome == "truncated"
    return "reported"


def only(text: str) -> Log:
    (judged,) = read(text)
    return judged


@pytest.mark.parametrize(
    ("layout", "count"), [*((layout, 1) for layout in LAYOUTS), (LAYOUTS[0], 2), (LAYOUTS[0], 200)], ids=str
)
@EVERY_CUT
def test_a_row_cut_at_any_byte_by_debug_lines_of_a_known_host_is_exact(layout: Layout, count: int, every: int) -> None:
    text = cells(layout, rows_of(layout)[1]).text
    for cut in range(0, len(text) + 1, every):
        lines = torn((text[:cut], text[cut:]), "node0", count, glued=True)
        assert verdict(layout, only(around(layout, lines, known="node0"))) == "exact", f"cut at {cut}"


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("glued", [True, False])
@EVERY_CUT
def test_a_row_cut_at_any_byte_is_exact_or_reported_whatever_the_host_is_called(
    host: str, *, known: bool, glued: bool, every: int
) -> None:
    layout = Layout()
    text = cells(layout, rows_of(layout)[1]).text
    counts: Counter[str] = Counter()
    for cut in range(0, len(text) + 1, every):
        lines = torn((text[:cut], text[cut:]), host, 1, glued=glued)
        judged = only(around(layout, lines, known=host if known else "other"))
        counts[verdict(layout, judged)] += 1
    if known or not glued:
        assert not counts["reported"]


@pytest.mark.parametrize("layout", LAYOUTS[:2], ids=str)
@pytest.mark.parametrize("count", [0, 1])
@pytest.mark.parametrize("glued", [True, False])
@EVERY_CUT
def test_a_row_cut_twice_is_exact_or_reported(layout: Layout, count: int, *, glued: bool, every: int) -> None:
    text = cells(layout, rows_of(layout)[1]).text
    for first, second in combinations(range(0, len(text) + 1, max(every, 4)), 2):
        pieces = (text[:first], text[first:second], text[second:])
        lines = torn(pieces, "node0", count, glued=glued)
        outcome = verdict(layout, only(around(layout, lines, known="node0")))
        assert outcome == "exact" or not (glued and count)


@pytest.mark.parametrize("tag", ["[1,0]<stdout>: ", "[1,0]<stdout>:", "(head, rank=0, pid=8) [1,0]<stdout>:"])
@pytest.mark.parametrize("glued", [True, False])
@EVERY_CUT
def test_a_row_cut_at_any_byte_behind_a_launchers_tag_is_exact(tag: str, *, glued: bool, every: int) -> None:
    layout = Layout()
    text = cells(layout, rows_of(layout)[1]).text
    for cut in range(0, len(text) + 1, every):
        lines = torn((text[:cut], text[cut:]), "node0", 3, glued=glued)
        tagged = "\n".join(tag + line for line in around(layout, lines, known="node0").split("\n"))
        assert verdict(layout, only(tagged)) == "exact", f"cut at {cut}"


@EVERY_CUT
def test_a_row_that_lost_its_blanks_to_a_launcher_is_exact_or_reported(every: int) -> None:
    layout = Layout()
    text = cells(layout, rows_of(layout)[1]).text
    counts: Counter[str] = Counter()
    for cut in range(0, len(text) + 1, every):
        lines = torn((text[:cut].rstrip(), text[cut:].lstrip()), "node0", 1, glued=False)
        counts[verdict(layout, only(around(layout, lines, known="node0")))] += 1
    assert counts["exact"] > counts["reported"]


@pytest.mark.parametrize("wrong", [96, 1048576])
@EVERY_CUT
def test_a_count_of_wrong_elements_that_was_cut_is_whole_again(wrong: int, every: int) -> None:
    layout = Layout()
    row = Row(size=1 << 20, out_of_place=half(layout, 1 << 20, 41.0), in_place=half(layout, 1 << 20, 43.0, wrong=wrong))
    text = cells(layout, row).text
    for cut in range(0, len(text) + 1, every):
        lines = torn((text[:cut], text[cut:]), "node0", 2, glued=True)
        judged = only("\n".join([*log(layout, sweep(layout), footer=False, host="node"), *lines]))
        assert found(judged) == points(layout, [*sweep(layout), row]), f"cut at {cut}"
        assert judged.outcome == "corrupt"


def test_every_row_of_a_table_torn_at_another_byte() -> None:
    layout = Layout()
    rows = sweep(layout, high=1 << 30)
    lines = log(layout, rows[:1], footer=False)
    for number, row in enumerate(rows[1:]):
        text = cells(layout, row).text
        cut = (number * 7) % len(text)
        lines += torn((text[:cut], text[cut:]), "node0", number, glued=True)
    judged = only("\n".join([*lines, *footer_lines(layout, rows)]))
    assert found(judged) == points(layout, rows)
    assert judged.outcome == "ok"
