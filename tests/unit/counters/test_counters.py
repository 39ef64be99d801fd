"""NIC counters.

The real script on directories that look like /sys, what is read, and what is found.
"""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.counters.execution_counters import ExecutionCounters, Pair
from fabbench.counters.findings import FLOOR, Asked, balance, findings
from fabbench.counters.snapshot import (
    Nic,
    NicKind,
    NicTraffic,
    Snapshot,
    Traffic,
    difference,
    of_fabric,
    read_snapshot,
)
from fabbench.counters.vocabulary import RX, TX
from fabbench.evidence.judge import with_counters
from fabbench.model.errors import MachineError
from fabbench.model.log import Finding, Log, Outcome, Point, Proof, Severity
from fabbench.report import nics_table
from fabbench.report.expectations import expectations_of_log
from fabbench.report.table import to_markdown, to_terminal
from fabbench.runs.document import plain, read
from tests.support.any_text import CHARACTERS
from tests.support.counter_trees import Tree, efas, nic, run_script
from tests.support.needed import need

GB = 10**9
EFA = Asked(fabric="efa")
SHELLS = [("sh",), ("bash", "--posix"), ("dash",), ("busybox", "sh")]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Tree(tmp_path / "a root: with\tspaces")


def named(snapshot: Snapshot) -> dict[str, Nic]:
    return {found.name: found for found in snapshot.nics}


def found(traffic: Traffic, expected: Asked = EFA, **more: Traffic) -> dict[str, Finding]:
    return {finding.code: finding for finding in findings({"a": traffic, **more}, expected)}


# ---------------------------------------------------------------- the script and its reader


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_any_posix_shell_takes_the_snapshot(tree: Tree, shell: tuple[str, ...]) -> None:
    need(shell[0])
    tree.efa("rdmap16s27", 5, 7)
    tree.interface("eth0", 11, 13)
    assert tree.text(*shell) == tree.text("sh")


def test_efa_devices_are_read(tree: Tree) -> None:
    tree.efa("rdmap16s27", 5 * GB, 7 * GB, rdma_write_bytes=4 * GB, retrans_pkts=3, tx_pkts=9)
    snapshot = tree.snapshot()
    assert snapshot.unread == ()
    assert snapshot.time == 100.0
    counters = {
        TX: 5 * GB,
        RX: 7 * GB,
        "rdma_write_bytes": 4 * GB,
        "retrans_pkts": 3,
        "tx_packets": 9,
    }
    assert snapshot.nics == (
        Nic(name="rdmap16s27", kind=NicKind.EFA, counters=counters, link_rate=25e9, up=True),
    )


def test_infiniband_counts_four_octets_and_ports_are_told_apart(tree: Tree) -> None:
    files = {
        "rate": "2.5 Gb/sec (1X SDR)",
        "counters/port_xmit_data": 10,
        "counters/port_rcv_data": 1000,
    }
    tree.port("mlx5_0", files)
    tree.port("mlx5_0", {**files, "state": "1: DOWN"}, port=2)
    tree.port("mlx5_1", files, layer="Ethernet")
    read = named(tree.snapshot())
    assert list(read) == ["mlx5_0", "mlx5_0:2", "mlx5_1"]
    assert [one.kind for one in read.values()] == [NicKind.IB, NicKind.IB, NicKind.ROCE]
    assert [one.up for one in read.values()] == [True, False, True]
    assert read["mlx5_0"].counters == {TX: 40, RX: 4000}
    assert read["mlx5_0"].link_rate == pytest.approx(2.5e9 / 8)


SENT, RECEIVED = "counters/port_xmit_data", "counters/port_rcv_data"


@pytest.mark.parametrize(
    ("files", "layer", "counters", "unread"),
    [
        ({SENT: 10, "hw_counters/tx_bytes": 41}, "Ethernet", {TX: 40}, ""),
        (
            {SENT: 2**32 - 1, RECEIVED: 6},
            "InfiniBand",
            {RX: 24},
            "port_xmit_data is a 32-bit counter",
        ),
        *(
            ({SENT: value, RECEIVED: 1}, "InfiniBand", {RX: 4}, "port_xmit_data")
            for value in ("-1", "0x10", "1e9", "²", "", "9" * 20, "9" * 5000)
        ),
        ({SENT: 1}, "Unknown", None, "rdma0 is neither EFA"),
    ],
)
def test_what_is_no_counter_is_reported(
    tree: Tree, files: dict[str, object], layer: str, counters: dict[str, int] | None, unread: str
) -> None:
    tree.port("rdma0", files, layer=layer)
    snapshot = tree.snapshot()
    assert [one.counters for one in snapshot.nics] == ([] if counters is None else [counters])
    assert unread in "".join(snapshot.unread) if unread else not snapshot.unread


def test_interfaces_are_read_but_for_the_loopback(tree: Tree) -> None:
    tree.interface("lo", 1, 1, device=False)
    tree.interface("eth0", 11_000, 13_000, speed=100_000)
    tree.interface("veth1", 2, 3, speed=-1, device=False)
    eth0, veth1 = tree.snapshot().nics
    assert (eth0.kind, eth0.device, eth0.up, eth0.link_rate) == (NicKind.NETDEV, True, True, 12.5e9)
    assert (veth1.name, veth1.device, veth1.link_rate) == ("veth1", False, None)
    received = {RX: 11_000, "rx_packets": 11, "rx_errors": 1, "rx_dropped": 2}
    sent = {TX: 13_000, "tx_packets": 13, "tx_errors": 3, "tx_dropped": 4}
    assert eth0.counters == received | sent


def test_a_counter_that_gives_an_error_is_absent(tree: Tree) -> None:
    folder = tree.efa("rdmap16s27", 5, 7)
    (folder / "hw_counters/retrans_pkts").symlink_to("/proc/self/mem")  # reading it is EIO
    assert (tree.snapshot().nics[0].counters, tree.snapshot().unread) == ({TX: 5, RX: 7}, ())


def test_this_machine_is_read() -> None:
    first, second = (read_snapshot(run_script("/").splitlines()) for _ in range(2))
    assert first.unread == ()
    assert first.time
    assert "lo" not in named(first)
    interfaces = {path.name for path in Path("/sys/class/net").iterdir()} - {"lo"}
    assert {one.name for one in first.nics if one.kind is NicKind.NETDEV} == interfaces
    assert not [one for one in difference(first, second).nics if one.unreadable]


def test_a_snapshot_that_breaks_off_says_so(tree: Tree) -> None:
    tree.interface("eth0", 1, 1)
    lines = tree.text().splitlines()
    snapshot = read_snapshot(lines[:-1])
    assert snapshot.unread == ("The snapshot breaks off.",)
    assert snapshot.nics


def test_other_text_is_reported_and_not_endlessly() -> None:
    snapshot = read_snapshot(f"sh: line {number}: not found" for number in range(1000))
    assert snapshot.unread[0] == "Not understood: sh: line 0: not found"
    assert len(snapshot.unread) == 20


PIECES = st.sampled_from(
    [
        *(
            "sys/class/infiniband/",
            "sys/class/net/",
            "proc/net/dev:",
            "proc/uptime:",
            "mlx5_0",
            "/ports/1/",
        ),
        *(
            "counters/port_xmit_data",
            "hw_counters/tx_bytes",
            "link_layer:",
            "InfiniBand",
            "rate:",
            "eth0:",
        ),
        *(
            ":",
            "/",
            " ",
            "12",
            "1 2 3 4 5 6 7 8 1 2 3 4 5 6 7 8",
            "9" * 25,
            "device/uevent:",
            "DRIVER=efa",
        ),
    ]
)
NUMBERS = st.integers(0, 2**65).map(str)
PORT_LINES = st.builds(
    "sys/class/infiniband/{}/ports/{}/{}:{}".format,
    st.sampled_from(["mlx5_0", "rdmap0s1"]),
    st.sampled_from("12"),
    st.sampled_from(
        ["counters/port_xmit_data", "hw_counters/rx_bytes", "link_layer", "rate", "state"]
    ),
    st.one_of(
        NUMBERS, st.sampled_from(["InfiniBand", "Ethernet", "200 Gb/sec (4X HDR)", "4: ACTIVE"])
    ),
)
INTERFACE_LINES = st.builds(
    "proc/net/dev: {}: {}".format,
    st.sampled_from(["eth0", "lo"]),
    st.lists(NUMBERS, min_size=15, max_size=17).map(" ".join),
)
TIMES = NUMBERS.map("proc/uptime:{} 1".format)
FREE = st.one_of(st.text(CHARACTERS), st.lists(PIECES, max_size=8).map("".join))


def read_again(value: Any) -> Any:
    return msgspec.json.decode(json.dumps(plain(value)), type=type(value))


LINES = st.lists(st.one_of(PORT_LINES, INTERFACE_LINES, TIMES, FREE), max_size=30)


@given(LINES, LINES)
def test_reading_never_raises_and_no_difference_is_negative(
    before: list[str], after: list[str]
) -> None:
    first, second = read_snapshot(before), read_snapshot(after)
    traffic = difference(first, second)
    assert all(count >= 0 for one in traffic.nics for count in one.counters.values())
    assert traffic.seconds is None or traffic.seconds > 0
    for fabric in ("efa", "ib", "tcp"):
        findings({"a": traffic, "b": traffic}, Asked(fabric=fabric))
    nics_table.table({"a": traffic})
    assert read_again(first) == first


COUNTERS = st.dictionaries(
    st.sampled_from([TX, RX, "tx_packets", "retrans_pkts"]), st.integers(0, 2**64 - 1)
)


@given(COUNTERS, COUNTERS)
def test_counters_that_went_backwards_are_unreadable(
    before: dict[str, int], after: dict[str, int]
) -> None:
    [one] = difference(*(snapshot(counters) for counters in (before, after))).nics
    backwards = any(after[name] < before[name] for name in after.keys() & before.keys())
    known = bool({TX, RX} & before.keys() & after.keys())
    assert bool(one.unreadable) == (backwards or not known)
    assert one.counters.keys() == (set() if backwards else before.keys() & after.keys())
    assert all(count >= 0 for count in one.counters.values())


def snapshot(counters: dict[str, int], *, time: float | None = None, name: str = "x") -> Snapshot:
    return Snapshot(time=time, nics=(Nic(name=name, kind=NicKind.EFA, counters=counters),))


# ---------------------------------------------------------------- differences


def test_the_difference_of_two_snapshots(tree: Tree) -> None:
    tree.efa("rdmap16s27", 5 * GB, 7 * GB, rdma_write_bytes=1, send_bytes=1)
    before = tree.snapshot()
    tree.efa("rdmap16s27", 9 * GB, 8 * GB, rdma_write_bytes=3 * GB + 1, send_bytes=11)
    tree.at(102.5)
    traffic = difference(before, tree.snapshot())
    [one] = traffic.nics
    assert (one.tx, one.rx, traffic.seconds) == (4 * GB, 1 * GB, 2.5)
    assert traffic.rate(one.tx) == pytest.approx(1.6 * GB)
    assert traffic.families() == {"rdma-write": 3 * GB, "send/recv": 10}


def test_a_nic_that_was_not_there_is_listed_and_not_counted() -> None:
    moved = difference(snapshot({TX: 1, RX: 1}, name="x"), snapshot({TX: 5 * GB, RX: 1}, name="y"))
    assert [(one.name, one.tx, one.unreadable) for one in moved.nics] == [
        ("y", None, "It was missing before."),
        ("x", None, "It was present before, and missing after."),
    ]


def test_a_host_that_was_restarted_moved_nothing_that_is_known() -> None:
    traffic = difference(snapshot({TX: 1}, time=500.0), snapshot({TX: 2}, time=20.0))
    assert (traffic.seconds, traffic.nics[0].unreadable) == (None, "The host was restarted.")


# ---------------------------------------------------------------- which NICs are a fabric's


def over(*nics: NicTraffic) -> Traffic:
    return Traffic(seconds=1.0, nics=nics)


def eth(name: str, count: int) -> NicTraffic:
    return nic(name, count, count, NicKind.NETDEV)


MIXED = over(
    nic("rdmap0s1", 5, 5),
    nic("mlx5_0", 5, 5, NicKind.IB),
    nic("mlx5_1", 5, 5, NicKind.ROCE),
    eth("eth0", 5),
)
BRIDGE = replace(eth("docker0", 90), device=False)
BUSY = [nic("eth0", 80, 90, NicKind.NETDEV), nic("eth1", 90, 80, NicKind.NETDEV), eth("eth2", 10)]


@pytest.mark.parametrize(
    ("traffic", "fabric", "chosen", "names"),
    [
        (MIXED, "efa", [], "rdmap0s1"),
        (MIXED, "ib", [], "mlx5_0"),
        (MIXED, "roce", [], "mlx5_1"),
        (MIXED, "tcp", [], "eth0"),
        (MIXED, "ofi-tcp", [], "eth0"),
        (MIXED, "shm", [], ""),
        (MIXED, "cxi", [], ""),
        # Those that are named, also as libfabric does.
        (efas((5, 5), (5, 5), (5, 5)), "efa", ["rdmap1s1-rdm", "rdmap2s1"], "rdmap1s1 rdmap2s1"),
        # The busiest, and not the bridges over them.
        (over(BRIDGE, *BUSY), "tcp", [], "eth0 eth1"),
        (over(BRIDGE, eth("eth0", 0)), "tcp", [], "docker0"),
        (over(replace(nic("mlx5_9", 0, 0, NicKind.IB), up=False)), "ib", [], ""),
    ],
)
def test_a_fabric_has_its_nics(
    traffic: Traffic, fabric: str, chosen: list[str], names: str
) -> None:
    assert [one.name for one in of_fabric(traffic, fabric, chosen=chosen).nics] == names.split()


# ---------------------------------------------------------------- balance


def test_balance_of_one_nic_in_four() -> None:
    judged = balance([0, 0, 8, 0])
    assert judged
    assert (judged.max_over_mean, judged.sum, judged.mean, judged.cv) == pytest.approx(
        (4.0, 8, 2, math.sqrt(3))
    )


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=64).filter(any))
def test_balance_stays_within_its_bounds(values: list[int]) -> None:
    judged = balance(values)
    assert judged
    assert 1 - 1e-9 <= judged.max_over_mean <= len(values) + 1e-9
    assert 0 <= judged.cv <= math.sqrt(len(values) - 1) + 1e-9


# ---------------------------------------------------------------- findings


def test_nvshmem_that_receives_on_one_nic_of_four() -> None:
    """Sends are spread and receives are not (NVIDIA/nvshmem pull request 76)."""
    idle = (10 * GB, 3_000_000)
    [finding] = found(efas(idle, (10 * GB, 40 * GB), idle, idle)).values()
    assert (finding.code, finding.severity) == ("nic-imbalance-rx", Severity.WARNING)
    said = (
        "a: rdmap1s1 (1 of 4 NICs)",
        "100 % of 40.01 GB (max/mean 4, cv 1.73)",
        "sending is even",
    )
    assert [part for part in said if part not in finding.meaning] == []
    assert finding.line == "rdmap0s1 rx 3 MB, rdmap1s1 rx 40 GB, rdmap2s1 rx 3 MB, rdmap3s1 rx 3 MB"
    assert "pull request 76" in finding.advice


def test_one_idle_nic_of_thirty_two_is_named() -> None:
    [finding] = found(efas(*[(GB, GB)] * 31, (0, GB))).values()
    assert finding.code == "nic-imbalance-tx"
    said = ("rdmap31s1 (1 of 32 NICs)", " 0 % of 31 GB", "receiving is even")
    assert [part for part in said if part not in finding.meaning] == []


def test_hosts_that_show_the_same_share_a_finding() -> None:
    bad = efas((GB, GB), (GB, 0))
    finding = found(bad, b=efas((GB, GB), (GB, GB)), c=bad, d=bad)["nic-imbalance-rx"]
    assert finding.meaning.endswith("; the same on c, d.")


EVEN = efas(*[(GB + number, GB - number * 1000) for number in range(32)])
EIGHTH = efas(*[(GB, GB)] * 4, *[(0, 0)] * 28)
IDLE_EFA = over(*efas((0, 0), (0, 0)).nics, eth("eth0", GB))
BUSY_EFA = over(*efas((GB, GB), (GB, GB)).nics, eth("eth0", FLOOR))
NAMED = over(eth("fab0", 500), eth("fab1", GB))
IPOIB = over(eth("ib0", GB), nic("mlx5_0", GB, GB, NicKind.IB))
UNKNOWN = over(
    replace(nic("rdmap0s1", 0, 0), counters={}, unreadable="tx_bytes went backwards."),
    eth("eth0", GB),
)
TCP = Asked(fabric="tcp")


@pytest.mark.parametrize(
    ("traffic", "expected", "hosts", "codes"),
    [
        (EVEN, EFA, 2, ""),
        # A quarter above the mean is the limit, and the little that starts a run up is no
        # imbalance.
        (efas((124 * GB, GB), *[(92 * GB, GB)] * 3), EFA, 1, ""),
        (efas((127 * GB, GB), *[(91 * GB, GB)] * 3), EFA, 1, "nic-imbalance-tx"),
        (efas((2 * FLOOR - 2, 1), (0, 1)), EFA, 1, ""),
        # A run on fewer GPUs uses fewer NICs.
        (EIGHTH, EFA, 1, "nic-imbalance-rx nic-imbalance-tx"),
        (EIGHTH, Asked(fabric="efa", expected=4), 1, ""),
        (efas((0, 0), (0, 0)), EFA, 1, "nic-idle"),
        (efas((1000, 1000)), EFA, 1, ""),
        (IDLE_EFA, EFA, 2, "nic-wrong-network"),
        (BUSY_EFA, TCP, 2, "nic-wrong-network"),
        (BUSY_EFA, EFA, 2, ""),
        (NAMED, Asked(fabric="tcp", chosen=("fab0",)), 2, "nic-wrong-network"),
        (NAMED, Asked(fabric="tcp", chosen=("fab1",)), 2, ""),
        (IPOIB, TCP, 2, ""),
        (efas((0, 0)), Asked(fabric="shm"), 1, ""),
        (efas((GB, GB)), Asked(fabric="shm"), 1, "nic-wrong-network"),
        # Of what cannot be told nothing is said.
        (UNKNOWN, EFA, 2, ""),
        (UNKNOWN, Asked(fabric="psm3"), 2, ""),
        # An interface may drop a few.
        *(
            (
                over(nic("eth0", GB, GB, NicKind.NETDEV, tx_packets=10**6, rx_dropped=count)),
                TCP,
                1,
                codes,
            )
            for count, codes in ((5, ""), (5000, "nic-errors"))
        ),
    ],
)
def test_what_nics_moved_is_judged(
    traffic: Traffic, expected: Asked, hosts: int, codes: str
) -> None:
    assert (
        sorted(found(traffic, expected, **({"b": traffic} if hosts == 2 else {}))) == codes.split()
    )


def test_a_finding_names_what_moved() -> None:
    (other,) = found(IDLE_EFA, b=IDLE_EFA).values()
    assert all(
        part in other.meaning for part in ("a: efa ", " eth0 moved 2 GB", "rdmap0s1, rdmap1s1 0 B")
    )
    assert (other.meaning.endswith("the same on b."), other.line[:19]) == (
        True,
        "eth0 tx 1 GB rx 1 G",
    )


@pytest.mark.parametrize(
    ("troubles", "severity"),
    [
        ({"retrans_pkts": 5}, Severity.NOTE),
        ({"retrans_pkts": 5000}, Severity.WARNING),
        ({"unresponsive_remote_events": 1}, Severity.WARNING),
    ],
)
def test_errors_that_grew(troubles: dict[str, int], severity: Severity) -> None:
    bad = nic("rdmap0s1", GB, GB, NicKind.EFA, tx_packets=10**6, rx_packets=10**6, **troubles)
    [finding] = found(over(bad)).values()
    [(name, count)] = troubles.items()
    assert (finding.code, finding.severity) == ("nic-errors", severity)
    assert finding.meaning == f"a: {name} grew on rdmap0s1."
    assert finding.line == f"rdmap0s1 {name} +{count}"


@pytest.mark.parametrize(("again", "codes"), [(4, []), (900, []), (1_100, ["tcp-retransmits"])])
def test_segments_that_tcp_retransmitted(tree: Tree, again: int, codes: list[str]) -> None:
    tree.segments(0, 0)
    before = tree.snapshot()
    tree.segments(100_000 if again > 4 else 10, again)
    moved = difference(before, tree.snapshot())
    assert [each.code for each in findings({"a": moved, "b": over()}, TCP)] == codes
    assert not findings({"a": moved, "b": over()}, EFA)
    assert of_fabric(moved, "tcp").nics == ()


# ---------------------------------------------------------------- stored


def test_what_is_stored_is_read_again(tree: Tree) -> None:
    tree.efa("rdmap16s27", 5, 7)
    tree.interface("eth0", 1, 2)
    taken = tree.snapshot()
    hosts = {"a": Pair(taken, taken), "b": Pair(taken, None)}
    counters = ExecutionCounters(
        asked=Asked(fabric="efa", chosen=("x",), among=("a", "b")), hosts=hosts
    )
    assert read_again(counters) == counters
    assert read_again(counters).traffic() == {"a": difference(taken, taken)}


@pytest.mark.parametrize(
    "document", [None, {"format": 2, "hosts": {}}, {"format": 1, "hosts": {"a": 5}}]
)
def test_what_is_damaged_is_a_message(document: object, tmp_path: Path) -> None:
    (tmp_path / "counters.json").write_text(json.dumps(document))
    with pytest.raises(MachineError, match=r"counters\.json is damaged: .* `"):
        read(tmp_path / "counters.json", ExecutionCounters)


# ---------------------------------------------------------------- shown


RESTARTED = replace(
    nic("x", 0, 0), counters={}, unreadable="The host was restarted.", link_rate=None
)


@pytest.mark.parametrize(
    ("traffic", "rows", "note"),
    [
        (
            efas((10 * GB, GB), (30 * GB, GB)),
            [
                "a|rdmap0s1|10 GB|1 GB|5 GB/s (20 %)|500 MB/s (2 %)|200 Gb/s",
                "a|rdmap1s1|30 GB|1 GB|15 GB/s (60 %)|500 MB/s (2 %)|200 Gb/s",
            ],
            "a: tx max/mean 1.5, cv 0.5; rx max/mean 1, cv 0.",
        ),
        (
            efas(*[(12 * GB, GB), (13 * GB, GB)] * 16),
            ["a|32 NICs|400 GB|32 GB|200 GB/s (25 %)|16 GB/s (2 %)|200 Gb/s"],
            "a: tx max/mean 1.04, cv 0.04; rx max/mean 1, cv 0.",
        ),
        (
            Traffic(seconds=None, nics=(RESTARTED,)),
            ["a|x|-|-|-|-|-"],
            "a: the traffic of x is unknown: The host was restarted.",
        ),
    ],
)
def test_few_nics_are_shown_one_by_one_and_many_together(
    traffic: Traffic, rows: list[str], note: str
) -> None:
    table = nics_table.table({"a": traffic})
    assert (["|".join(row) for row in table.rows], table.notes) == (rows, [note])
    name = rows[-1].split("|")[1]
    assert (name in to_markdown(table), name in to_terminal([table])) == (True, True)


def test_live_shows_each_nic_where_there_is_room() -> None:
    lines = nics_table.live({"a": efas((10 * GB, GB), (30 * GB, GB)), "b": efas((4 * GB, GB))})
    assert [" ".join(line.split()) for line in lines] == [
        "tx rate rx rate",
        "a rdmap0s1 5 GB/s (20 %) 500 MB/s (2 %)",
        "a rdmap1s1 15 GB/s (60 %) 500 MB/s (2 %)",
        "b rdmap0s1 2 GB/s (8 %) 500 MB/s (2 %)",
    ]


def test_live_joins_what_has_no_room() -> None:
    hosts = {f"ip-10-0-0-{number}.ec2.internal": efas(*[(GB, GB)] * 32) for number in range(64)}
    lines = nics_table.live(hosts, max_lines=12)
    assert (len(lines), lines[-1]) == (12, "and 54 more hosts")
    assert " ".join(lines[1].split()[1:]) == "32 NICs 16 GB/s (2 %) 16 GB/s (2 %)"
    assert all(len(line) <= nics_table.COLUMNS for line in lines)


@pytest.mark.parametrize(
    ("rates", "stated", "share"),
    [
        (["100 Gb/sec (4X EDR)"] * 2, "", "8 % of the ceiling of the NIC (12.5 GB/s)"),
        (["100 Gb/sec (4X EDR)"] * 2, "ib-ndr", "2 % of the ceiling of the NIC (50 GB/s)"),
        # NICs that differ, and a rate that no link has by name.
        (["100 Gb/sec (4X EDR)", "25 Gb/sec (1X EDR)"], "", ""),
        (["3 Gb/sec"] * 2, "", ""),
    ],
)
def test_the_link_of_the_nics_is_the_ceiling_where_the_type_of_node_is_not_known(
    tree: Tree, rates: list[str], stated: str, share: str
) -> None:
    hosts = {}
    for host, rate in zip("ab", rates, strict=True):
        tree.port("mlx5_0", {"rate": rate, "hw_counters/tx_bytes": 1}, layer="Ethernet")
        hosts[host] = Pair(tree.snapshot(), tree.snapshot())
    counted = ExecutionCounters(
        asked=Asked(fabric="roce", chosen=("mlx5_0",), among=("a", "b")), hosts=hosts
    )
    point = Point(10**6, {"direction": "uni"}, ("bandwidth",), (1e9,))
    facts = {"transport": "RC", "link": "Ethernet"}
    log = Log(
        source="x", benchmark="perftest", case="ib_write_bw", outcome=Outcome.OK, reason=None,
        facts=facts, points=[point], proof=Proof(fabric="roce", instance_type=stated),
    )  # fmt: skip
    (judged,) = with_counters([log], counted)
    assert share in "".join(each.sentence() for each in expectations_of_log(judged))
    assert bool(expectations_of_log(judged)) == bool(share)


@pytest.mark.parametrize(
    ("rate", "benchmark", "case", "link"),
    [
        ("100 Gb/sec (4X EDR)", "perftest", "ib_write_bw", "roce-100"),
        ("100 Gb/sec (4X EDR)", "fabtests", "fi_rma_bw", "roce-100"),
        # Nothing else is bounded by one link.
        ("100 Gb/sec (4X EDR)", "perftest", "ib_write_lat", ""),
        ("100 Gb/sec (4X EDR)", "perftest", None, ""),
        ("100 Gb/sec (4X EDR)", "osu", "osu_bw", ""),
        ("3 Gb/sec", "perftest", "ib_write_bw", ""),
    ],
)
def test_the_link_of_the_nics_is_the_type_of_node_of_one_nics_bandwidth(
    tree: Tree, rate: str, benchmark: str, case: str | None, link: str
) -> None:
    tree.port("mlx5_0", {"rate": rate, "hw_counters/tx_bytes": 1}, layer="Ethernet")
    idle = Pair(tree.snapshot(), tree.snapshot())
    asked = Asked(fabric="roce", chosen=("mlx5_0",), among=("a", "b"))
    counted = ExecutionCounters(asked=asked, hosts={"a": idle, "b": idle})
    log = Log(
        source="x",
        benchmark=benchmark,
        case=case,
        outcome=Outcome.OK,
        reason=None,
        facts={},
    )
    (judged,) = with_counters([log], counted)
    assert judged.proof == (Proof(instance_type=link) if link else None)
    asked_for = Proof(fabric="roce", nics=1)
    (judged,) = with_counters([replace(log, proof=asked_for)], counted)
    assert judged.proof == replace(asked_for, instance_type=link)
