"""Any table survives any prefix, any debug lines between its own, and any cut."""

import random

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fabbench.model.log import Log
from tests.support.nccl_layouts import Layout, Row, cells, footer_lines, header, log, points, sweep
from tests.support.nccl_strategies import HOSTS, NOISE, PREFIXES, Prefix, debug_lines, known_hosts, tables
from tests.support.read_logs import found, read, read_live

Table = tuple[Layout, list[Row]]
SEEDS = st.integers(0, 2**32)


def only(text: str) -> Log:
    (judged,) = read(text)
    return judged


def behind(prefixes: list[Prefix], lines: list[str]) -> list[str]:
    """Put every line behind the prefixes, the first one outermost."""
    for prefix in reversed(prefixes):
        lines = [prefix(line, number) for number, line in enumerate(lines)]
    return lines


@pytest.mark.parametrize("prefix", PREFIXES)
def test_every_prefix_is_cut_from_every_line(prefix: Prefix) -> None:
    layout = Layout()
    rows = sweep(layout)
    judged = only("\n".join(behind([prefix], log(layout, rows))))
    assert judged.outcome == "ok", judged.reason
    assert {**judged.facts} == {**only("\n".join(log(layout, rows))).facts}
    assert found(judged) == points(layout, rows)


@pytest.mark.slow
@pytest.mark.parametrize("era", ["1.0", "2.19.6"])
def test_any_two_prefixes_may_be_stacked(era: str) -> None:
    layout = Layout(era=era)
    rows = sweep(layout, low=1 << 20, high=1 << 22)
    lines = log(layout, rows)
    for first, outer in enumerate(PREFIXES):
        for second, inner in enumerate(PREFIXES):
            judged = only("\n".join(behind([outer, inner], lines)))
            assert found(judged) == points(layout, rows), (first, second)
            assert judged.outcome == "ok"
            assert judged.facts["ranks"] == layout.ranks


@given(tables(), st.sampled_from(PREFIXES))
def test_any_table_survives_any_prefix(table: Table, prefix: Prefix) -> None:
    layout, rows = table
    judged = only("\n".join(behind([prefix], log(layout, rows))))
    assert found(judged) == points(layout, rows)
    assert judged.outcome == "ok", judged.reason
    assert judged.damaged == ()
    assert judged.facts["ranks"] == layout.ranks


@given(tables(), SEEDS)
def test_any_table_survives_debug_lines_of_any_rank_and_other_text_between_its_rows(table: Table, seed: int) -> None:
    layout, rows = table
    chance = random.Random(seed)
    lines = known_hosts()
    for line in log(layout, rows):
        lines += debug_lines(chance, 3)
        lines += chance.choices(NOISE, k=chance.randint(0, 1))
        lines.append(line)
    judged = only("\n".join(lines))
    assert found(judged) == points(layout, rows)
    assert judged.outcome == "ok", judged.reason
    assert judged.damaged == ()


@given(tables(), SEEDS)
def test_any_table_survives_tears_in_every_row(table: Table, seed: int) -> None:
    layout, rows = table
    chance = random.Random(seed)
    lines = [*known_hosts(), *log(layout, rows, footer=False)[: -len(rows)]]
    for row in rows:
        text = cells(layout, row).text
        cut = chance.randint(0, len(text))
        noise = debug_lines(chance, 6)
        lines += [text[:cut] + noise[0], *noise[1:], text[cut:]] if noise else [text]
    judged = only("\n".join([*lines, *footer_lines(layout, rows)]))
    assert found(judged) == points(layout, rows)
    assert judged.outcome == "ok", judged.reason


@given(tables(), SEEDS)
def test_what_is_given_of_a_text_cut_anywhere_is_exact(table: Table, seed: int) -> None:
    layout, rows = table
    lines = log(layout, rows)
    text = "\n".join(lines)
    cut = random.Random(seed).randint(0, len(text))
    whole = text[:cut].count("\n")
    begun = lines.index(cells(layout, rows[0]).text)
    logs = read(text[:cut])
    assert len(logs) <= 1
    judged = logs[0] if logs else None
    expected = points(layout, rows)
    given = found(judged) if judged else []
    assert given == expected[: len(given)]
    sides = len(expected) // len(rows)
    assert len(given) % sides == 0
    missing = min(max(whole - begun, 0), len(rows)) - len(given) // sides
    assert missing <= 0, "a whole row is missing"
    last = lines[whole][: cut - (text[:cut].rfind("\n") + 1)]
    if begun <= whole < begun + len(rows) and last.strip() and missing == 0:
        assert judged is not None
        assert [damaged.text for damaged in judged.damaged] == [" ".join(last.split())]
    footer = next(number for number, line in enumerate(lines) if "Out of bounds" in line)
    if judged is not None and whole < footer:
        assert judged.outcome == "truncated"
        assert judged.facts["complete"] == "no"


@given(st.lists(st.tuples(tables(), st.booleans(), st.booleans()), min_size=2, max_size=4))
def test_several_runs_in_one_file_are_several_logs(runs: list[tuple[Table, bool, bool]]) -> None:
    text: list[str] = []
    for number, ((layout, rows), whole, command) in enumerate(runs):
        text += [f"$ ./build/{layout.case}_perf -b 8"] if command else []
        text += log(layout, rows, footer=whole, pid=1000 * (number + 1))
    logs = read("\n".join(text))
    assert [found(judged) for judged in logs] == [points(layout, rows) for (layout, rows), _, _ in runs]
    assert [judged.outcome for judged in logs] == ["ok" if whole else "truncated" for _, whole, _ in runs]


@given(tables(), tables(), st.integers(0, 40))
def test_a_run_that_was_cut_before_its_first_row_is_a_log_of_its_own(first: Table, second: Table, cut: int) -> None:
    layout, rows = first
    head = log(layout, rows, footer=False)[: -len(rows)]
    assume(cut < len(head))
    left, whole = head[: len(head) - cut], log(*second, pid=5000)
    # A title of a new program, and the rest of an old one's header, which has no title, read as one header.
    assume(not left[-1].startswith("# Collective test starting") or whole[0].startswith("# nccl-tests version"))
    logs = read("\n".join([*left, *whole]))
    assert found(logs[-1]) == points(*second)
    assert logs[-1].outcome == "ok", logs[-1].reason
    assert [judged.outcome for judged in logs[:-1]] in ([], ["truncated"])


@given(st.integers(2, 4), st.booleans(), SEEDS)
def test_copies_that_know_nothing_of_each_other_are_one_failure_with_all_rows(
    copies: int, tagged: bool, seed: int
) -> None:
    layout = Layout(ranks=1)
    rows = sweep(layout, high=512)
    # Their banners, then their tables, line by line in any order that keeps each copy's own.
    own = [log(layout, rows, host=f"host{copy}-", pid=1000 * (copy + 1)) for copy in range(copies)]
    begun = own[0].index("# Using devices") + 1
    order = random.Random(seed)
    lines = [line for copy in range(copies) for line in tag(own[copy][:begun], copy, on=tagged)]
    rest = [tag(lines_[begun:], copy, on=tagged) for copy, lines_ in enumerate(own)]
    for step in range(len(rest[0])):
        turn = [lines_[step] for lines_ in rest]
        order.shuffle(turn)
        lines += turn
    (judged,) = read("\n".join(lines))
    assert judged.outcome == "failed"
    assert "without MPI" in (judged.reason or "")
    expected = points(layout, rows) * copies
    if tagged:
        expected = [
            (size, {**labels, "rank": str(copy)}, values)
            for copy in range(copies)
            for size, labels, values in points(layout, rows)
        ]
    assert sorted(map(repr, found(judged))) == sorted(map(repr, expected))


def tag(lines: list[str], rank: int, *, on: bool) -> list[str]:
    return [f"[1,{rank}]<stdout>: {line}" for line in lines] if on else lines


@given(tables(), SEEDS)
def test_line_by_line_in_blocks_or_whole_gives_the_same(table: Table, seed: int) -> None:
    layout, rows = table
    chance = random.Random(seed)
    lines = known_hosts()
    for line in log(layout, rows):
        noise = debug_lines(chance, 2)
        cut = chance.randint(0, len(line))
        lines += [line[:cut] + noise[0], *noise[1:], line[cut:]] if noise and line[:1] == " " else [line]
    whole = read("\n".join(lines))
    live_points, live_logs = read_live(lines)
    assert live_logs == whole
    assert live_points == [point for judged in whole for point in judged.points]


@given(st.sampled_from(HOSTS), tables())
@example("4711", (Layout(), sweep(Layout())))
def test_device_lines_name_the_hosts_that_debug_text_is_cut_at(host: str, table: Table) -> None:
    layout, rows = table
    lines = [line.replace("node0 ", f"{host} ") for line in log(layout, rows[:1], footer=False)[:-1]]
    text = cells(layout, rows[0]).text
    torn = [f"{text[:30]}{host}:1:1 [0] NCCL INFO AllReduce: 8 Bytes", text[30:]]
    judged = only("\n".join([*lines, *torn, *footer_lines(layout, rows[:1])]))
    assert found(judged) == points(layout, rows[:1])
    assert judged.facts.get("hosts", 1) == 1


def test_a_table_of_one_rank_among_the_lines_of_others() -> None:
    layout = Layout(ranks=8)
    rows = sweep(layout)
    lines = []
    for line in log(layout, rows):
        lines.append(f"[1,0]<stdout>: {line}")
        lines += [f"[1,{rank}]<stdout>: node0:1:{rank} [0] NCCL INFO comm 0x1 rank {rank}" for rank in (1, 5)]
        lines.append("[1,3]<stderr>: something else")
    judged = only("\n".join(lines))
    assert judged.outcome == "ok"
    assert found(judged) == points(layout, rows)
    assert all("rank" not in point.labels for point in judged.points)


def test_a_header_that_is_repeated_by_an_excerpt_does_not_hide_the_rows() -> None:
    layout = Layout()
    rows = sweep(layout)
    lines = [*header(layout), *(cells(layout, row).text for row in rows), *footer_lines(layout, rows)]
    judged = only("\n".join(lines))
    assert judged.outcome == "ok"
    assert found(judged) == points(layout, rows)
