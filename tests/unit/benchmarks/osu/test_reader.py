"""Tables of the OSU micro-benchmarks, by version; what MPI said around them."""

from typing import Any

import pytest

from fabbench.benchmarks.osu.text import read_title
from fabbench.model.log import Ending, Log, Outcome
from fabbench.model.plan import Proof
from tests.support.read_logs import figures, read, read_one

LATENCY_7 = """\
# OSU MPI Latency Test v7.5
# Datatype: MPI_CHAR.
# Size       Avg Latency(us)
1                       1.23
2                       1.24
4194304               183.66
"""
LATENCY_5 = """\
# OSU MPI Latency Test v5.6.3
# Size          Latency (us)
0                       1.20
1                       1.23
"""
# 7.2 names the type below the columns.
CUDA_7_2 = """\
# OSU MPI-CUDA Latency Test v7.2
# Send Buffer on DEVICE (D) and Receive Buffer on DEVICE (D)
# Size          Latency (us)
# Datatype: MPI_CHAR.
1                       4.06
"""
BANDWIDTH = """\
# OSU MPI Bandwidth Test v7.5
# Datatype: MPI_CHAR.
# Size      Bandwidth (MB/s)
1                       1.24
268435456          12254.16
"""
RATE = """\
# OSU MPI Multiple Bandwidth / Message Rate Test v5.6.3
# [ pairs: 2 ] [ window size: 64 ]
# Size                  MB/s        Messages/s
1                       4.24        4235302.84
512                  1529.29        2986894.53
"""
COLLECTIVE = """\
# OSU MPI Allreduce Latency Test v7.5
# Datatype: MPI_INT.
# Size       Avg Latency(us)   Min Latency(us)   Max Latency(us)  Iterations
4                      11.69             10.02             13.40        1000
1048576              3576.10           3500.00           3600.00         100
"""
NON_BLOCKING = """\
# OSU MPI Non-blocking All-to-All Latency Test v5.6.3
# Overall = Coll. Init + Compute + MPI_Test + MPI_Wait

# Size           Overall(us)       Compute(us)    Pure Comm.(us)        Overlap(%)
1                      11.09              6.10              5.18              3.46
"""
BARRIER = """\
# OSU MPI Barrier Latency Test v7.5
# Avg Latency(us)
            12.34
"""
ONE_SIDED = """\
# OSU MPI_Put Latency Test v5.8
# Window creation: MPI_Win_allocate
# Synchronization: MPI_Win_flush
# Size          Latency (us)
1                       0.30
"""


def rows(log: Log) -> list[tuple[int, str, dict[str, float]]]:
    return [(point.size, point.labels.get("stat", ""), figures(point)) for point in log.points]


def us(value: float) -> Any:
    return pytest.approx(value * 1e-6)


@pytest.mark.parametrize(
    ("text", "case", "expected"),
    [
        (LATENCY_7, "osu_latency", [(1, "", {"latency": us(1.23)}), (2, "", {"latency": us(1.24)})]),
        (LATENCY_5, "osu_latency", [(0, "", {"latency": us(1.2)})]),
        (CUDA_7_2, "osu_latency", [(1, "", {"latency": us(4.06)})]),
        (BANDWIDTH, "osu_bw", [(1, "", {"bandwidth": pytest.approx(1.24e6)})]),
        (RATE, "osu_mbw_mr", [(1, "", {"bandwidth": pytest.approx(4.24e6), "message_rate": 4235302.84})]),
        (
            COLLECTIVE,
            "osu_allreduce",
            [(4, "", {"time": us(11.69)}), (4, "min", {"time": us(10.02)}), (4, "max", {"time": us(13.4)})],
        ),
        (
            NON_BLOCKING,
            "osu_ialltoall",
            [(1, "", {"time": us(11.09)}), (1, "compute", {"time": us(6.1)}), (1, "pure-comm", {"time": us(5.18)})],
        ),
        (BARRIER, "osu_barrier", [(0, "", {"time": us(12.34)})]),
        (ONE_SIDED, "osu_put_latency", [(1, "", {"latency": us(0.3)})]),
    ],
)
def test_every_kind_of_table(text: str, case: str, expected: list[tuple[int, str, dict[str, float]]]) -> None:
    log = read_one(text.splitlines())

    assert (log.benchmark, log.case, log.outcome) == ("osu", case, Outcome.OK)
    assert rows(log)[: len(expected)] == expected


def test_what_the_lines_above_a_table_say() -> None:
    assert read_one(CUDA_7_2.splitlines()).facts.items() >= {
        ("osu", "7.2"),
        ("gpu", "cuda"),
        ("datatype", "MPI_CHAR"),
        ("buffers", "device-device"),
    }
    assert read_one(RATE.splitlines()).facts["pairs"] == 2
    assert read_one(ONE_SIDED.splitlines()).facts["synchronization"] == "MPI_Win_flush"


@pytest.mark.parametrize(
    ("title", "case"),
    [
        ("OSU MPI Bi-Directional Bandwidth Test v6.1", "osu_bibw"),
        ("OSU MPI Multi Latency Test v5.9", "osu_multi_lat"),
        ("OSU MPI All-to-All Personalized Exchange Latency Test v5.6.1", "osu_alltoall"),
        ("OSU MPI Broadcast Latency Test v7.4", "osu_bcast"),
        ("OSU MPI Reduce_scatter Latency Test v7.4", "osu_reduce_scatter"),
        ("OSU MPI_Put Bi-directional Bandwidth Test v5.6.3", "osu_put_bibw"),
        ("OSU MPI_Get_accumulate latency Test v5.3", "osu_get_acc_latency"),
        ("OSU MPI_Fetch_and_op latency Test v5.8", "osu_fop_latency"),
        ("OSU MPI_Compare_and_swap latency Test v5.8", "osu_cas_latency"),
        ("OSU MPI-ROCM Latency Test v7.1", "osu_latency"),
        ("OSU NCCL Allreduce Latency Test v7.3", "osu_allreduce"),
        ("OSU MPI Something New Latency Test v9.0", "osu_something_new"),
    ],
)
def test_a_title_names_the_program(title: str, case: str) -> None:
    found = read_title(f"# {title}")
    assert found is not None
    assert found.case == case


def test_several_tables_of_one_file_are_several_logs() -> None:
    logs = read(f"{LATENCY_7}\n{BANDWIDTH}\n{BARRIER}")
    assert [(log.case, len(log.points)) for log in logs] == [("osu_latency", 3), ("osu_bw", 2), ("osu_barrier", 1)]


@pytest.mark.parametrize(
    "line", ["8                       1.2x", "8", "8 1.23 1.24", "8.5 1.23", "8 -1.23", "8 nan", "8 1e3"]
)
def test_a_row_that_cannot_be_read_is_damaged(line: str) -> None:
    log = read_one([*LATENCY_7.splitlines(), line])

    assert log.outcome is Outcome.TRUNCATED
    assert [row.text for row in log.damaged] == [line]
    assert len(log.points) == 3


@pytest.mark.parametrize("rate", ["2986894.53", "2986904.30", "2986884.77"])
def test_a_rate_within_its_rounding_is_read(rate: str) -> None:
    assert read_one(RATE.replace("2986894.53", rate).splitlines()).outcome is Outcome.OK


@pytest.mark.parametrize("rate", ["2987894.53", "1986894.53", "298689.45"])
def test_a_row_that_contradicts_itself_is_damaged(rate: str) -> None:
    log = read_one(RATE.replace("2986894.53", rate).splitlines())

    assert (log.outcome, len(log.damaged), len(log.points)) == (Outcome.TRUNCATED, 1, 1)


@pytest.mark.parametrize(("least", "most"), [("12.02", "13.40"), ("10.02", "11.40")])
def test_a_mean_is_between_the_least_and_the_most(least: str, most: str) -> None:
    text = COLLECTIVE.replace("10.02", least).replace("13.40", most)
    log = read_one(text.splitlines())

    assert (log.outcome, len(log.damaged)) == (Outcome.TRUNCATED, 1)


def test_a_row_that_lost_its_head_is_damaged() -> None:
    lines = [*LATENCY_7.splitlines()[:3], "512    1.23", "24    1.24", "2048   1.33"]
    log = read_one(lines)

    assert (log.outcome, [row.line for row in log.damaged], len(log.points)) == (Outcome.TRUNCATED, [5], 2)


def test_a_table_without_rows_is_truncated() -> None:
    log = read_one(LATENCY_7.splitlines()[:3])

    assert log.outcome is Outcome.TRUNCATED


def test_data_that_were_wrong_are_corrupt() -> None:
    checked = LATENCY_7.replace("Latency(us)", "Latency(us)        Validation").replace("1.23", "1.23    Fail")
    checked = checked.replace("1.24", "1.24   Pass").replace("183.66", "183.66    Pass")

    assert read_one(checked.splitlines()).outcome is Outcome.CORRUPT
    assert read_one(checked.replace("Fail", "Pass").splitlines()).outcome is Outcome.OK
    said = "DATA VALIDATION ERROR: osu_latency exited with status 1 on message size 8."
    assert read_one([*LATENCY_7.splitlines(), said]).outcome is Outcome.CORRUPT


def test_a_column_that_is_not_known_is_named() -> None:
    text = LATENCY_7.replace("Latency(us)", "Latency(us)   Joules").replace("1.23", "1.23  7").splitlines()[:4]
    log = read_one(text)

    assert rows(log) == [(1, "", {"latency": us(1.23)})]
    assert [found.code for found in log.findings] == ["unknown-column"]


def test_a_program_that_wants_other_ranks_has_failed() -> None:
    text = [*LATENCY_7.splitlines()[:1], "This test requires exactly two processes"]
    assert read_one(text).outcome is Outcome.FAILED


# As Open MPI 4.1.4 and UCX 1.13.1 print them.
TCP = "[vm:02078] mca: bml: Using tcp btl for send to [[25840,1],1] on node b"
SELF = "[vm:02078] mca: bml: Using self btl for send to [[25840,1],0] on node a"
SHM = "[vm:02395] mca: bml: Using vader btl for send to [[26027,1],1] on node a"
OFI = "[vm:09779] ../../ompi/mca/mtl/ofi/mtl_ofi_component.c:337: mtl:ofi:prov: {}"
DOMAIN = "[vm:09779] ../../ompi/mca/mtl/ofi/mtl_ofi_component.c:365: mtl:ofi:provider: rdmap0s6-rdm"
UCX_SELF = "[1795352063.36] [vm:2577 :0] ucp_worker.c:1763 UCX  INFO    ep_cfg[0]: tag(self/memory0 tcp/eth0)"
UCX = "[1795352063.36] [vm:2577 :0] ucp_worker.c:1763 UCX  INFO    ep_cfg[1]: tag({})"
UCX_NEW = "[1701292112.82] [a670n1:162239:0] ucp_worker.c:1855 UCX  INFO    0x100b240 inter-node cfg#3 tag({})"
INTEL = "[0] MPI startup(): libfabric provider: {}"


@pytest.mark.parametrize(
    ("said", "transport", "fabrics"),
    [
        ([SELF, TCP], "socket", {"tcp"}),
        ([SELF, SHM], "shm", {"shm"}),
        ([SELF, SHM, TCP], "socket", {"tcp"}),
        ([OFI.format("efa"), DOMAIN], "efa", {"efa"}),
        ([OFI.format("tcp;ofi_rxm")], "libfabric-tcp", {"ofi-tcp"}),
        ([DOMAIN], None, set()),
        ([UCX_SELF, UCX.format("tcp/eth0 tcp/lo")], "socket", {"tcp"}),
        ([UCX_SELF, UCX_NEW.format("rc_mlx5/mlx5_0:1 rc_mlx5/mlx5_1:1")], "ib", {"ib", "roce"}),
        ([UCX_NEW.format("rc_mlx5/mlx5_0:1 tcp/eth0")], "ib+socket", set()),
        ([INTEL.format("efa")], "efa", {"efa"}),
        ([], None, set()),
    ],
)
def test_the_transport_is_what_mpi_says(said: list[str], transport: str | None, fabrics: set[str]) -> None:
    lines = [*said, *LATENCY_7.splitlines()]

    assert read_one(lines).facts.get("transport") == transport
    for fabric in ("efa", "tcp", "ofi-tcp", "ib", "roce", "shm"):
        log = read_one(lines, Proof(fabric=fabric))
        wrong = Outcome.UNPROVEN if transport is None else Outcome.OFF_FABRIC
        assert log.outcome is (Outcome.OK if fabric in fabrics else wrong), fabric


def test_the_line_that_states_the_transport_is_kept() -> None:
    log = read_one([SELF, TCP, *LATENCY_7.splitlines()])

    assert log.evidence["transport"] == TCP


@pytest.mark.parametrize("line", [TCP, OFI.format("tcp;ofi_rxm")])
def test_hosts_are_those_whose_processes_speak(line: str) -> None:
    """Open MPI calls a peer by its name or by its address, as it was started."""
    others = [line.replace("[vm:", "[vm2:"), line.replace("[vm:", "[vm2:").replace("node b", "node 10.0.0.1")]

    assert "hosts" not in read_one([line, *LATENCY_7.splitlines()]).facts
    assert read_one([line, *others, *LATENCY_7.splitlines()]).facts["hosts"] == 2


def test_lines_of_mpi_within_a_table_are_no_rows() -> None:
    lines = LATENCY_7.splitlines()
    log = read_one([*lines[:4], TCP, *lines[4:]])

    assert (log.outcome, len(log.points), log.facts["transport"]) == (Outcome.OK, 3, "socket")


def test_an_exit_status_of_the_run_counts() -> None:
    assert read_one(LATENCY_7.splitlines(), ending=Ending(status=1)).outcome is Outcome.FAILED


@pytest.mark.parametrize("prefix", ["gpu-01: ", "[1,0]<stdout>:", "2026-11-22T10:00:01.123Z stdout F ", "0: "])
def test_behind_a_prefix(prefix: str) -> None:
    lines = [TCP, *LATENCY_7.splitlines()]
    (log,) = read("\n".join(prefix + line for line in lines))

    assert (log.case, len(log.points), log.facts["transport"]) == ("osu_latency", 3, "socket")
