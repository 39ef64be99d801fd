"""The NVSHMEM perftests' output: real logs, every layout, and what depends on the version."""

import random
import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import compare
from fabbench.benchmarks.nvshmem import BENCHMARK
from fabbench.model.log import Log, Point, Severity
from fabbench.model.plan import Proof
from fabbench.runs.parse_file import parse_file
from tests.support import nvshmem_text as written
from tests.support.nvshmem_text import LAYOUTS, Expected, Table, alltoall, dump, present, put_bw, start
from tests.support.read_logs import LOGS, read

VALUES = [(1024, "0.750000"), (1048576, "20.125000"), (8388608, "22.062500")]
FOLDER = LOGS / "nvshmem"


def one(lines: Sequence[str], proof: Proof | None = None) -> Log:
    (log,) = read("\n".join(lines), proof)
    return log


def said(point: Point) -> Expected:
    return point.size, frozenset(point.labels.items()), tuple(zip(point.metrics, point.values, strict=True))


def codes(log: Log) -> list[str]:
    return [finding.code for finding in log.findings]


def values(log: Log, metric: str) -> list[float]:
    return [sample.value for sample in log.samples() if sample.metric == metric]


def sizes(log: Log) -> list[int]:
    return [point.size for point in log.points]


# ---------------------------------------------------------------- real logs


@pytest.mark.parametrize(
    ("name", "case", "points", "ranks", "last"),
    [
        ("alltoall_latency", "alltoall_latency", 43, 4, (8388608, 401.207695, 20.908, 15.681)),
        ("reduction_latency", "reduction_latency", 273, 4, (4194304, 12.448640, 336.929, 505.393)),
        ("shmem_put_bw", "shmem_put_bw", 12, 2, (33554432, 303.861542)),
        ("put_bw-bi", "shmem_put_bw", 12, 2, (33554432, 562.371490)),
    ],
)
def test_recorded_logs(name: str, case: str, points: int, ranks: int, last: tuple[float, ...]) -> None:
    (log,) = parse_file(FOLDER / f"{name}.txt")
    assert (log.benchmark, log.case, log.outcome, log.reason) == ("nvshmem", case, "ok", None)
    assert (len(log.points), log.damaged) == (points, ())
    counts = {"ranks": ranks, "hosts": 1, "gpus_per_host": ranks, "iterations": 200, "complete": "unknown"}
    assert {name: log.facts.get(name) for name in counts} == counts
    size, *figures = last
    scales = [1e-6, 1e9, 1e9] if len(figures) > 1 else [1e9]
    assert log.points[-1].size == size
    assert log.points[-1].values == pytest.approx([f * s for f, s in zip(figures, scales, strict=True)])


def test_tables_of_one_program_are_told_apart_by_their_labels() -> None:
    (log,) = parse_file(FOLDER / "reduction_latency.txt")
    kinds = {tuple(point.labels.values()) for point in log.points}
    assert len(kinds) == 42
    assert {"dtype": "int64", "redop": "xor", "scope": "thread"} in [point.labels for point in log.points]
    keys = [(point.size, *point.labels.values()) for point in log.points]
    assert len(set(keys)) == len(keys)


def test_both_directions_are_labelled_and_sizes_that_move_nothing_are_told() -> None:
    (uni,) = parse_file(FOLDER / "shmem_put_bw.txt")
    (both,) = parse_file(FOLDER / "put_bw-bi.txt")
    assert {point.labels["direction"] for point in uni.points} == {"uni"}
    assert {point.labels["direction"] for point in both.points} == {"bi"}
    assert "8 B, 32 B, 128 B say nothing" in uni.findings[0].meaning
    assert codes(uni) == codes(both) == ["moves-nothing"]


# ---------------------------------------------------------------- every layout


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout(name: str) -> None:
    table = LAYOUTS[name](VALUES)
    log = one(table.lines)
    assert log.benchmark == "nvshmem"
    assert [said(point) for point in log.points] == table.points()
    assert (log.damaged, log.outcome) == ((), "ok")


TITLED = ["box_2", "box_2_bandwidth", "collective_3_1", "basic", "ping_pong", "collective_3_3", "pairs"]
"""Layouts whose title names the test."""


def heading(name: str) -> tuple[list[str], list[str], list[str]]:
    """Return a layout's lines: those up to its title, those up to its first row, and the rest."""
    table = LAYOUTS[name](VALUES)
    lines, first = list(table.lines), min(table.rows)
    at = next(at for at, text in enumerate(lines) if "device" in text or "shmem_" in text)
    return lines[: at + 1], lines[at + 1 : first], lines[first:]


@pytest.mark.parametrize("name", TITLED)
def test_a_table_that_lost_its_title_among_others_has_no_rows(name: str) -> None:
    """Its figures would pass for those of another test."""
    title, header, rows = heading(name)
    log = one([*title, *header, *rows, "", *header, *rows])
    assert [said(point) for point in log.points] == LAYOUTS[name](VALUES).points()
    assert (len(log.damaged), log.outcome) == (len(VALUES), "truncated")


def test_a_program_that_says_its_options_prints_a_title() -> None:
    _, header, rows = heading("basic")
    log = one([*start(2), *header, *rows])
    assert (log.points, len(log.damaged), log.outcome) == ([], len(VALUES), "truncated")
    excerpt = one([*header, *rows])
    assert (len(excerpt.points), excerpt.case, excerpt.outcome) == (len(VALUES), None, "ok")
    assert "test-unknown" in [finding.code for finding in excerpt.findings]


@pytest.mark.parametrize("name", TITLED)
def test_rows_below_a_title_without_a_header_are_damaged(name: str) -> None:
    title, header, rows = heading(name)
    rules = [text for text in header if text.startswith("+")]
    log = one([*title, *rules, *rows])
    assert (list(log.points), len(log.damaged), log.outcome) == ([], len(VALUES), "truncated")


@pytest.mark.parametrize("title", ["#alltoall_device", "#shmem_get_bw_un", "#shmem_get_bw_bid", "#get_dev"])
def test_rows_below_a_title_that_is_of_another_test_or_cut_are_damaged(title: str) -> None:
    _, header, rows = heading("basic")
    log = one([title, *header, *rows])
    assert (list(log.points), len(log.damaged), log.outcome) == ([], len(VALUES), "truncated")


@pytest.mark.parametrize("lost", [1, 5, 12])
def test_rows_below_a_header_that_is_cut_in_its_last_column_are_damaged(lost: int) -> None:
    title, (header,), rows = heading("collective_3_3")
    log = one([*title, header.rstrip()[:-lost], *rows])
    assert (list(log.points), len(log.damaged), log.outcome) == ([], len(VALUES), "truncated")


def test_the_title_of_machine_readable_rows_is_not_that_of_the_next_table() -> None:
    _, header, rows = heading("basic")
    log = one([*LAYOUTS["machine"](VALUES).lines, *header, *rows])
    assert [point.metrics for point in log.points] == [("latency",)] * len(VALUES)
    assert (len(log.damaged), log.outcome) == (len(VALUES), "truncated")


@pytest.mark.parametrize("name", TITLED)
def test_a_second_sweep_in_one_table_is_of_one_that_lost_its_header(name: str) -> None:
    table, (_, _, rows) = LAYOUTS[name](VALUES), heading(name)
    log = one([*table.lines, *rows])
    assert [said(point) for point in log.points] == table.points()
    assert (len(log.damaged), log.outcome) == (len(VALUES), "truncated")


def test_rows_of_another_scope_are_of_a_table_that_lost_its_heading() -> None:
    """Their sizes may even go on where the table above ends."""
    above, (_, _, below) = LAYOUTS["basic"](VALUES[:2]), heading("ping_pong")
    for rows in (below, below[2:]):
        log = one([*above.lines, *rows])
        assert [said(point) for point in log.points] == above.points()
        assert (len(log.damaged), log.outcome) == (len(rows), "truncated")


CASES = {
    "printf_1": "shmem_put_bw",
    "box_1": None,
    "box_2": "alltoall_latency",
    "box_2_bandwidth": "shmem_put_bw",
    "collective_3_1": "bcast_latency",
    "misprinted_3_1": "shmem_put_bw",
    "basic": "shmem_get_bw",
    "ping_pong": "shmem_put_ping_pong_latency",
    "collective_3_3": "reduction_latency",
    "on_stream_3_3": "reduction_on_stream",
    "pairs": "shmem_put_bw",
    "machine": "bcast_latency",
    "machine_statistics": "shmem_get_bw",
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_case_is_the_programs_name(name: str) -> None:
    lines = LAYOUTS[name](VALUES).lines
    assert one(lines).case == CASES[name]
    assert one(["$ mpirun -n 2 /opt/nvshmem/bin/perftest/device/p_bw -b 8", *lines]).case == "p_bw"


foreign = st.lists(
    st.sampled_from(
        [
            *(line.replace("bidirectional: 0, ", "") for line in dump()),
            present(1),
            present(2),
            "",
            "   ",
            "some library: loaded 3 plugins",
            "node1:77:80 [0] NCCL INFO NET/Plugin: none",
            "node1:77:80 [0] NVSHMEM INFO something",
            "# a remark of 2 words",
            "0.5 seconds later",
        ]
    ),
    max_size=4,
    unique=True,
)
tables = st.tuples(
    st.sampled_from(sorted(LAYOUTS)),
    st.lists(
        st.tuples(st.integers(1, 1 << 34), st.integers(10_000, 10**12).map(lambda n: f"{n / 10**6:.6f}")),
        min_size=1,
        max_size=6,
        unique_by=lambda row: row[0],
    ).map(sorted),
)
prefixes = st.sampled_from(["", "[1,0]<stdout>:", "[1,0]<stdout>: ", "0: ", "(head, rank=0, pid=12) ", "[rank 0] "])


@given(tables, foreign, st.randoms(use_true_random=False), prefixes, st.booleans())
def test_any_table_survives_prefixes_foreign_lines_and_terminals(
    chosen: tuple[str, list[tuple[int, str]]], others: list[str], chance: random.Random, prefix: str, stripped: bool
) -> None:
    table = LAYOUTS[chosen[0]](chosen[1])
    lines = list(table.lines)
    first = min(table.rows)
    for other in others:
        lines.insert(chance.randrange(first, len(lines) + 1), other)
    text = "\n".join(prefix + (line.rstrip() if stripped else line) for line in lines)
    (log,) = read(text)
    assert [said(point) for point in log.points] == table.points()
    assert log.damaged == ()


def test_a_row_that_lost_its_head_is_damaged() -> None:
    lines = (LOGS / "nvshmem/shmem_put_bw.txt").read_text().splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("32768 "))
    lines[at] = lines[at][2:]
    (log,) = read("\n".join(lines))
    assert (log.outcome, [row.line for row in log.damaged]) == ("truncated", [at + 1])


@given(tables, st.floats(0, 1))
def test_a_table_cut_anywhere_loses_no_row_unseen_and_gains_none(
    chosen: tuple[str, list[tuple[int, str]]], where: float
) -> None:
    table = LAYOUTS[chosen[0]](chosen[1])
    check_cut(table, int(where * len("\n".join(table.lines))))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_row_cut_at_each_character(name: str) -> None:
    table = LAYOUTS[name](VALUES[:2])
    first = max(table.rows)
    start_of_row = sum(len(line) + 1 for line in table.lines[:first])
    for length in range(start_of_row, len("\n".join(table.lines)) + 1):
        check_cut(table, length)


def check_cut(table: Table, length: int) -> None:
    cut = "\n".join(table.lines)[:length]
    lines = cut.split("\n")
    last, visible = len(lines) - 1, lines[-1]
    before = table.points(last)
    logs = read(cut)
    found = [said(point) for log in logs for point in log.points]
    damaged = [row for log in logs for row in log.damaged]
    if last not in table.rows or not visible.strip():
        assert (found, damaged) == (before, [])
    elif found == before:
        assert [row.line for row in damaged] == [last + 1]
        assert [log.outcome for log in logs] == ["truncated"]
    else:
        assert (found, damaged) == (table.points(), []) or found == table.points(last + 1)
        # Nothing of the figures may be missing: at most blanks, or the end of a unit, or of a count.
        assert re.fullmatch(r" *(?:/s?e?c?|ec|c|0)?", table.lines[last].removeprefix(visible))


def test_a_box_without_its_last_rule_is_cut() -> None:
    lines = LAYOUTS["box_2"](VALUES).lines
    assert one(lines[:-1]).outcome == "truncated"
    assert one(lines).outcome == "ok"


def plausible(point: Point, lines: list[list[str]]) -> bool:
    """Whether one line has the size and every value of a point."""
    # By the number of PEs, of which some may be lost, sizes and bandwidths of some versions are multiplied.
    known = {str(point.size), str(point.size // 2), str(point.size // 4), str(point.labels.get("threads"))}
    for words in lines:
        if known & set(words):
            numbers = [float(word) for word in words if re.fullmatch(r"\d+(?:\.\d+)?", word)]
            scaled = {number * scale for number in numbers for scale in (1e-6, 1e9, 2e9, 4e9, 2**30, 1e6)}
            if all(any(abs(value - other) <= 1e-9 * abs(value) for other in scaled) for value in point.values):
                return True
    return False


@pytest.mark.parametrize("seed", range(60))
def test_garbage_gives_no_exception_and_no_row_that_is_not_there(seed: int) -> None:
    chance = random.Random(seed)
    sources = [layout(VALUES).lines for layout in LAYOUTS.values()]
    sources += [tuple(start(4)), tuple(alltoall(4, [1024, 1 << 20])), ("This test requires exactly two processes ",)]
    lines = [line for _ in range(6) for line in chance.choice(sources)]
    for _ in range(chance.randrange(12)):
        at = chance.randrange(len(lines))
        line = lines[at]
        cut = chance.randrange(len(line) + 1)
        lines[at] = chance.choice(
            [
                line[:cut],
                line[cut:],
                line[:cut] + chance.choice("|#&.0 9\x00eé_") + line[cut:],
                line + chance.choice(lines),
                chance.choice(lines),
            ]
        )
    text = "\n".join(lines)
    words = [re.findall(r"\d+\.\d+|\d+|[^\d\s]+", line) for line in lines]
    for log in read(text):
        for point in log.points:
            assert plausible(point, words), point


# ---------------------------------------------------------------- what depends on the version


def perf(*rows: str) -> list[str]:
    return ["shmem_put_bw_uni", *(f"&&&& PERF shmem_put_bw_uni___None___{row} +GB/sec" for row in rows)]


@pytest.mark.parametrize(
    ("version", "unit", "value"),
    [
        ("2.11.0", "GiB/s", 20.125 * 2**30),
        ("3.1.7", "GiB/s", 20.125 * 2**30),
        ("3.2.5", "GB/s", 20.125e9),
        ("3.10.0", "GB/s", 20.125e9),
        ("", "ambiguous", 20.125e9),
    ],
)
def test_gigabytes_between_two_pes_depend_on_the_version(version: str, unit: str, value: float) -> None:
    log = one([*start(2, version=version), *perf("size__1048576___BW 20.125000")])
    assert (log.facts["unit"], values(log, "bandwidth")) == (unit, [value])
    assert ("unit-ambiguous" in codes(log)) == (not version)
    assert log.facts.get("nvshmem", "") == version


def test_a_layout_of_one_version_needs_no_version() -> None:
    units = {name: one(layout(VALUES).lines).facts.get("unit") for name, layout in LAYOUTS.items()}
    old = {"printf_1", "box_2_bandwidth", "misprinted_3_1"}
    new = {"basic", "pairs", "machine_statistics"}
    assert {name for name, unit in units.items() if unit == "GiB/s"} == old
    assert {name for name, unit in units.items() if unit == "GB/s"} == new
    assert {units[name] for name in units.keys() - old - new} == {None}


def test_the_tables_count_more_than_the_version_of_the_library() -> None:
    log = one([*start(2, version="3.4.5"), *LAYOUTS["misprinted_3_1"](VALUES).lines])
    assert (log.facts["unit"], log.facts["nvshmem"]) == ("GiB/s", "3.4.5")
    assert "version-mismatch" in codes(log)


@pytest.mark.parametrize(
    ("version", "means", "factor"), [("3.1.7", "total", 1), ("3.2.5", "total", 8), ("", "ambiguous", 1)]
)
def test_the_size_of_alltoall_depends_on_the_version(version: str, means: str, factor: int) -> None:
    lines = alltoall(8, [1024, 1 << 20], count=False)
    log = one([*start(8, version=version), *lines])
    assert (log.facts["ranks"], log.facts["size_means"]) == (8, means)
    assert sizes(log) == [1024 * factor, (1 << 20) * factor]
    printed = [float(line.split()[-2]) for line in lines[2:]]
    assert values(log, "algbw") == pytest.approx([number * factor * 1e9 for number in printed])
    assert values(log, "latency")[0] == pytest.approx((100 + 1024 / 1e4) * 1e-6)
    assert codes(log) == {"3.1.7": [], "3.2.5": ["size-per-pe"], "": ["size-ambiguous"]}[version]


@pytest.mark.parametrize(
    ("version", "means", "factor"),
    [("3.0.6", "total", 4), ("3.1.7", "total", 1), ("3.2.5", "total", 4), ("3.3.9", "total", 1), ("", "ambiguous", 1)],
)
def test_the_size_of_machine_readable_alltoall_depends_on_the_version(version: str, means: str, factor: int) -> None:
    row = "&&&& PERF alltoall_device___32-bit-block___size__1024___latency 8.375000 -us"
    log = one([*start(4, version=version), "alltoall_device", row])
    assert (log.facts["size_means"], sizes(log)) == (means, [1024 * factor])


def test_the_size_stays_as_printed_where_nobody_knows_the_number_of_pes() -> None:
    log = one(LAYOUTS["box_2"](VALUES).lines)
    assert (log.facts["size_means"], sizes(log)) == ("per-pe", [size for size, _ in VALUES])
    assert "size-per-pe" in codes(log)


def test_sizes_are_multiplied_by_a_number_of_pes_that_is_sure_only() -> None:
    table = LAYOUTS["box_2"](VALUES).lines
    whole = start(4)
    assert sizes(one([*whole, *table])) == [4 * size for size, _ in VALUES]
    assert sizes(one([*whole[:-1], *table])) == [size for size, _ in VALUES]
    assert sizes(one([*whole[:-4], *map(present, (1, 2, 3)), *table])) == [size for size, _ in VALUES]


def test_the_footer_tells_3_1_and_on_stream_programs_and_counts_need_no_version() -> None:
    lines = alltoall(8, [1024, 1 << 20], count=False)
    footer = ["", "# Avg bus bandwidth    : 21.5279", ""]
    assert one([*lines, *footer]).facts["size_means"] == "total"
    on_stream = alltoall(8, [1024, 1 << 20], count=False, job="alltoall_on_stream")
    assert one(on_stream).facts["size_means"] == "total"
    assert one(alltoall(8, [1024, 1 << 20])).facts["size_means"] == "total"
    assert one(lines).facts["size_means"] == "ambiguous"


def test_reductions_and_broadcasts_have_one_size() -> None:
    for name in ("collective_3_1", "collective_3_3", "on_stream_3_3", "machine"):
        assert "size_means" not in one(LAYOUTS[name](VALUES).lines).facts


def test_point_to_point_rows_of_3_1_say_what_they_are_by_their_job() -> None:
    title, *rest = LAYOUTS["misprinted_3_1"](VALUES).lines
    by_complaint = one(rest)
    assert values(by_complaint, "bandwidth") == values(one([title, *rest]), "bandwidth")
    latency = one([title.replace("bw_bidi", "latency"), *(line.replace("bw_bidi", "latency") for line in rest)])
    assert values(latency, "latency") == pytest.approx([float(value) * 1e-6 for _, value in VALUES])
    assert {point.labels["way"] for point in latency.points} == {"one-way"}
    nobody = one([line for line in rest if not line.startswith("Job")])
    assert (nobody.points, len(nobody.damaged), nobody.outcome) == ([], 3, "truncated")


def test_barriers_have_threads_and_no_size() -> None:
    row = f"{32:<10}  {'block':<8}  {'1.500000':<16}"
    log = one(["#barrier_device", "size(B)     scope     latency (us)    ", row])
    assert (log.case, said(log.points[0])) == (
        "barrier_latency",
        (0, frozenset({("scope", "block"), ("threads", "32")}), (("latency", 1.5e-6),)),
    )
    assert codes(log) == ["threads-not-size"]
    by_machine = one(["&&&& PERF barrier_device___block___threads__32___latency 1.500000 -us"])
    assert said(by_machine.points[0]) == said(log.points[0])


def test_a_message_rate() -> None:
    row = "&&&& PERF shmem_put_bw_uni___None___size__8___msgrate 12.500000 +MMPS"
    log = one(["shmem_put_bw_uni", row])
    assert said(log.points[0]) == (8, frozenset({("direction", "uni")}), (("message_rate", 12.5e6),))


def test_bandwidth_that_is_no_number_is_left_out() -> None:
    log = one(put_bw([(8, "inf"), (1024, "0.750000")]))
    assert (sizes(log), log.damaged) == ([1024], ())
    assert "not-a-number" in codes(log)


def test_iterations_that_do_not_divide_a_million_make_figures_too_high() -> None:
    table = put_bw([(256, "0.750000")])
    assert "rounded-bandwidth" not in codes(one([*dump(iterations=200), *table]))
    (found,) = [f for f in one([*dump(iterations=300_000), *table]).findings if f.code == "rounded-bandwidth"]
    assert "11.1 % too high" in found.meaning


def test_sizes_that_were_asked_for_and_are_not_there() -> None:
    rows = [(size, "0.750000") for size in (8, 16, 32, 64)]
    assert "sizes-missing" not in codes(one([*dump(8, 64), *put_bw(rows)]))
    cut = one([*dump(8, 64), *put_bw(rows[:-1])])
    (found,) = [f for f in cut.findings if f.code == "sizes-missing"]
    assert found.meaning.endswith("missing: 64 B.")
    assert (cut.outcome, cut.reason) == ("truncated", found.meaning)


def test_sizes_that_move_nothing_follow_the_number_of_blocks() -> None:
    rows = [(size, "0.750000") for size in (8, 16, 32, 64)]
    few = [line.replace("ctas: 32", "ctas: 4") for line in dump(8, 64)]
    (found,) = one([*few, *put_bw(rows)]).findings
    assert found.meaning.startswith("Below 32 B (8 bytes for each of 4 thread blocks)")
    assert "8 B, 16 B say nothing" in found.meaning
    assert "moves-nothing" not in codes(one([*few, *put_bw(rows[2:])]))
    assert codes(one([*few, *put_bw(rows, "shmem_p_bw_uni")])) == []


def test_mislabelled_sizes_of_fcollect() -> None:
    table = alltoall(2, [1024, 1 << 20], job="fcollect_device")
    assert codes(one([*dump(low=16), *table])) == ["sizes-mislabelled"]
    assert codes(one([*dump(low=8), *table])) == []


# ---------------------------------------------------------------- PEs


@pytest.mark.parametrize("pes", [2, 3, 8, 16, 32])
def test_the_number_of_pes_follows_from_the_arithmetic(pes: int) -> None:
    assert one(alltoall(pes, [1 << power for power in range(10, 31)])).facts["ranks"] == pes


@pytest.mark.parametrize("pes", [2, 8, 64])
def test_reductions_have_another_factor(pes: int) -> None:
    lines = []
    for size in (1 << 20, 1 << 30):
        latency = 100 + size / 1e4
        algbw = size / 1e3 / latency
        cells = f"{latency:<16.6f}  {algbw:<12.3f}  {algbw * 2 * (pes - 1) / pes:<12.3f}"
        lines.append(f"{size:<10}  {size // 4:<8}  int       sum       block     {cells}")
    title, header = LAYOUTS["collective_3_3"](VALUES).lines[:2]
    assert one([title, header, *lines]).facts["ranks"] == pes
    # Without the title, 1 may also be the ratio of a broadcast.
    assert one([header, *lines]).facts.get("ranks") == (pes if pes > 2 else None)


def test_a_number_of_pes_that_the_digits_do_not_tell_is_not_told() -> None:
    assert "ranks" not in one(alltoall(700, [1 << 14])).facts
    assert "ranks" not in one(put_bw(VALUES)).facts


def test_pes_and_nodes_by_what_they_say() -> None:
    facts = one([*start(16, per_node=8), *alltoall(16, [1024])]).facts
    assert (facts["ranks"], facts["hosts"], facts["gpus_per_host"]) == (16, 2, 8)
    some = [line for line in start(16, per_node=8) if "mype: 3 " not in line]
    facts = one([*some, *alltoall(16, [1024])]).facts
    assert (facts["ranks"], "hosts" in facts) == (16, False)
    glued = [*map(present, (0, 1)), present(2) + present(3), *alltoall(4, [1024])]
    assert one(glued).facts["ranks"] == 4


def test_processes_that_did_not_find_each_other() -> None:
    lines = [*dump(), *dump(), present(0), present(0)]
    log = one([*lines, *alltoall(1, [1024]), *alltoall(1, [1024])])
    assert (log.outcome, log.facts["ranks"]) == ("failed", 1)
    assert "did not find each other" in (log.reason or "")


# ---------------------------------------------------------------- executions


def test_what_other_pes_print_inside_a_table_belongs_to_it() -> None:
    head, table = start(16), alltoall(16, [1024, 4096, 16384])
    early = [*(line for _ in range(8) for line in dump()), *map(present, range(8))]
    late = [line for pe in range(8, 16) for line in (*dump(), present(pe))]
    spliced = one([*early, *table[:3], *late, *table[3:]])
    assert spliced.points == one([*head, *table]).points
    assert spliced.facts == one([*head, *table]).facts
    behind = one([*early, *table, *late])
    assert (behind.points, behind.facts["ranks"]) == (spliced.points, 16)


def test_programs_one_after_another() -> None:
    text = "\n".join([*start(2), *put_bw(VALUES), *start(4), *alltoall(4, [1024, 1 << 20]), *start(2), *put_bw(VALUES)])
    logs = read(text)
    assert [(log.case, log.facts["ranks"], len(log.points)) for log in logs] == [
        ("shmem_put_bw", 2, 3),
        ("alltoall_latency", 4, 2),
        ("shmem_put_bw", 2, 3),
    ]


def test_programs_without_anything_but_tables() -> None:
    tables = [put_bw(VALUES), put_bw(VALUES), alltoall(4, [1024]), alltoall(4, [1024], scope="warp")]
    logs = read("\n".join(line for table in tables for line in table))
    assert [(log.case, len(log.points)) for log in logs] == [
        ("shmem_put_bw", 3),
        ("shmem_put_bw", 3),
        ("alltoall_latency", 2),
    ]


def test_a_program_that_runs_again_with_other_sizes() -> None:
    logs = read("\n".join([*start(2), *put_bw(VALUES[:1]), *start(2), *put_bw(VALUES[1:])]))
    assert [sizes(log) for log in logs] == [[1024], [1048576, 8388608]]
    logs = read("\n".join([*dump(8, 64), *put_bw(VALUES[:1]), *dump(8, 128), *put_bw(VALUES[1:])]))
    assert [sizes(log) for log in logs] == [[1024], [1048576, 8388608]]


def test_a_program_that_says_when_it_starts_has_not_started_again() -> None:
    log = one([*start(2), *put_bw(VALUES), *put_bw(VALUES)])
    assert sizes(log) == [size for size, _ in VALUES] * 2


def test_machine_readable_programs_one_after_another() -> None:
    rows = perf("size__8___BW 1.000000", "size__16___BW 2.000000")
    assert [len(log.points) for log in read("\n".join([*rows, *rows]))] == [2, 2]
    assert [len(log.points) for log in read("\n".join([*rows[1:], *rows[1:]]))] == [2, 2]


def test_command_lines_begin_executions() -> None:
    command = "$ mpirun -np 2 -x PATH /opt/nvshmem/perftest/device/shmem_put_bw -b 8 -e 64"
    logs = read("\n".join([command, *put_bw(VALUES[:1]), command, *put_bw(VALUES[1:])]))
    assert [sizes(log) for log in logs] == [[1024], [1048576, 8388608]]


def test_an_execution_that_comes_to_no_row_is_not_lost() -> None:
    logs = read("\n".join([*start(2), *put_bw(VALUES), *start(2)]))
    assert [(log.outcome, len(log.points)) for log in logs] == [("ok", 3), ("truncated", 0)]
    logs = read("\n".join([*start(2), *put_bw(VALUES), *dump(), *dump()]))
    assert [log.outcome for log in logs] == ["ok", "truncated"]


def test_empty_tables_are_counted() -> None:
    empty = alltoall(4, [])
    log = one([*start(4), *empty * 5])
    assert (log.outcome, log.case, codes(log)) == ("truncated", "alltoall_latency", ["empty-tables"])
    assert log.findings[0].meaning == "5 tables have no row."
    log = one([*start(4), *empty, *alltoall(4, [1024]), *empty])
    assert (log.outcome, len(log.points), log.findings[0].meaning) == ("ok", 1, "2 tables have no row.")


def test_a_title_that_a_terminal_glued_to_the_header() -> None:
    title, header, *rows = put_bw(VALUES)
    log = one([f"{title}{' ' * 80}{header}{' ' * 60}[7/1998]", *(row + " " * 40 for row in rows)])
    assert (log.case, sizes(log)) == ("shmem_put_bw", [1024, 1048576, 8388608])
    assert {point.labels["direction"] for point in log.points} == {"uni"}


def test_captions_are_no_titles() -> None:
    for caption in ("# 3.5.21", "3.6.5 (before fix):", "# after the fix"):
        log = one([caption, *alltoall(32, [1 << 30])[1:]])
        assert (log.case, log.facts["ranks"], len(log.points)) == (None, 32, 1)
    assert one(["#remark", *["", ""] * 5, *alltoall(32, [1 << 30])[1:]]).case is None


def test_rows_with_text_of_others_inside_are_damaged_and_nothing_is_made_of_them() -> None:
    table = alltoall(4, [1024, 4096, 16384])
    torn = table[3][:35] + dump()[0]
    log = one([*start(4), *table[:3], torn, table[3][35:], table[4]])
    assert sizes(log) == [1024, 16384]
    assert [row.text for row in log.damaged] == [torn.rstrip(), table[3][35:].rstrip()]
    assert log.outcome == "truncated"


def test_several_benchmarks_in_one_file() -> None:
    nccl = (LOGS / "nccl/allreduce-1proc-g4.txt").read_text()
    text = "\n".join([nccl, *start(2), *put_bw(VALUES), nccl])
    assert [log.benchmark for log in read(text)] == ["nccl", "nvshmem", "nccl"]


def test_three_tables_without_a_title_compare_as_one_table() -> None:
    powers = [1 << power for power in range(7, 31)]
    texts = [
        ["3.6.5 (before fix):", *alltoall(32, powers)[1:]],
        ["# 3.5.21", *(line.rstrip() for line in alltoall(32, powers)[1:])],
        alltoall(32, powers)[1:],
    ]
    columns = [Column(label=str(number), logs=(one(lines),), source=str(number)) for number, lines in enumerate(texts)]
    comparison = compare(columns)
    (section,) = comparison.sections
    assert [metric.name for metric in comparison.metrics] == ["busbw"]
    assert [row.size for row in section.rows] == powers
    assert {row.ratios[:2] for row in section.rows if row.size >= 1 << 20} == {(1.0, 1.0)}


# ---------------------------------------------------------------- failures and evidence


@pytest.mark.parametrize(
    "line",
    [
        "This test requires exactly two processes ",
        "src/host/init/init.cu:nvshmemi_check_state_and_init:933: nvshmem initialization failed, exiting ",
        "shmem_put_bw: unrecognized option '--nonsense'",
        "/opt/nvshmem/perftest/shmem_put_bw: invalid option -- 'Q'",
        "bash: line 1: shmem_put_bw: command not found",
        "node1:1:2 [0] NVSHMEM ABORT something ended",
    ],
)
def test_errors_make_a_failure(line: str) -> None:
    log = one([line])
    assert (log.benchmark, log.outcome) == ("nvshmem", "failed")
    assert " ".join(line.split()) in (log.reason or "")
    assert one([*start(2), *put_bw(VALUES), line]).outcome == "failed"


def test_an_error_that_rows_follow_is_a_warning() -> None:
    error = "src/modules/transport/ibrc/ibrc.cpp:1531: NULL value get_device_list failed"
    log = one([*start(2), error, "WARN: init failed for remote transport: ibrc", *put_bw(VALUES)])
    assert (log.outcome, codes(log)[-2:]) == ("ok", ["nvshmem-warning"] * 2)
    title, header, *rows = put_bw(VALUES)
    log = one([*start(2), title, header, error, rows[0][:20], *rows[1:]])
    assert (log.outcome, codes(log)[-1]) == ("truncated", "nvshmem-warning")
    log = one([*start(2), *put_bw(VALUES[:1]), error])
    assert (log.outcome, log.reason) == ("failed", f"NVSHMEM reported: {error}")


def test_equal_warnings_are_one_finding_that_says_how_often() -> None:
    said = [f"vm:1:{number} [0] x.cpp:7 NVSHMEM WARN queue {number} is full" for number in range(3)]
    log = one([*start(2), *said, "vm:1:1 [0] x.cpp:9 NVSHMEM WARN something else", *put_bw(VALUES)])
    assert [(found.meaning, found.line) for found in log.findings if found.code == "nvshmem-warning"] == [
        ("NVSHMEM warned 3 times, but still printed rows.", "NVSHMEM WARN queue 0 is full"),
        ("NVSHMEM warned, but still printed rows.", "NVSHMEM WARN something else"),
    ]


def test_going_without_nvlink_sharp_is_a_note() -> None:
    for log in read((LOGS / "runs/nvshmem-p2p.txt").read_text()):
        (found,) = (each for each in log.findings if each.code == "nvshmem-warning")
        assert found.severity is Severity.NOTE
        assert found.meaning.startswith("NVSHMEM warned 12 times that it does not use NVLink SHARP")
        assert found.line == "NVSHMEM WARN Skipping NVLINK SHARP resource initialized for team ID: 0"


def test_usage_instead_of_a_table() -> None:
    log = one([*dump(), "Usage: shmem_put_bw [options]"])
    assert (log.outcome, log.reason) == ("failed", "The program printed its usage text instead of running.")


SETTINGS = ["export NVSHMEM_REMOTE_TRANSPORT=libfabric", 'NVSHMEM_LIBFABRIC_PROVIDER="efa"']


@pytest.mark.parametrize(
    ("lines", "network", "found"),
    [
        (SETTINGS, "efa", []),
        (SETTINGS[:1], "libfabric", ["provider-unset"]),
        (SETTINGS[1:], None, ["provider-unused"]),
        ([], None, []),
        (["NVSHMEM_REMOTE_TRANSPORT=libfabric", "NVSHMEM_LIBFABRIC_PROVIDER=tcp"], "libfabric-tcp", []),
        (["NVSHMEM_REMOTE_TRANSPORT=ibrc", SETTINGS[1]], "ib", ["provider-unused"]),
        (["NVSHMEM_REMOTE_TRANSPORT: ucx"], "ucx", []),
    ],
)
def test_settings_name_the_network(lines: list[str], network: str | None, found: list[str]) -> None:
    log = one([*lines, *put_bw(VALUES[1:])])
    assert (log.facts.get("network"), codes(log)) == (network, found)
    assert ("network" in log.evidence) == (network is not None)


def test_settings_prove_nothing_and_can_contradict() -> None:
    lines = [*SETTINGS, *start(2), *put_bw(VALUES)]
    assert one(lines, Proof(fabric="efa")).outcome == "unproven"
    assert one(lines, Proof(fabric="ib")).outcome == "off-fabric"
    assert one(lines[2:], Proof(fabric="efa")).outcome == "unproven"
    assert BENCHMARK.transports("efa") == frozenset({"efa"})
    assert BENCHMARK.transports("ib") == frozenset({"ib"})


DEBUG = "node0:11:12 [0] NVSHMEM INFO "
USED = f"{DEBUG}Successfully initialized the transport: libfabric"
SELECTED = f"{DEBUG}Selected provider efa, fabric efa-direct, nic rdmap0s6, hmem yes"
TWO_NODES = ["mype: 0 mype_node: 0 device name: H200 bus id: 1 ", "mype: 1 mype_node: 0 device name: H200 bus id: 1 "]


def test_debug_text_proves_the_carrier_between_two_nodes() -> None:
    lines = [*TWO_NODES, USED, SELECTED, *put_bw(VALUES)]
    log = one(lines, Proof(fabric="efa"))
    assert (log.outcome, log.facts["transport"], log.facts["provider"]) == ("ok", "efa", "efa")
    assert log.evidence["transport"] == USED
    assert one(lines, Proof(fabric="ib")).outcome == "off-fabric"


@pytest.mark.parametrize("missing", [TWO_NODES[1], USED, SELECTED])
def test_every_line_of_that_proof_is_needed(missing: str) -> None:
    lines = [line for line in (*TWO_NODES, USED, SELECTED, *put_bw(VALUES)) if line != missing]
    assert one(lines, Proof(fabric="efa")).outcome == "unproven"


def test_debug_text_counts_more_than_a_setting() -> None:
    used = USED.replace("libfabric", "ibrc")
    log = one([*SETTINGS, *TWO_NODES, used, *put_bw(VALUES)], Proof(fabric="efa"))
    assert (log.outcome, log.facts["network"]) == ("off-fabric", "ib")


def test_a_command_line_tells_settings_too() -> None:
    command = f"$ mpirun -x {SETTINGS[0].split()[1]} -x NVSHMEM_LIBFABRIC_PROVIDER=efa /opt/alltoall_latency -b 16"
    log = one([command, *alltoall(4, [1024])])
    assert (log.case, log.facts["network"], log.facts["provider"]) == ("alltoall_latency", "efa", "efa")


def test_layouts_are_written_for_every_kind_of_number() -> None:
    assert written.gib("0.500000") == 2**29
