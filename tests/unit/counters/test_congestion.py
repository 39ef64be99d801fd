"""Congestion: one vocabulary of counters, ratios against limits and other NICs, runs and text."""

import json
import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest

from fabbench.catalog.systems import rows_of
from fabbench.counters.congestion import Port, signs, strains
from fabbench.counters.findings import Asked, findings
from fabbench.counters.snapshot import (
    NicKind,
    NicTraffic,
    Traffic,
    difference,
    read_snapshot,
)
from fabbench.counters.vocabulary import (
    RX,
    TX,
    Meaning,
    largest_of_priorities,
    named,
    names_of,
    resolved,
    vocabulary,
)
from fabbench.evidence.known_errors import by_code
from fabbench.model.log import Finding, Log, Severity
from tests.support.counter_trees import Tree, run_script, write
from tests.support.read_logs import read_lines, read_one

GB = 10**9
TB = 1000 * GB
ROCE = Asked(fabric="roce", among=("a", "b"))


def test_names_are_of_one_counter_each() -> None:
    names = [each.name for each in vocabulary()]
    assert len(names) == len(set(names))
    ours = names_of(*Meaning) | {"seconds"}
    for sign in signs():
        assert {sign.counter, sign.of} <= ours
        assert sign.code in by_code()
        assert sign.code in {row["code"] for row in rows_of("counted.csv")}


@pytest.mark.parametrize(
    ("counted", "ours"),
    [
        ({"port_xmit_data": 10, "tx_bytes": 41}, {TX: 40}),
        ({"tx_rdma_ucast_bytes": 7, "tx_rdma_mcast_bytes": 1}, {TX: 8}),
        ({"ip4OutOctets": 5, "ip6OutOctets": 6}, {TX: 11}),
        ({"PortXmitData": 3, "PortXmitWait": 4}, {TX: 12, "port_xmit_wait": 4}),
        ({"np_cnp_sent": 3}, {"cnp_sent": 3}),
        ({"rx_cnp_pkts": 3, "rp_cnp_handled": 3}, {"cnp_handled": 3}),
        ({"RxECNMrkd": 3}, {"marked": 3}),
        ({"rx_prio3_pause_duration": 9}, {"paused_us.3": 9}),
        ({"rx_pripause_5_1us_count": 9}, {"paused_us.5": 9}),
        (
            {"rx_pfc_ena_frames_pri4": 9, "rx_pause_ctrl_phy": 9},
            {"paused_frames.4": 9, "paused_frames": 9},
        ),
        ({"rx_prio3_buf_discard": 2, "rx_prio4_buf_discard": 3}, {"buffer_discards": 5}),
        (
            {"rx_pfc_ena_frames_pri": 9, "rx_stat_discards": 2},
            {"paused_frames": 9, "rx_discards": 2},
        ),
        (
            {"hni_sts_tx_ok_octets": 7, "hni_tx_paused_1": 5_000_000, "hni_pause_recv_1": 3},
            {TX: 7, "paused_us.1": 5000, "paused_frames.1": 3},
        ),
        ({"hni_pkts_recv_by_tc_0": 1, "hni_pkts_recv_by_tc_7": 2}, {"rx_packets": 3}),
        ({"TxWords": 10, "TxWait": 3, "DcRcvFcn": 2}, {TX: 40, "port_xmit_wait": 3, "marked": 2}),
        ({"XmitData": 10, "RcvBECN": 3}, {TX: 80, "cnp_handled": 3}),
        ({"lifespan": 10, "rx_write_requests": 4, "ch3_poll": 5, "atu_cache_hit_0": 1}, {}),
    ],
)
def test_what_each_driver_counts_has_one_name(
    counted: Mapping[str, int], ours: Mapping[str, int]
) -> None:
    assert resolved(counted) == ours


def test_a_name_that_no_source_has_is_not_known() -> None:
    assert named("rx_new_trouble") is None
    assert named("pct_new_trouble") is None
    assert named("bw_out_allowance_exceeded") is not None


def test_of_priorities_the_one_that_was_paused_longest_counts() -> None:
    counters = {"paused_us.3": 5, "paused_us.0": 7, "paused_frames.3": 9}
    assert largest_of_priorities(counters, "paused_us") == 7


def nic(
    name: str, counters: Mapping[str, int] | None = None, kind: NicKind = NicKind.ROCE
) -> NicTraffic:
    moved = {TX: TB, RX: TB, "rx_packets": GB}
    return NicTraffic(name=name, kind=kind, counters={**moved, **(counters or {})})


def found(*nics: NicTraffic, asked: Asked = ROCE) -> Mapping[str, Finding]:
    hosts = {
        "a": Traffic(seconds=60.0, nics=nics),
        "b": Traffic(seconds=60.0, nics=(nic("other"),)),
    }
    return {each.code: each for each in findings(hosts, asked) if "imbalance" not in each.code}


@pytest.mark.parametrize(
    ("counters", "code", "words"),
    [
        ({"paused_us.3": 55_443_322}, "nic-paused", "the switch paused mlx5_3 for 55 s of 60 s"),
        ({"paused_us.3": 300_000}, "", ""),
        ({"slowed_us.1": 6_000_000}, "nic-slowed", "held back what it sends for 6 s of 60 s"),
        ({"paused_frames.3": 20_000}, "nic-paused", "20 pause frames per GB"),
        ({"pausing_us.3": 6_000_000}, "nic-pausing", "mlx5_3 paused the switch for 6 s of 60 s"),
        ({"marked": 20_000_000}, "nic-marked", "2 % of the packets"),
        ({"marked": 2_000_000}, "", ""),
        ({"cnp_handled": 19_000_000}, "nic-slowed", "19,000 times per GB"),
        ({"cnp_handled": 50_000}, "", ""),
    ],
)
def test_a_sign_above_its_limit_is_a_finding_of_a_run(
    counters: dict[str, int], code: str, words: str
) -> None:
    shown = found(nic("mlx5_3", counters))
    assert [*shown] == ([code] if code else [])
    assert words in "".join(each.meaning for each in shown.values())
    assert {each.severity for each in shown.values()} <= {Severity.WARNING}
    assert all(each.advice for each in shown.values())


@pytest.mark.parametrize(
    ("own", "receiver", "expected"),
    [
        ({"cnp_handled": 0}, {"marked": 0}, ["nic-paused", "nic-unmarked"]),
        ({"cnp_handled": 0}, {}, ["nic-paused", "nic-unmarked"]),
        ({}, {"marked": 0}, ["nic-paused"]),  # whether it was told to slow down is not known
        ({"cnp_handled": 3}, {"marked": 0}, ["nic-paused"]),
        ({"cnp_handled": 0}, {"marked": 3}, ["nic-paused"]),
    ],
)
def test_a_nic_that_is_paused_while_nothing_is_marked(
    own: dict[str, int], receiver: dict[str, int], expected: list[str]
) -> None:
    shown = found(nic("mlx5_3", {"paused_us.3": 30_000_000, **own}), nic("mlx5_4", receiver))
    assert [*shown] == expected
    if len(expected) == 2:
        assert "mlx5_3 for 30 s of 60 s, and nothing was marked" in shown["nic-unmarked"].meaning


def test_a_nic_far_above_the_others_is_named_below_the_limit() -> None:
    others = [nic(f"mlx5_{number}", {"port_xmit_wait": GB}) for number in range(4, 8)]
    shown = found(nic("mlx5_3", {"port_xmit_wait": 100 * GB}), *others)
    assert [*shown] == ["nic-waited"]
    assert "mlx5_3 waited 0.4 ticks per 4 bytes" in shown["nic-waited"].meaning
    assert "mlx5_4" not in shown["nic-waited"].meaning
    assert not found(*others)


def test_several_nics_of_a_host_are_counted() -> None:
    paused = [
        nic(f"mlx5_{number}", {"paused_us.3": 6_000_000 * (number + 1)}) for number in range(3)
    ]
    assert "mlx5_2 for 18 s of 60 s; 2 more of its NICs" in found(*paused)["nic-paused"].meaning


def test_nics_of_another_job_say_nothing_of_sockets() -> None:
    asked = Asked(fabric="tcp", among=("a", "b"))
    eth = nic("eth0", kind=NicKind.NETDEV)
    busy = nic("mlx5_3", {"paused_us.3": 55_000_000, TX: 0, RX: 0})
    assert "nic-paused" not in found(eth, busy, asked=asked)


def test_without_what_to_compare_with_the_count_is_said() -> None:
    (strain,) = strains([Port("", "mlx5_0", {"marked": 5})])
    assert (strain.ratio, strain.is_heavy) == (None, False)
    assert "5 packets" in strain.sentence


def test_what_the_switch_paused_is_read_from_ethtool(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    ethtool = tmp_path / "bin/ethtool"
    lines = [
        "rx_prio3_pause: 12",
        "rx_prio3_pause_duration: 34",
        "rx_bytes_phy: 5",
        "rx_discards_phy: 6",
    ]
    printed = "\n".join(["NIC statistics:", *(f"     {line}" for line in lines)])
    ethtool.write_text(f"#!/bin/sh\n[ \"$2\" = ens1 ] && cat <<'END'\n{printed}\nEND\n")
    ethtool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ethtool.parent}:{os.environ['PATH']}")
    tree = Tree(tmp_path / "host")
    tree.port("mlx5_0", {"counters/port_xmit_data": 10}, layer="Ethernet")
    (tree.root / "sys/class/infiniband/mlx5_0/device/net/ens1").mkdir(parents=True)
    snapshot = tree.snapshot()
    (read,) = snapshot.nics
    assert snapshot.unread == ()
    counters = {TX: 40, "paused_frames.3": 12, "paused_us.3": 34, "rx_discards": 6}
    assert read.counters == counters


def test_a_nic_of_slingshot_is_read(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    device = tree.root / "sys/class/cxi/cxi0/device"
    counts = {
        "hni_sts_tx_ok_octets": 12,
        "hni_tx_paused_3": 7000,
        "ixe_tc_req_ecn_pkts_0": 2,
        "mb_ucor_err_cntr": 1,
    }
    for name, count in counts.items():
        write(device / "telemetry" / name, f"{count}@1700000000.000000001")
    write(device / "port/link", "up")
    write(device / "port/speed", "BS_200G")
    snapshot = tree.snapshot()
    (read,) = snapshot.nics
    assert snapshot.unread == ()
    assert (read.name, read.kind, read.up, read.link_rate) == ("cxi0", NicKind.CXI, True, 25e9)
    assert read.counters == {TX: 12, "paused_us.3": 7, "marked": 2, "uncorrectable_errors": 1}


def test_a_nic_of_slingshot_without_telemetry_counts_nothing(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    (tree.root / "sys/class/cxi/cxi0/device").mkdir(parents=True)
    snapshot = tree.snapshot()
    assert [(each.name, each.kind, each.counters) for each in snapshot.nics] == [
        ("cxi0", NicKind.CXI, {})
    ]
    (moved,) = difference(snapshot, snapshot).nics
    assert moved.unreadable


def test_marks_of_real_packets_are_counted() -> None:
    """The kernel counts packets whose header has the mark of a congested switch."""
    before = read_snapshot(run_script("/").splitlines())
    with (
        socket.socket(type=socket.SOCK_DGRAM) as here,
        socket.socket(type=socket.SOCK_DGRAM) as there,
    ):
        here.bind(("127.0.0.1", 0))
        there.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 3)  # CE
        for _ in range(200):
            there.sendto(b"x", here.getsockname())
    after = read_snapshot(run_script("/").splitlines())
    (counted,) = (each for each in difference(before, after).nics if each.kind is NicKind.TCP)
    assert counted.counters["marked"] >= 200
    assert counted.counters["rx_packets"] >= counted.counters["marked"]


# ---------------------------------------------------------------- pasted text


def codes(log: Log) -> dict[str, Severity]:
    return {each.code: each.severity for each in log.findings}


ETHTOOL = """\
$ ethtool -S ens1
NIC statistics:
     rx_prio3_pause: 918273645
     rx_prio3_pause_duration: 55443322
     tx_bytes_phy: 8182736451122
"""


def test_a_pause_in_pasted_text_is_a_sentence_with_the_nic() -> None:
    log = read_one(ETHTOOL.splitlines())
    assert log.outcome == "observed"
    assert codes(log) == {"nic-paused": Severity.WARNING}
    assert "paused ens1 for 55 s" in log.findings[0].meaning


PATH = "/sys/class/infiniband/{}/ports/1/hw_counters/{}:{}"


def test_one_nic_stands_out_in_pasted_text() -> None:
    lines = []
    for number in range(5):
        handled = 900_000 if number == 3 else 1000
        lines += [
            PATH.format(f"bnxt_re{number}", "tx_bytes", 2 * TB),
            PATH.format(f"bnxt_re{number}", "rp_cnp_handled", handled),
        ]
    log = read_one(lines)
    heavy = [each.meaning for each in log.findings if each.severity is Severity.WARNING]
    assert len(heavy) == 1
    assert heavy[0].startswith("bnxt_re3 was told 450 times per GB")


def test_names_that_nothing_is_known_of_are_listed_and_not_called_fine() -> None:
    many = [f"     rx_strange_{number}: 7" for number in range(40)]
    log = read_one(["NIC statistics:", *many, "     rx_strange_zero: 0"])
    assert codes(log) == {"counters-unjudged": Severity.NOTE}
    meaning = log.findings[0].meaning
    assert meaning.startswith("40 counters")
    assert "rx_strange_0" in meaning
    assert "rx_strange_zero" not in meaning
    assert len(meaning) < 300


EXPORTED = """\
node_infiniband_np_cnp_sent_total{device="mlx5_0",port="1"} 5e+06
node_infiniband_port_data_received_bytes_total{device="mlx5_0",port="1"} 1e+09
"""


@pytest.mark.parametrize(
    "text",
    [
        "link mlx5_0/1 rx_write_requests 4 np_cnp_sent 5000000 rx_bytes 1000000000",
        json.dumps([{"ifname": "mlx5_0", "np_cnp_sent": 5000000, "rx_bytes": GB}], indent=4),
        EXPORTED,
        "# Port extended counters: Lid 5 port 1\nPortXmitData:....250000000\nPortXmitWait:....9",
    ],
)
def test_congestion_is_read_from_each_tool(text: str) -> None:
    log = read_one(text.splitlines())
    assert log.outcome == "observed"
    assert {*codes(log)} <= {"nic-marked", "nic-waited"}
    assert codes(log)


@pytest.mark.parametrize(
    "number", ["1.2.3", "...", "1e999", "9" * 600, "\u0665", "0x5", "-5", "nan"]
)
def test_numbers_that_no_exporter_prints_are_no_counters(number: str) -> None:
    text = EXPORTED.replace("5e+06", number).replace("1e+09", number)
    assert not any(log.findings for log in read_lines(text.split("\n")))


def test_telemetry_of_slingshot_is_read_in_pasted_text() -> None:
    folder = "/sys/class/cxi/cxi1/device/telemetry/"
    counts = {"hni_tx_paused_0": 7 * GB, "pct_spt_timeouts": 4, "pct_new_trouble": 1}
    log = read_one([f"{folder}{name}:{count}@17.5" for name, count in counts.items()])
    assert {*codes(log)} == {"nic-paused", "counted-errors", "counters-unjudged"}
    meanings = " ".join(each.meaning for each in log.findings)
    assert "cxi1 for 7 s" in meanings
    assert "pct_new_trouble" in meanings


OPAPMAQUERY = """\
Port Number             1
    VL Select Mask      0x00008001
    Performance: Transmit
        Xmit Data                       1000 MB (125000000 Flits)
        Xmit Pkts                     500000
    Performance: Congestion
        Rcv FECN                           0
        Rcv BECN                       40000
        Xmit Wait                    1000000
    Errors: Signal Integrity
        Link Qual Indicator                5 (Excellent)
        Exc. Buffer Overrun                0

        VL Number    0
        Performance: Congestion
             Xmit Wait                  9000
"""


def test_omni_path_is_read_from_opapmaquery() -> None:
    log = read_one(OPAPMAQUERY.splitlines())
    assert {*codes(log)} == {"nic-slowed", "nic-waited"}
    meanings = " ".join(each.meaning for each in log.findings)
    assert "Port Number 1 was told 40,000 times per GB" in meanings
    assert "0.004 ticks per 4 bytes" in meanings  # of the port, not of its lane


RCCL_TESTS = """\
NET_COUNTER_TABLE: node=a  rank=0  duration_sec=18.204  nic_type=BNXT_RE
----------------------------------------------------------------------
Device               rx_pfc_ena_frames_pri  rx_cnp_pkts        to_retransmits
                     count          rate/s  count    rate/s    count   rate/s
----------------------------------------------------------------------
bnxt_re0(benic7p1)       9            0.49      0      0.00        0     0.00
bnxt_re1(benic8p1)       0            0.00      0      0.00        4     0.22
----------------------------------------------------------------------
"""


def test_the_table_of_rccl_tests_is_read() -> None:
    log = read_one(RCCL_TESTS.splitlines())
    assert {*codes(log)} == {"nic-paused", "nic-unmarked", "counted-errors"}
    sentence = "The switch sent bnxt_re0 9 pause frames, and nothing was marked"
    assert any(each.meaning.startswith(sentence) for each in log.findings)
