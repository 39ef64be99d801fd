"""perftest's output: every layout of its source, cut, torn, quoted and in company."""

import json
import random
import re
from collections.abc import Sequence
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.benchmarks.perftest.table_formats import read_header, read_row
from fabbench.benchmarks.perftest.text import read_command
from fabbench.model.log import Ending, Log, Outcome, Point, begin_marker, end_marker, tag_line
from fabbench.model.plan import Proof
from fabbench.runs.parse_file import parse_file
from tests.support.perftest_text import (
    BYTES,
    DURATION_HEADER,
    LATENCY_HEADER,
    LAYOUTS,
    OLD_DURATION_HEADER,
    OLD_LATENCY_HEADER,
    RULE,
    STATS,
    Setup,
    bandwidth_row,
    duration_row,
    header,
    latency_row,
    rate_of,
    run,
    table,
    waiting,
)
from tests.support.read_logs import LOGS, read_lines, read_one

FOLDER = LOGS / "perftest"


def bandwidth(size: int, average: str, unit: str = "MiB/sec", peak: str = "0.00") -> str:
    return bandwidth_row(size, 5000, peak, average, rate_of(average, size, unit))


def main(log: Log) -> list[float]:
    """The main figures of a log, in order."""
    wanted = {"bandwidth", "latency"}
    return [sample.value for sample in log.samples() if sample.metric in wanted and "stat" not in sample.labels]


def codes(log: Log) -> list[str]:
    return [finding.code for finding in log.findings]


# ---------------------------------------------------------------- units and layouts


@pytest.mark.parametrize("unit", BYTES)
def test_the_unit_in_the_header_scales(unit: str) -> None:
    """One token changes, and the values change with it; MB and MiB are the same."""
    row = bandwidth(65536, "91.25", unit, peak="97.50")
    log = read_one(run(None, row, unit=unit))
    factor = {"MB/sec": 1048576, "MiB/sec": 1048576, "Gb/sec": 125_000_000}[unit]
    peak, point = log.points
    assert (peak.labels["stat"], peak.values) == ("peak", (97.5 * factor,))
    assert "stat" not in point.labels
    assert point.values == (91.25 * factor, float(Decimal(rate_of("91.25", 65536, unit)) * 10**6))
    assert (log.outcome, codes(log)) == (Outcome.OK, [])


@pytest.mark.parametrize(("said", "true"), [("MiB/sec", "Gb/sec"), ("Gb/sec", "MB/sec")])
def test_a_wrong_unit_is_told_and_nothing_is_rescaled(said: str, true: str) -> None:
    log = read_one(run(None, bandwidth(65536, "91.25", true), unit=said))
    assert (main(log), log.outcome, len(log.damaged)) == ([], Outcome.TRUNCATED, 1)
    assert codes(log) == ["unit-mismatch"]
    assert true.replace("MB", "MiB") in log.findings[0].meaning


@pytest.mark.parametrize(("peak", "rate"), [("0.00", "0.001234"), ("90.25", rate_of("91.25", 65536, "MB/sec"))])
def test_a_row_that_contradicts_itself_is_damaged(peak: str, rate: str) -> None:
    log = read_one(run(None, bandwidth_row(65536, 5000, peak, "91.25", rate)))
    assert (log.points, log.outcome, len(log.damaged)) == ([], Outcome.TRUNCATED, 1)


@pytest.mark.parametrize("at", range(len(STATS)))
def test_statistics_out_of_order_are_damage(at: int) -> None:
    """The least, the median, the percentiles and the most are of one sorted list."""
    if STATS[at] == "stdev":
        return
    times = [*TIMES]
    times[at] = "0.01" if STATS[at] != "min" else "99.00"
    log = read_one(table(LATENCY_HEADER, latency_row(2, 1000, times)))
    assert (log.points, len(log.damaged)) == ([], 1)


@given(
    st.sampled_from([1, 2, 8, 1000, 65536, 8388608]),
    st.decimals("0.01", "400000", places=2),
    st.sampled_from(sorted(BYTES)),
)
def test_what_the_source_prints_always_fits(size: int, average: Decimal, unit: str) -> None:
    """Bandwidth and message rate, each rounded as printed, from one time."""
    assert codes(read_one(run(None, bandwidth(size, f"{average:.2f}", unit), unit=unit))) == []


@pytest.mark.parametrize("name", LAYOUTS)
def test_every_layout_is_read_whole(name: str) -> None:
    """The numbers of a row are those of its text, split on blanks, in the order of the header."""
    head, make = LAYOUTS[name]
    row = make(4096)
    layout = read_header(head)
    assert layout is not None
    found = read_row(row, layout)
    assert found is not None
    assert found.size == 4096
    keys = 3 if layout.has_sl else 2
    assert [str(cell) for cell in found.cells] == row.split()[keys:]
    log = read_one([RULE, *table(head, row)])
    assert (log.outcome, log.facts["complete"], log.damaged) == (Outcome.OK, "yes", ())
    assert {point.size for point in log.points} == {4096}


def test_ports_and_service_levels_are_told_apart() -> None:
    log = read_one(table(LAYOUTS["ports"][0], LAYOUTS["ports"][1](4096)))
    assert [(point.labels, point.metrics) for point in log.points] == [
        ({}, ("bandwidth", "message_rate")),
        ({"name": "port 1"}, ("bandwidth", "message_rate")),
        ({"name": "port 2"}, ("bandwidth", "message_rate")),
    ]
    assert log.points[2].values == (5123.45 * 1048576, 640000.0)
    log = read_one(table(LAYOUTS["sl"][0], LAYOUTS["sl"][1](4096)))
    assert [point.labels for point in log.points] == [{"name": "sl 3", "stat": "peak"}, {"name": "sl 3"}]
    assert read_one(table(LAYOUTS["CPU"][0], LAYOUTS["CPU"][1](4096))).facts["cpu_util"] == "3.25"


def test_zero_is_not_measured() -> None:
    (point,) = read_one(run(None, bandwidth_row(2, 5000, "0.00", "0.00", "0.000000"))).points
    assert (point.size, point.metrics) == (2, ())
    (point,) = read_one(run(None, bandwidth(65536, "12.50"))).points
    assert point.metrics == ("bandwidth", "message_rate")


def test_a_sweep_and_periodic_rows_keep_their_order() -> None:
    rows = [bandwidth(2**power, f"{power}.25", "Gb/sec") for power in range(1, 24)]
    log = read_one(run(None, *rows, unit="Gb/sec"))
    assert [point.size for point in log.points] == [2**power for power in range(1, 24)]
    periodic = run(None, *(bandwidth(65536, f"{n}.50") for n in (9, 7, 8)))[:-1]
    log = read_one(periodic)
    assert main(log) == [n * 1048576 for n in (9.5, 7.5, 8.5)]
    assert (log.outcome, log.facts["complete"]) == (Outcome.OK, "unknown")


# ---------------------------------------------------------------- latency

TIMES = ("12.12", "18.39", "14.24", "14.32", "0.62", "16.14", "17.39")


@pytest.mark.parametrize(
    ("test", "case", "way"),
    [
        ("RDMA_Write", "ib_write_lat", "one-way"),
        ("Send", "ib_send_lat", "one-way"),
        ("RDMA_Read", "ib_read_lat", "round-trip"),
        ("Atomic FETCH_AND_ADD", "ib_atomic_lat", "round-trip"),
        ("Atomic CMP_AND_SWAP", "ib_atomic_lat", "round-trip"),
    ],
)
def test_the_way_changes_with_the_title(test: str, case: str, way: str) -> None:
    lines = [*Setup(test=f"{test} Latency").lines(), *table(LATENCY_HEADER, latency_row(2, 1000, TIMES))]
    log = read_one(lines)
    assert log.case == case
    assert {point.labels["way"] for point in log.points} == {way}
    assert "way" not in log.facts
    found = [(point.labels.get("stat", ""), point.values[0]) for point in log.points]
    assert found == [(stat, float(f"{time}e-6")) for stat, time in zip(STATS, TIMES, strict=True)]


def test_without_a_title_the_way_is_ambiguous() -> None:
    log = read_one(table(LATENCY_HEADER, latency_row(2, 1000, TIMES)))
    assert (log.case, log.facts["way"], codes(log)) == (None, "ambiguous", ["way-ambiguous"])
    assert all("way" not in point.labels for point in log.points)
    log = read_one(["$ ib_read_lat 10.0.0.1", *table(LATENCY_HEADER, latency_row(2, 1000, TIMES))])
    assert ({point.labels["way"] for point in log.points}, codes(log)) == ({"round-trip"}, [])


def test_the_old_layout_has_the_median_as_its_figure() -> None:
    log = read_one(table(OLD_LATENCY_HEADER, latency_row(2, 1000, ("1.12", "18.39", "1.24"))))
    assert [(point.labels.get("stat"), point.values) for point in log.points] == [
        ("min", (1.12e-6,)),
        ("max", (18.39e-6,)),
        (None, (1.24e-6,)),
    ]
    assert "median-only" in codes(log)


@pytest.mark.parametrize(("average", "way"), [("2.42", "round-trip"), ("1.21", "one-way")])
def test_a_duration_run_tells_its_way_by_arithmetic(average: str, way: str) -> None:
    log = read_one(table(DURATION_HEADER, duration_row(2, 62078352, average, "413812.77")))
    latency, rate = log.points
    assert (latency.labels.get("way"), latency.values) == (way, (float(f"{average}e-6"),))
    assert (rate.labels, rate.metrics, rate.values) == ({"way": "round-trip"}, ("message_rate",), (413812.77,))
    assert "way" not in log.facts


def test_a_duration_run_of_neither_way_is_damage() -> None:
    log = read_one(table(DURATION_HEADER, duration_row(2, 62078352, "1.80", "413812.77")))
    assert (log.points, len(log.damaged)) == ([], 1)


def test_a_duration_run_that_its_title_belies() -> None:
    rows = table(DURATION_HEADER, duration_row(2, 62078352, "2.42", "413812.77"))
    assert codes(read_one([*Setup(test="RDMA_Read Latency").lines(), *rows])) == []
    assert len(read_one([*Setup(test="Send Latency").lines(), *rows]).damaged) == 1


def test_the_oldest_duration_layout_has_no_rate() -> None:
    log = read_one(table(OLD_DURATION_HEADER, duration_row(2, 62078352, "2.42")))
    assert [(point.metrics, point.values) for point in log.points] == [(("latency",), (2.42e-6,))]


def test_cycles_are_no_seconds() -> None:
    rows = table(LATENCY_HEADER, latency_row(2, 1000, TIMES))
    log = read_one(["$ ib_write_lat -C 10.0.0.1", *rows])
    assert (main(log), codes(log), log.outcome) == ([], ["unit-cycles"], Outcome.TRUNCATED)
    log = read_one([rows[0].replace("usec", "cycles"), *rows[1:]])
    assert (main(log), "unit-cycles" in codes(log)) == ([], True)


# ---------------------------------------------------------------- glued and cut numbers


@pytest.mark.parametrize("name", LAYOUTS)
def test_numbers_that_lost_the_blanks_between_them(name: str) -> None:
    """Split where decimals make it certain; the row is damaged where not; columns never shift."""
    head, make = LAYOUTS[name]
    row = make(4096)
    whole = read_one([RULE, *table(head, row)]).points
    gaps = [match.span() for match in re.finditer(r"(?<=\S)\s+(?=\S)", row)]
    for start, stop in gaps:
        log = read_one([RULE, *table(head, row[:start] + row[stop:])])
        split = "." in row[:start].rsplit(maxsplit=1)[-1]
        assert (log.points == whole) is split
        assert (log.outcome, bool(log.damaged)) == ((Outcome.OK, False) if split else (Outcome.TRUNCATED, True))


@pytest.mark.parametrize("name", LAYOUTS)
@given(data=st.data())
def test_a_table_cut_anywhere(name: str, data: st.DataObject) -> None:
    """What is whole is read, what is cut is reported, and the log is never taken for whole."""
    head, make = LAYOUTS[name]
    sizes = sorted(data.draw(st.lists(st.integers(1, 1 << 33), min_size=1, max_size=4, unique=True)))
    lines = [RULE, head, *map(make, sizes)]
    complete = read_one([*lines, RULE]).points
    text = "\n".join([*lines, RULE])
    at = data.draw(st.integers(len(RULE) + 1, len(text)))
    kept = text[:at].split("\n")
    found = read_lines(kept)
    whole = sum(line.rstrip() in {row.rstrip() for row in lines[2:]} for line in kept)
    points = [point for log in found for point in log.points]
    assert points == complete[: len(complete) // len(sizes) * whole]
    if not found:
        assert whole == 0
        return
    cut = kept[-1].strip() if whole < len(kept) - 2 else ""
    cut = "" if cut.startswith(("-", "#")) else cut
    assert [damaged.text.strip() for log in found for damaged in log.damaged] == ([cut] if cut else [])
    ruled = kept[-1].startswith("-" * 20)
    assert (found[0].outcome is Outcome.OK) is (
        (ruled and whole == len(sizes)) or (endless(sizes) and not cut and whole > 1)
    )


def endless(sizes: Sequence[int]) -> bool:
    return len(sizes) > 1 and len(set(sizes)) == 1


def test_numbers_that_perftest_never_prints_are_damage() -> None:
    for wrong in ("0012.50", "12.5", "12.500", "1e1", "12,50"):
        log = read_one([RULE, *table(header("MiB/sec"), bandwidth(65536, "12.50").replace("12.50", wrong))])
        assert (log.points, log.outcome) == ([], Outcome.TRUNCATED)


def test_without_rules_nothing_says_that_the_end_is_missing() -> None:
    log = read_one([header("Gb/sec"), bandwidth(2, "12.50", "Gb/sec")])
    assert (log.outcome, log.facts["complete"]) == (Outcome.OK, "unknown")
    log = read_one([RULE, header("Gb/sec"), bandwidth(2, "12.50", "Gb/sec")])
    assert (log.outcome, log.facts["complete"]) == (Outcome.TRUNCATED, "no")


def test_a_header_that_is_cut_makes_its_rows_damaged() -> None:
    row = bandwidth(65536, "12.50")
    log = read_one([header("MiB/sec")[:60], row, RULE])
    assert (log.points, [damaged.text for damaged in log.damaged]) == ([], [row])
    log = read_one([header("MiB/sec")])
    assert (log.outcome, log.points) == (Outcome.TRUNCATED, [])


def test_a_row_torn_in_its_size_is_not_read_by_its_second_half() -> None:
    row = bandwidth(65536, "12.50")
    log = read_one([RULE, header("MiB/sec"), row[:3], row[3:], bandwidth(131072, "25.50"), RULE])
    assert [point.size for point in log.points] == [131072]
    assert [damaged.text for damaged in log.damaged] == [row[:3], row[3:]]


def test_a_size_that_lost_its_head_leaves_no_row() -> None:
    """Its figures alone contradict nothing: times stand beside no rate."""
    rows = [latency_row(2**power, 1000, TIMES) for power in range(1, 24)]
    cut = rows[13].replace("16384", "84")
    log = read_one([RULE, *table(LATENCY_HEADER, *rows[:13], cut, *rows[14:])])
    assert {point.size for point in log.points} == {2**power for power in range(1, 24) if power != 14}
    assert ([damaged.text for damaged in log.damaged], log.outcome) == ([cut], Outcome.TRUNCATED)


@pytest.mark.parametrize("sizes", [(64,), (64, 64, 64), (2, 4, 8, 2, 4, 8), (8, 4, 2), (2, 2, 4, 4, 8, 8)])
def test_sizes_that_repeat_are_in_order(sizes: Sequence[int]) -> None:
    rows = [latency_row(size, 1000, TIMES) for size in sizes]
    log = read_one([RULE, *table(LATENCY_HEADER, *rows), RULE])
    assert [point.size for point in log.points if "stat" not in point.labels] == list(sizes)
    assert log.damaged == ()


# ---------------------------------------------------------------- lost headings


@pytest.mark.parametrize("below", [1, 2, 3])
def test_a_title_that_is_missing_above_the_set_up_shows(below: int) -> None:
    lines = run(None, ROW)
    title = next(at for at, text in enumerate(lines) if "Test" in text)
    log = read_one([*lines[:title], *lines[title + below :]])
    assert (log.outcome, log.case, len(log.points)) == (Outcome.TRUNCATED, None, 1)
    assert log.reason == "The title above perftest's set-up is missing."
    assert codes(log) == ["test-unknown"]
    log = read_one(["$ ib_write_bw -d mlx5_0 10.0.0.1", *lines[title + below :]])
    assert (log.outcome, log.case) == (Outcome.TRUNCATED, "ib_write_bw")
    first, second = read_lines([*lines, *lines[title + below :]])
    assert (first.outcome, second.outcome) == (Outcome.OK, Outcome.TRUNCATED)


def test_an_excerpt_says_of_no_test_that_its_rows_are_its() -> None:
    """It may begin with any line below the title."""
    lines = run(None, ROW)
    header_at = next(at for at, text in enumerate(lines) if "#bytes" in text)
    for begin in range(2, header_at + 1):
        log = read_one(lines[begin:])
        assert (log.outcome, log.case, codes(log)) == (Outcome.OK, None, ["test-unknown"])


@pytest.mark.parametrize("above", [[RULE], []])
@pytest.mark.parametrize("begin", [0, 1])
def test_rows_whose_heading_is_lost_are_not_those_of_the_test_above(above: list[str], begin: int) -> None:
    """Nor are two that rise by themselves, which no order contradicts."""
    rows = [latency_row(size, 1000, TIMES) for size in (2, 4, 8, 16)]
    first = [*Setup(test="RDMA_Read Latency").lines(), LATENCY_HEADER, *rows]
    log = read_one([*first, *above, *rows[begin : begin + 2], RULE])
    assert len([point for point in log.points if "stat" not in point.labels]) == len(rows)
    assert (len(log.damaged), log.outcome) == (2, Outcome.TRUNCATED)


def test_a_command_that_lost_its_end_does_not_make_a_client_a_server() -> None:
    log = read_one(["$ ib_write_bw -a --iter", *run(None, ROW)])
    assert (log.case, log.outcome) == ("ib_write_bw", Outcome.OK)
    assert all("side" not in point.labels for point in log.points)


# ---------------------------------------------------------------- in company

FOREIGN = [
    "Conflicting CPU frequency values detected: 800.000000 != 2601.239000. CPU Frequency is not max.",
    " WARNING: BW peak won't be measured in this run.",
    "[INFO]: wr_id=0, data_size=1048576, post_time(software)=193684, latency=99 us, throughput 84.73 Gbps",
    "5000",
    "1234.567890",
    "12 34 56 78 90",
    "3.5 4.5",
    "node1:12:34 [0] NCCL INFO Using network Socket",
    "",
    "deallocating GPU buffer 00007e0751400000",
    "Total run time: 98.367s",
    "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec",
]


@given(st.data())
def test_foreign_lines_are_never_rows(data: st.DataObject) -> None:
    rows = [bandwidth(2**power, f"{power}.25") for power in range(1, 8)]
    lines = [header("MiB/sec"), *rows]
    noise = st.lists(st.sampled_from(FOREIGN[:-1]), max_size=3)
    noisy = [text for line in lines for text in (line, *data.draw(noise))]
    log = read_one([*Setup().lines(), *noisy, RULE])
    assert log.points == read_one([*Setup().lines(), *lines, RULE]).points
    assert (log.outcome, log.damaged) == (Outcome.OK, ())


PREFIXES = [
    "", "    ", "# ", "#> ", "> ", "\t", "[rank 0] ", "[1,0]<stdout>:", "[1,1]<stdout>: ",
    "(head, rank=0, pid=1234) ", "[pod/client/main] ", "2026-11-21T10:35:09.123456789Z ", "> # ",
]  # fmt: skip


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", LAYOUTS)
def test_prefixes_change_nothing_but_the_rank(name: str, prefix: str) -> None:
    head, make = LAYOUTS[name]
    lines = [RULE, head, FOREIGN[0], make(2), make(4096), RULE]
    plain, log = read_one(lines), read_one([prefix + line for line in lines])
    assert [(p.size, p.metrics, p.values) for p in log.points] == [(p.size, p.metrics, p.values) for p in plain.points]
    assert (log.outcome, log.facts) == (plain.outcome, plain.facts)
    assert {point.labels.get("rank") for point in log.points} == {
        "1" if "1,1" in prefix else "0" if "0]" in prefix[:8] and "<" not in prefix[:2] and prefix[0] == "[" else None
    }


def test_marks_of_documents() -> None:
    row = bandwidth(1024, "5544.28")
    lines = ["```", header("MiB/sec").strip(), row.strip().replace("5544.28", "**5544.28**"), "```"]
    assert main(read_one(lines)) == [5544.28 * 1048576]


def test_ranks_of_one_run() -> None:
    rows = table(LATENCY_HEADER, latency_row(2, 1000, TIMES))[:2]
    log = read_one([f"[rank {rank}] {line}" for rank in (1, 0) for line in rows])
    assert [point.labels["rank"] for point in log.points] == ["1"] * 7 + ["0"] * 7


def test_a_table_behind_another_is_another_run() -> None:
    lines = [header("MB/sec"), bandwidth(1024, "12.50"), "", "Case2:", header("MB/sec"), bandwidth(1024, "9.25")]
    assert [main(log) for log in read_lines(lines)] == [[12.5 * 1048576], [9.25 * 1048576]]


def test_the_next_run_is_cut() -> None:
    lines = [
        *run(None, bandwidth(65536, "12.50")),
        "$ ib_send_lat -d mlx5_0 csegpu2",
        *Setup(test="Send Latency").lines(),
    ]
    assert [(log.case, log.outcome) for log in read_lines(lines)] == [
        ("ib_write_bw", Outcome.OK),
        ("ib_send_lat", Outcome.TRUNCATED),
    ]


def test_perftest_among_other_benchmarks() -> None:
    pingpong = [
        "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec",
        "64      10      =10     1.2k        0.00s     21.33       3.00       0.33",
    ]
    found = read_lines([*pingpong, *run(None, bandwidth(65536, "12.50")), *pingpong])
    assert [log.benchmark for log in found] == ["pingpong", "perftest", "pingpong"]


# ---------------------------------------------------------------- server and client

SERVER = Setup(side="server", local="QPN 0x0066 PSN 0xdcb546", remote="QPN 0x0067 PSN 0xfd3206")
ROW = bandwidth(65536, "12.50")


def sides(log: Log) -> list[str | None]:
    return [point.labels.get("side") for point in log.points]


@pytest.mark.parametrize("test", ["RDMA_Write BW", "RDMA_Read BW", "Send BW"])
def test_a_pair_in_one_text_is_one_log(test: str) -> None:
    server, client = (Setup(test=test, side="server", local=SERVER.local, remote=SERVER.remote), Setup(test=test))
    log = read_one([*run(server, ROW), "", *run(client, ROW)])
    assert (sides(log), log.outcome) == (["server", "client"], Outcome.OK)
    assert read_one(run(client, ROW)).points[0].labels["side"] == "client"


def test_the_same_side_again_is_another_run() -> None:
    assert len(read_lines([*run(Setup(), ROW), *run(Setup(), ROW)])) == 2


def test_two_halves_of_two_pairs_are_two_runs() -> None:
    other = Setup(side="server", local="QPN 0x0001 PSN 0x000001", remote="QPN 0x0002 PSN 0x000002")
    assert [sides(log) for log in read_lines([*run(other, ROW), *run(Setup(), ROW)])] == [["server"], ["client"]]


def test_sides_by_command_lines_and_banners() -> None:
    rows = table(header("MiB/sec"), ROW)
    log = read_one(["$ ib_write_bw -d mlx5_0", *rows, "$ ib_write_bw -d mlx5_0 10.0.0.1", *rows])
    assert (sides(log), log.case) == (["server", "client"], "ib_write_bw")
    two = read_lines(["$ ib_write_bw -d mlx5_0", *rows, "$ ib_read_bw -d mlx5_0 10.0.0.1", *rows])
    assert [(log.case, sides(log)) for log in two] == [("ib_write_bw", ["server"]), ("ib_read_bw", ["client"])]
    assert sides(read_one([*waiting(), *Setup(test="Send Bidirectional BW").lines(), *rows])) == ["server"]
    assert sides(read_one([*waiting(), *rows])) == ["server"]


def test_the_client_alone_again_is_another_run() -> None:
    rows = table(header("MiB/sec"), ROW)
    client = ["$ ib_write_bw -d mlx5_0 10.0.0.1", *rows]
    found = read_lines(["$ ib_write_bw -d mlx5_0", *rows, *client, *client])
    assert [sides(log) for log in found] == [["server", "client"], ["client"]]


def test_a_command_line_that_a_terminal_broke() -> None:
    command = "root@4bfed8618b1d:/benchmark/graph500-2.1.4/mpi-tests/build# ib_send_bw -"
    log = read_one([command, "a --iter 20000 192.168.1.60", *table(header("MiB/sec"), ROW)])
    assert (log.case, sides(log)) == ("ib_send_bw", ["client"])


def test_both_sides_on_one_terminal() -> None:
    lines = [text for line in [*run(None, ROW)] for text in (line, line)]
    log = read_one(lines)
    assert (main(log), sides(log), codes(log)) == ([12.5 * 1048576] * 2, [None, None], ["both-sides"])


@pytest.mark.parametrize(
    ("peer", "size", "outcomes"),
    [
        ("QPN 0x2 PSN 0x2", 65536, {Outcome.OK}),
        ("QPN 0x3 PSN 0x3", 65536, {Outcome.OK, Outcome.TRUNCATED}),
        ("QPN 0x2 PSN 0x2", 131072, {Outcome.TRUNCATED}),
    ],
)
def test_the_end_of_the_peer_is_the_end_of_a_run(peer: str, size: int, outcomes: set[Outcome]) -> None:
    """Where both share a file, the closing rule of the first may stand anywhere."""
    one, two = "QPN 0x1 PSN 0x1", "QPN 0x2 PSN 0x2"
    client = [*Setup(local=one, remote=two).lines(), header("MiB/sec"), ROW]
    server = run(Setup(side="server", local=peer, remote=one), bandwidth(size, "12.50"))
    assert {log.outcome for log in read_lines([*client, *waiting(), *server])} == outcomes


def test_two_rows_on_one_line_are_two_rows() -> None:
    first, second = bandwidth(1024, "12.50"), bandwidth(1024, "12.75")
    *before, _, last = [text for line in [*run(None, ROW)] for text in (line, line)]
    before = [line for line in before if line != ROW]
    log = read_one([*before, f"{first}{second}", last, last])
    assert (main(log), log.damaged, log.outcome) == ([12.5 * 1048576, 12.75 * 1048576], (), Outcome.OK)


def test_a_row_with_a_part_of_another_on_its_line_is_damaged() -> None:
    first, second = bandwidth(1024, "12.50"), bandwidth(1024, "12.75")
    for line in (f"{first} {second.rstrip()[:-3]}", f"{first} 1024"):
        log = read_one([text if text != ROW else line for text in run(None, ROW)])
        assert (log.outcome, [text for _, text in log.damaged]) == (Outcome.TRUNCATED, [line])


def test_a_server_in_the_background() -> None:
    lines = [text for line in [*run(None, ROW)] for text in (line, line)]
    log = read_one(["$ ib_write_bw -d mlx5_0 &", *waiting(), "$ ib_write_bw -d mlx5_0 localhost", *lines])
    assert (log.outcome, log.case, len(main(log))) == (Outcome.OK, "ib_write_bw", 2)


def test_pods_and_tags_of_a_pair() -> None:
    server, client = run(SERVER, ROW), run(Setup(), ROW)
    mixed = [
        line
        for pair in zip(server, [*client[: len(server) - 1], client[-1]], strict=False)
        for line in (f"[pod/s/main] {pair[0]}", f"[pod/c/main] {pair[1]}")
    ]
    assert len(read_lines(mixed)) == 1
    twice = [f"[pod/{name}/main] {line}" for _ in range(2) for name in "sc" for line in run(None, ROW)]
    assert [len(log.points) for log in read_lines(twice)] == [2, 2]


def test_direction_and_shares_of_a_test_of_both() -> None:
    both = Setup(test="RDMA_Write Bidirectional BW")
    total = bandwidth(65536, "25.00")
    lines = [
        *["$ ib_write_bw -b --report-both 10.0.0.1", *both.lines(), header("MiB/sec"), total, RULE],
        *["", " Local results: ", RULE, header("MiB/sec"), bandwidth(65536, "13.00"), RULE],
        *["", " Remote results: ", RULE, header("MiB/sec"), bandwidth(65536, "12.00"), RULE],
    ]
    log = read_one(lines)
    assert [(point.labels, point.values[0] / 1048576) for point in log.points] == [
        ({"direction": "bi", "side": "client"}, 25.0),
        ({"direction": "uni", "side": "client"}, 13.0),
        ({"direction": "uni", "side": "server"}, 12.0),
    ]
    assert log.outcome is Outcome.OK
    assert read_one(run(None, ROW)).points[0].labels["direction"] == "uni"
    assert "direction" not in read_one(table(header("MiB/sec"), ROW)).points[0].labels


@pytest.mark.parametrize(
    ("text", "program", "side"),
    [
        ("$ ib_write_bw", "ib_write_bw", "server"),
        ("u@h:~$ numactl -N 0 /opt/perftest/bin/ib_read_lat -d mlx5_0 -F 10.0.0.1", "ib_read_lat", "client"),
        ("+ ib_send_bw -a --iter 20000 --report_gbits", "ib_send_bw", "server"),
        ("$ kubectl exec -it client-1 -- ib_atomic_lat -d mlx5_0 10.0.33.3 -zR", "ib_atomic_lat", "client"),
        ("$ ib_write_bw -d mlx5_0 --out_json --tclass=106 host2 | tee log", "ib_write_bw", "client"),
        ("$ ssh n1 'ib_write_bw -D 10'", "ib_write_bw", "server"),
        ("ib_write_bw -d mlx5_0 &", "ib_write_bw", "server"),
        ("We ran ib_write_bw on both hosts.", None, None),
        ("ib_write_bw", None, None),
        ("$ ib_write_bw <server> [options]", None, None),
        ("$ man ib_write_bw_new", None, None),
    ],
)
def test_command_lines(text: str, program: str | None, side: str | None) -> None:
    command = read_command(text)
    assert (command and command.program, command and command.side) == (program, side)


# ---------------------------------------------------------------- facts and proof


def test_facts() -> None:
    log = read_one(["Version: 6.20", *run(Setup(link="Ethernet"), ROW)])
    assert log.facts == {
        "perftest": "6.20",
        "device": "mlx5_0",
        "qps": 1,
        "transport": "RC",
        "mtu": 4096,
        "link": "Ethernet",
        "gid_index": 3,
        "iterations": 5000,
        "complete": "yes",
    }


@pytest.mark.parametrize(
    ("device", "connection", "link", "fabric", "outcome"),
    [
        ("rdmap0s6", "SRD", "IB", "efa", Outcome.OK),
        ("rdmap0s6", "UD", "IB", "efa", Outcome.OK),
        ("mlx5_0", "UD", "IB", "efa", Outcome.OFF_FABRIC),
        ("mlx5_0", "RC", "IB", "efa", Outcome.OFF_FABRIC),
        ("rdmap0s6", "SRD", "IB", "tcp", Outcome.OFF_FABRIC),
        ("rdmap0s6", "SRD", "IB", "ib", Outcome.OFF_FABRIC),
        ("rdmap0s6", "UD", "IB", "ib", Outcome.OFF_FABRIC),
        *(("mlx5_0", connection, "IB", "ib", Outcome.OK) for connection in ("RC", "UC", "UD", "XRC", "DC")),
        ("mlx5_0", "RC", "Ethernet", "roce", Outcome.OK),
    ],
)
def test_the_connection_type_is_the_proof(
    device: str, connection: str, link: str, fabric: str, outcome: Outcome
) -> None:
    lines = run(Setup(device=device, connection=connection, link=link), ROW)
    assert read_one(lines, Proof(fabric=fabric)).outcome is outcome
    without = [line for line in lines if "Connection type" not in line]
    assert read_one(without, Proof(fabric=fabric)).outcome is Outcome.UNPROVEN


@pytest.mark.parametrize(("link", "fabric"), [("IB", "roce"), ("Ethernet", "ib")])
def test_the_link_tells_infiniband_from_roce(link: str, fabric: str) -> None:
    log = read_one(run(Setup(link=link), ROW), Proof(fabric=fabric))

    assert log.outcome is Outcome.OFF_FABRIC
    assert log.reason == f"{fabric} was requested, but the link of the NICs was {link}."


def test_raw_ethernet_has_the_same_title() -> None:
    assert read_one(run(Setup(test="Send BW", connection="RawEth"), ROW)).case == "raw_ethernet_bw"


def test_warnings() -> None:
    lines = run(None, ROW)
    log = read_one([*lines[:-3], "Warning: Large message requested and CQ moderation enabled", *lines[-3:]])
    assert codes(log) == ["perftest-warning"]
    assert codes(read_one([*lines[:-2], *FOREIGN[:1] * 2, *lines[-2:]])) == ["cpu-frequency"]


# ---------------------------------------------------------------- failures


@pytest.mark.parametrize(
    ("name", "case", "reason"),
    [
        ("nodevice-debian-ib_send_lat", "ib_send_lat", "The client said: Did not detect devices"),
        ("nodevice-debian-ib_write_bw-d-client", "ib_write_bw", "The client said: Did not detect devices"),
        ("nodevice-debian-ib_write_bw-server", "ib_write_bw", "The server said: Did not detect devices"),
        ("nodevice-ibv_devices", None, "The exit status was 1."),
        ("nodevice-ibv_devinfo", None, "The exit status was 255."),
        ("nodevice-rdma-link-add", None, "The exit status was 1."),
    ],
)
def test_logs_of_a_machine_without_a_device(name: str, case: str | None, reason: str) -> None:
    (log,) = parse_file(FOLDER / f"{name}.txt")
    assert (log.outcome, log.case, log.reason) == (Outcome.FAILED, case, reason)
    assert log.benchmark == ("perftest" if case else None)


@pytest.mark.parametrize(
    ("line", "status", "meaning"),
    [
        (" Failed status 12: wr_id 0 syndrom 0x81", 12, "transport retry counter exceeded"),
        (" Failed status-transport retry counter exceeded (12): wr_id 0 syndrom 0x81", 12, "transport retry"),
        ("  Failed status 4: wr_id 0 syndrom 0x51", 4, "local protection error"),
        (" Failed status-remote access error (10): wr_id 3 syndrom 0x88", 10, "remote access error"),
        (" Failed status 5: wr_id 0 syndrom 0xf9", 5, "work request flushed"),
    ],
)
def test_completion_errors_say_what_they_mean(line: str, status: int, meaning: str) -> None:
    lines = [" Completion with error at client", line, " scnt=828, ccnt=700"]
    log = read_one(
        [*Setup().lines(), header("MiB/sec"), *lines, " Failed to complete run_iter_bw function successfully"]
    )
    assert log.outcome is Outcome.FAILED
    assert log.reason is not None
    assert log.reason.startswith(f"The client reported: completion with status {status} ({meaning}")
    assert log.facts["status"] == status
    assert read_one(lines).outcome is Outcome.FAILED


@pytest.mark.parametrize(
    "line",
    [
        "IB device mlx5_9 not found",
        " Unable to find the Infiniband/RoCE device",
        " Unable to init the socket connection",
        "ethernet_read_keys: Couldn't read remote address",
        "Unexpected CM event bl blka 8",
        " SRD not detected in libibverbs",
        " Couldn't get context for the device",
        "Error: BW result is below bw limit",
        "Error: Msg rate  is below msg_rate limit",
        "/usr/bin/ib_write_bw: unrecognized option '--use_cuda=0'",
        "bash: line 1: ib_write_bw: command not found",
    ],
)
def test_failures(line: str) -> None:
    log = read_one([line])
    assert (log.benchmark, log.outcome) == ("perftest", Outcome.FAILED)
    assert log.reason == f"perftest said: {' '.join(line.split())}"
    after = read_one([*run(None, ROW), line])
    assert (after.outcome, len(after.points)) == (Outcome.FAILED, 1)


@pytest.mark.parametrize("line", ["Couldn't connect to 10.0.0.1:18515", "Couldn't create QP", " poll CQ failed -1"])
def test_failures_that_count_only_inside(line: str) -> None:
    assert read_lines([line]) == []
    assert read_one(["$ ib_write_bw 10.0.0.1", line]).reason == f"The client said: {line.strip()}"


def test_wrong_data_is_corrupt() -> None:
    line = "VALIDATION: FAILED - 3 error(s), 12 chunks"
    assert read_one([*run(None, ROW), line]).outcome is Outcome.CORRUPT


# ---------------------------------------------------------------- JSON


def document(**results: object) -> str:
    info = {
        "test": "RDMA_Write_BW_Test",
        "Device": "mlx5_11",
        "Number_of_qps": 2,
        "Connection_type": "RC",
        "Link_type": "IB",
    }
    return json.dumps({"test_info": info, "results": results}, indent=1)


@pytest.mark.parametrize(("unit", "factor"), [("MiB/sec", 1048576), ("Gb/sec", 125_000_000)])
def test_the_unit_of_json_is_what_fits(unit: str, factor: int) -> None:
    rate = float(rate_of("2229.27", 65536, unit))
    text = document(MsgSize=65536, n_iterations=5000, BW_peak=5293.52, BW_average=2229.27, MsgRate=rate)
    for lines in (text.split("\n"), [text.replace("\n", "")]):
        log = read_one(lines)
        assert (log.case, log.outcome, log.facts["unit"], log.facts["qps"]) == ("ib_write_bw", Outcome.OK, unit, 2)
        assert main(log) == [float(Decimal("2229.27") * factor)]
        assert [point.labels for point in log.points] == [{"direction": "uni", "stat": "peak"}, {"direction": "uni"}]


def test_six_decimals_are_of_gigabits() -> None:
    text = document(MsgSize=2, n_iterations=5000, BW_peak=0.0, BW_average=0.000016, MsgRate=0.000001)
    text = text.replace("1.6e-05", "0.000016").replace("1e-06", "0.000001")
    log = read_one(text.split("\n"))
    assert (log.facts["unit"], main(log)) == ("Gb/sec", [2000.0])


def test_a_unit_that_nothing_tells_is_ambiguous() -> None:
    text = document(MsgSize=65536, n_iterations=5000, BW_peak=0.00, BW_average=2229.27, MsgRate=0.123456)
    log = read_one(text.split("\n"))
    assert (log.facts["unit"], codes(log), main(log)) == ("ambiguous", ["unit-ambiguous"], [])
    assert [point.metrics for point in log.points] == [("message_rate",)]


def test_json_of_latency() -> None:
    keys = ("t_min", "t_max", "t_typical", "t_avg", "t_stdev", "percentile_99", "percentile_99.9")
    text = document(MsgSize=2, n_iterations=1000, **dict(zip(keys, map(float, TIMES), strict=True)))
    log = read_one(text.replace("Write_BW", "Read_Latency").split("\n"))
    assert log.case == "ib_read_lat"
    assert [(p.labels["way"], p.labels.get("stat", ""), p.values[0]) for p in log.points] == [
        ("round-trip", stat, float(f"{time}e-6")) for stat, time in zip(STATS, TIMES, strict=True)
    ]
    text = document(MsgSize=2, n_iterations=1000, t_avg=2.42, tps_average=413812.77).replace("Write_BW", "Latency")
    assert [point.labels["way"] for point in read_one(text.split("\n")).points] == ["round-trip"] * 2


def test_json_that_is_not_valid() -> None:
    text = document(MsgSize=65536, sl=3, n_iterations=5000, BW_peak=0.0, BW_average=2229.27, MsgRate=0.035668)
    log = read_one(text.replace('"sl"', "sl").split("\n"))
    assert log.points[0].labels == {"direction": "uni", "name": "sl 3"}
    log = read_one(document(bw_avg=2229.27).replace("2229.27", "2229.27,").split("\n"))
    assert (log.points, codes(log)) == ([], ["unit-ambiguous", "size-unstated"])


def test_json_cut_anywhere() -> None:
    text = document(MsgSize=65536, n_iterations=5000, BW_peak=5293.52, BW_average=2229.27, MsgRate=0.035668)
    whole = read_one(text.split("\n")).points
    for at in range(text.index("test_info") + 12, len(text)):
        log = read_one(text[:at].split("\n"))
        closed = "}" in text[text.index("results") : at]
        assert log.points == (whole if closed else [])
        assert (log.outcome is Outcome.OK) is closed


# ---------------------------------------------------------------- summaries


def test_summary_lines_of_modal() -> None:
    log = read_one(["[rank 0] Mean BW peak: 700.50 Gb/s, Mean BW avg: 650.25 Gb/s"])
    assert (log.benchmark, log.outcome, log.facts["size"], codes(log)) == (
        "perftest",
        Outcome.OK,
        "unknown",
        ["size-unstated"],
    )
    assert log.points == [
        Point(0, {"rank": "0", "stat": "peak"}, ("bandwidth",), (700.5 * 125e6,)),
        Point(0, {"rank": "0"}, ("bandwidth",), (650.25 * 125e6,)),
    ]
    log = read_one(["[rank 0] Total BW: 250GB/s"])
    assert log.benchmark == "fabtests"
    assert log.points == [Point(0, {"rank": "0", "direction": "bi"}, ("bandwidth",), (250e9,))]


# ---------------------------------------------------------------- fabbench's own logs


def step(number: int, test: str = "RDMA_Write BW", status: int | None = 0) -> list[str]:
    lines = [begin_marker(f"000-ib-r1/{number}", {"benchmark": "perftest"})]
    for side in ("server", "client"):
        text = run(Setup(test=test, side=side), bandwidth(number, "12.50"))
        lines += [tag_line(side, line) for line in text]
    return [*lines, end_marker(f"000-ib-r1/{number}", status)] if status is not None else lines


def test_all_steps_of_an_execution_are_one_log() -> None:
    log = read_one([*step(1024), *step(4096)], Proof(fabric="ib"), Ending(status=0, planned_sizes=(1024, 4096)))
    assert [(point.size, point.labels["side"]) for point in log.points] == [
        (size, side) for size in (1024, 4096) for side in ("server", "client")
    ]
    assert (log.outcome, log.facts["complete"]) == (Outcome.OK, "yes")


def test_steps_that_fail_or_stop() -> None:
    log = read_one([*step(1024), *step(4096, status=1)])
    assert log.reason == "perftest exited with status 1 in step 4096."
    assert read_one([*step(1024), *step(4096, status=None)]).outcome is Outcome.TRUNCATED
    assert len(read_lines([*step(1024), *(line.replace("r1/", "r2/") for line in step(1024))])) == 2


# ---------------------------------------------------------------- any text


@given(st.lists(st.text(max_size=120) | st.sampled_from([*FOREIGN, RULE, header("Gb/sec"), LATENCY_HEADER, ROW])))
def test_any_text_is_survived_and_no_row_invented(lines: list[str]) -> None:
    rows = sum(line.strip() == ROW.strip() for line in lines)
    found = [point for log in read_lines(lines) if log.benchmark == "perftest" for point in log.points]
    assert len(found) <= rows


@pytest.mark.parametrize(
    "text", ["1", "1.", ".", " ", "a", "a ", '"a', "a: ", "-", "Device ", "1.50", "0", "#", "server "]
)
def test_long_lines_take_no_time(text: str) -> None:
    """Not minutes, as they would if the time grew with the square of the length."""
    line = text * (60_000 // len(text))
    lines = [*Setup().lines(), header("MiB/sec"), line, f"{line}x", '"test_info": {', line, f"{line}x"]
    assert len(read_lines(lines)) == 2


def test_fuzz() -> None:
    """Bytes of whole logs are replaced and cut: never an exception, never a row that is not there."""
    random_ = random.Random(20)
    texts = ["\n".join([RULE, head, *map(make, (2, 64, 65536)), RULE]) for head, make in LAYOUTS.values()]
    texts += ["\n".join([*waiting(), *run(SERVER, ROW), *run(None, ROW)]), document(MsgSize=2, t_avg=2.42)]
    alphabet = '0123456789. \t\n-#[]{}:"\x1b*>abcMsgRate\u0663'
    for _ in range(1500):
        text = random_.choice(texts)
        for _ in range(random_.randint(1, 6)):
            at, length = random_.randrange(len(text)), random_.choice((0, 1, 1, 2, 30))
            new = "".join(random_.choices(alphabet, k=random_.choice((0, 1, 1, 3))))
            text = text[:at] + new + text[at + length :]
        sizes = set(re.findall("[0-9]+", text))
        for log in read_lines(text.split("\n")):
            for point in log.points:
                assert any(int(size) == point.size for size in sizes)
                assert all(is_printed(value, text) for value in point.values)


def is_printed(value: float, text: str) -> bool:
    """Whether the text has the number, in any unit that perftest prints."""
    exact = Decimal(repr(value))
    factors = (*BYTES.values(), Decimal(10**6), Decimal("1e-6"), Decimal(1))
    return any(f"{exact / factor:.{decimals}f}" in text for factor in factors for decimals in (2, 6))
