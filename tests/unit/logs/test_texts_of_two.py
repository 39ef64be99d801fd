"""Text of two runs that is read as one: a figure may be another run's, and none is `ok`.

The lines are those of the corpus: only what stands together is made up.
"""

import io

import pytest

from fabbench.model.log import Log, Outcome
from fabbench.runs.parse_file import parse_stream
from tests.support.corpus import CORPUS


def read(*lines: str) -> list[Log]:
    text = "\n".join([*lines, ""])
    return [log for _, log in parse_stream(io.BytesIO(text.encode()), "x")]


HEAD = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec"
ROW = "64      10      =10      1.2k        0.00s     21.33       3.00       0.33"
SERVER, CLIENT = "$ fi_pingpong -p tcp -e rdm", "$ fi_pingpong -p tcp -e {} 10.0.0.1"


@pytest.mark.parametrize(("endpoint", "is_ok"), [("rdm", True), ("msg", False)])
def test_the_two_sides_of_a_pair_have_one_endpoint_type(endpoint: str, *, is_ok: bool) -> None:
    (log,) = read(SERVER, CLIENT.format(endpoint), HEAD, ROW, HEAD, ROW)
    assert (log.outcome is Outcome.OK) == is_ok
    assert ("mixed-tables" in {finding.code for finding in log.findings}) != is_ok


@pytest.mark.parametrize("streams", [2, 3])
def test_a_pair_has_two_streams(streams: int) -> None:
    tables = [f"[rank {rank}] {line}" for rank in range(streams) for line in (HEAD, ROW)]
    (log,) = read(CLIENT.format("rdm"), *tables)
    assert (log.outcome is Outcome.OK) == (streams == 2)


FABTESTS = (CORPUS / "fabtests/layout-1-fi_rdm_bw-now.txt").read_text().split("\n")
MACHINE_ROW = "- { xfer_size: 64, iterations: 40, total: 2560, time: 0.000068, MB/sec: 37.647059 }"


@pytest.mark.parametrize("beside", [(), (MACHINE_ROW,)])
def test_a_program_prints_a_table_or_machine_readable_rows(beside: tuple[str, ...]) -> None:
    (log,) = read(*FABTESTS, *beside)
    assert (log.outcome is Outcome.OK) == (not beside)


UCX_HEAD = (
    "|              |              |       overhead (usec)        |   bandwidth (MB/s)  |"
    "  message rate (msg/s) |"
)
UCX_FINAL = "Final: 200 1.205 2.420 2.420 403.55 {} 413232 413232"


@pytest.mark.parametrize(("overall", "is_ok"), [("403.55", True), ("403.57", False)])
def test_rows_of_one_test_have_one_size(overall: str, *, is_ok: bool) -> None:
    (log,) = read(UCX_HEAD, UCX_FINAL.format(overall))
    assert (log.outcome is Outcome.OK) == is_ok


OSU = ["# OSU MPI Latency Test v7.5", "# Size       Avg Latency(us)"]
OSU_ROWS = ["1                       1.23", "2                       1.24"]


def test_two_heads_without_rows_between_are_of_two_tables() -> None:
    (whole,) = read(*OSU, *OSU_ROWS)
    (mixed,) = read(*OSU, OSU[1], *OSU_ROWS)
    assert (whole.outcome, mixed.outcome) == (Outcome.OK, Outcome.TRUNCATED)
    assert not mixed.points


def test_rows_above_the_first_type_are_not_of_that_type() -> None:
    (log,) = read(*OSU, *OSU_ROWS, "# Datatype: MPI_CHAR.", OSU[1], *OSU_ROWS)
    assert log.outcome is Outcome.TRUNCATED
    assert all("dtype" not in point.labels for point in log.points)


def test_rows_of_another_test_than_the_programs_are_damaged() -> None:
    put = (CORPUS / "nvshmem/every-line-of-that-proof-is-needed-1.txt").read_text().split("\n")
    alltoall = [
        "#alltoall_device",
        "size(B)     count     type      scope     latency(us)       algbw(GB/s)   busbw(GB/s) ",
        "32          4         64-bit    warp      6.142080          0.005         0.004       ",
    ]
    (log,) = read(*put)
    assert log.outcome is Outcome.OK
    (log,) = read(*put, *alltoall)
    assert (log.outcome, {*log.points[0].metrics}) == (Outcome.TRUNCATED, {"bandwidth"})


def test_a_set_up_that_goes_on_below_a_table_has_another_ones_table_in_it() -> None:
    path = CORPUS / "perftest/the-connection-type-is-the-proof-9.txt"
    lines = path.read_text().split("\n")
    begin = next(at for at, line in enumerate(lines) if "Connection type" in line)
    head = next(at for at, line in enumerate(lines) if "#bytes" in line)
    (whole,) = read(*lines)
    assert whole.outcome is Outcome.OK
    first, *_ = read(*lines[:begin], *lines[head : head + 2], *lines[begin:])
    assert first.outcome is not Outcome.OK


def test_a_program_that_measures_nothing_says_nothing_about_the_next_one() -> None:
    hello = ("# OSU MPI-CUDA Hello World Test v7.4", "This is a test with 2 processes")
    head = ("# OSU MPI Latency Test v5.9", "# Size          Latency (us)")
    rows = [f"{size}                       1.07" for size in (0, 1, 2)]
    (log,) = read(*hello, *head, *rows)
    assert (log.case, log.facts["osu"], log.facts.get("gpu")) == ("osu_latency", "5.9", None)


FIRST = ("# OSU MPI Bi-Directional Bandwidth Test v7.4", "# Size      Bandwidth (MB/s)")
SECOND = ("# OSU MPI Bandwidth Test v7.4", "# Size      Bandwidth (GB/s)")
SLOW = ("1024                 1500.25", "2048                 2800.50")
FAST = ("4096                   21.25", "8192                   22.50")


def labeled(*lines: str) -> list[str]:
    return [f"(head, rank=0, pid=1) {line}" for line in lines]


@pytest.mark.parametrize(
    ("second", "outcomes", "rates"),
    [
        # Its title and names of columns alone lost their label.
        ([*SECOND, *labeled(*FAST)], ["ok", "ok"], [21.25e9, 22.5e9]),
        (labeled(*SECOND, *FAST), ["ok", "ok"], [21.25e9, 22.5e9]),
        # Some rows did, too, or it is another program's table: which one cannot be told.
        ([*SECOND, *FAST[:1], *labeled(FAST[1])], ["ok", "truncated"], []),
        ([*SECOND], ["ok", "truncated"], []),
    ],
)
def test_lines_without_a_label_are_of_the_only_open_table(
    second: list[str], outcomes: list[str], rates: list[float]
) -> None:
    one, other = read(*labeled(*FIRST, *SLOW), *second)
    assert [one.outcome, other.outcome] == outcomes
    assert [point.values for point in one.points] == [(1500.25e6,), (2800.5e6,)]
    assert [point.values for point in other.points] == [(rate,) for rate in rates]


def test_rows_below_a_title_that_is_cut_are_not_of_the_table_above() -> None:
    latency = ("# OSU Latency Test v7.4", "# Size      Latency (us)", "1024   15.25")
    (whole,) = read(*latency, "2048   28.50")
    (log,) = read(*latency, "# OSU Open Ms]", "2048   28.50")
    assert (whole.outcome, len(whole.points)) == (Outcome.OK, 2)
    assert (log.outcome, len(log.points)) == (Outcome.TRUNCATED, 1)
    (ended,) = read(*latency, "# OSU is done")
    assert ended.outcome is Outcome.OK


def on_other_node(*lines: str) -> list[str]:
    return [f"(worker1, rank=1, pid=2) {line}" for line in lines]


BANDWIDTHS = ("1                    1500.25", "2                    2800.50")


@pytest.mark.parametrize("head", [labeled(*FIRST), on_other_node(*OSU)])
def test_rows_below_a_head_that_alone_has_a_label_are_not_of_the_table_above(
    head: list[str],
) -> None:
    alone, empty = read(*OSU, *OSU_ROWS, *head, *BANDWIDTHS)
    assert {alone.outcome, empty.outcome} == {Outcome.TRUNCATED}
    assert "mixed-tables" in {finding.code for finding in alone.findings}
    assert not alone.points


def test_rows_of_a_title_that_lost_its_label_beside_several_tables() -> None:
    above = [*labeled(*OSU, *OSU_ROWS), *on_other_node(*OSU, *OSU_ROWS)]
    first, empty, second = read(*above, *FIRST, *labeled(*BANDWIDTHS))
    assert [first.outcome, second.outcome, empty.outcome] == ["truncated", "ok", "truncated"]
    assert not first.points
    # With its own label, it is read.
    logs = read(*above, *labeled(*FIRST, *BANDWIDTHS))
    assert [log.outcome for log in logs] == [Outcome.OK] * 3


def test_whole_tables_with_and_without_labels_are_read() -> None:
    tables = [*labeled(*OSU, *OSU_ROWS), *on_other_node(*FIRST, *SLOW), *SECOND, *FAST]
    logs = read(*tables, "Warning: Permanently added 'node3' to the list of known hosts.")
    assert [log.outcome for log in logs] == [Outcome.OK] * 3


def test_a_type_has_one_table_below_a_title() -> None:
    typed = ["# Datatype: MPI_CHAR.", OSU[1], *OSU_ROWS]
    (several,) = read(OSU[0], *typed, "# Datatype: MPI_INT.", *typed[1:])
    (again,) = read(OSU[0], *typed, *typed)
    assert (several.outcome, again.outcome) == (Outcome.OK, Outcome.TRUNCATED)
