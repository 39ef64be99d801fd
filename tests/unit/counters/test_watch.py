"""Snapshots of a job's hosts while it runs: what moves, what stands out, and the verdict."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from fabbench.counters.snapshot import Nic, NicKind, Snapshot, read_snapshot
from fabbench.counters.vocabulary import RX, TX
from fabbench.counters.watch import (
    HostSamples,
    JobView,
    WatchResult,
    carries,
    judged,
    load,
    moving,
)
from fabbench.model.errors import Exit
from fabbench.model.log import Finding, Severity
from tests.support.counter_trees import Tree

GB = 10**9
LINK = 50e9  # 400 Gb/s


def efa(name: str, tx: float, rx: float, **more: int) -> Nic:
    counters = {TX: int(tx), RX: int(rx), **more}
    return Nic(name=name, kind=NicKind.EFA, counters=counters, link_rate=LINK, up=True)


def eth(tx: float, rx: float, name: str = "eth0", **more: int) -> Nic:
    counters = {TX: int(tx), RX: int(rx), **more}
    return Nic(name=name, kind=NicKind.NETDEV, counters=counters, up=True)


def at(seconds: float, *nics: Nic) -> Snapshot:
    return Snapshot(time=seconds, nics=nics)


def sampled(*snapshots: Snapshot) -> HostSamples:
    samples = HostSamples()
    for snapshot in snapshots:
        samples.take(snapshot)
    return samples


def steady(*nics: Nic, seconds: int = 10) -> HostSamples:
    """Return samples of NICs that move each second what their counters say."""
    snapshots = []
    for second in range(seconds + 1):
        then = [
            Nic(
                name=nic.name,
                kind=nic.kind,
                link_rate=nic.link_rate,
                up=nic.up,
                counters={name: count * second for name, count in nic.counters.items()},
            )
            for nic in nics
        ]
        snapshots.append(at(second, *then))
    return sampled(*snapshots)


def seen(hosts: Mapping[str, HostSamples], **failed: str) -> WatchResult:
    return judged(hosts, failed)


def codes(shown: WatchResult) -> list[str]:
    return [each.code for each in shown.findings]


EIGHT = [efa(f"rdmap{number}s1", 45.5 * GB, 45 * GB) for number in range(8)]


def test_healthy_hosts_are_fine() -> None:
    shown = seen({"a": steady(*EIGHT), "b": steady(*EIGHT)})
    assert (shown.status, shown.findings, shown.notes) == (Exit.FINE, [], [])
    first, last = shown.first, shown.last
    assert first.startswith("ok: 16 of 16 EFA NICs (rdmap0s1, ")
    assert first.endswith(" carry 91 % of their rate on 2 sampled hosts.")
    assert last == "ok: nothing stands out."
    total = shown.carriers["a"]
    assert total.seconds == 10
    assert load(total, total.nics[0]) == pytest.approx(45.5 * GB)


def test_only_what_moved_since_the_first_sample_counts() -> None:
    samples = sampled(at(5, efa("x", 90 * GB, 7)), at(7, efa("x", 96 * GB, 8)))
    assert samples.total.seconds == 2
    assert [load(samples.total, nic) for nic in samples.total.nics] == [3 * GB]


def test_a_counter_that_wraps_costs_one_interval_and_is_told() -> None:
    samples = sampled(
        at(0, efa("x", 2**32 - 10, 0)),
        at(1, efa("x", 5, 0)),
        at(2, efa("x", 5 + 2 * GB, 0)),
        at(3, efa("x", 5 + 4 * GB, 0)),
    )
    (nic,) = samples.total.nics
    assert nic.tx == 4 * GB
    shown = seen({"a": samples})
    assert shown.status is Exit.FINE
    (note,) = shown.notes
    assert note.startswith("a: x: tx_bytes went backwards")


def test_a_nic_that_disappears_is_bad_and_what_it_moved_counts() -> None:
    samples = sampled(
        at(0, efa("x", 0, 0), efa("y", 0, 0)),
        at(1, efa("x", GB, GB), efa("y", GB, GB)),
        at(2, efa("x", 2 * GB, GB)),
        at(3, efa("x", 3 * GB, GB)),
    )
    shown = seen({"a": samples})
    assert shown.status is Exit.BAD_ANSWER
    assert "nic-gone" in codes(shown)
    assert shown.last == "bad: a: y: It was present before, and missing after."
    assert {nic.name: nic.tx for nic in samples.total.nics} == {"x": 3 * GB, "y": GB}


def test_a_container_that_ends_takes_its_interface_along() -> None:
    veth = Nic(name="veth1", kind=NicKind.NETDEV, counters={TX: 1, RX: 1}, device=False)
    samples = sampled(at(0, eth(0, 0), veth), at(1, eth(GB, GB)), at(2, eth(2 * GB, GB)))
    shown = seen({"a": samples})
    assert (shown.status, shown.notes) == (Exit.FINE, [])


def test_a_host_that_does_not_answer_is_named_and_the_others_are_judged() -> None:
    hosts = {"a": steady(*EIGHT), "b": sampled(at(0, *EIGHT))}
    shown = seen(hosts, b="No answer.")
    assert shown.status is Exit.REFUSED
    assert [*shown.carriers] == ["a"]
    assert shown.last == "incomplete: b could not be watched: No answer."


def test_a_single_snapshot_shows_nothing() -> None:
    assert seen({"a": sampled(at(0, *EIGHT))}).status is Exit.UNTRUSTED
    assert seen({}, a="No route to host.").status is Exit.REFUSED


@pytest.mark.parametrize(
    ("nics", "status"),
    [
        ([], Exit.UNTRUSTED),
        ([eth(1000, 1000)], Exit.UNTRUSTED),
        ([efa("x", 1000, 0), eth(20_000_000, 20_000_000)], Exit.UNTRUSTED),
        ([eth(20_000_000, 20_000_000)], Exit.FINE),
        ([efa("x", 1000, 0), eth(2 * GB, 2 * GB)], Exit.BAD_ANSWER),
        ([efa("x", 1000, 0), eth(10, 2 * GB)], Exit.FINE),
        ([efa("x", 2 * GB, 0), eth(2 * GB, 2 * GB)], Exit.FINE),
    ],
)
def test_what_carries_the_data(nics: list[Nic], status: Exit) -> None:
    assert seen({"a": steady(*nics)}).status is status


def test_a_job_over_tcp_beside_idle_nics() -> None:
    shown = seen({"a": steady(*[efa("x", 0, 0), eth(2 * GB, GB)])})
    assert codes(shown) == ["tcp-instead"]
    assert shown.last == "bad: a: the data go over eth0 (TCP) beside idle NICs: x."


def test_an_idle_nic_of_one_host_stands_out() -> None:
    shown = seen({"a": steady(*EIGHT[:-1], efa("rdmap7s1", 0, 0)), "b": steady(*EIGHT)})
    assert {*codes(shown)} == {"nic-imbalance-tx", "nic-imbalance-rx"}
    assert "15 of 16" in shown.first


def test_nics_that_are_idle_on_all_hosts_have_another_purpose_unless_most_are() -> None:
    storage = [efa("s0", 0, 0), efa("s1", 0, 0)]
    shown = seen({"a": steady(*EIGHT, *storage), "b": steady(*EIGHT, *storage)})
    assert shown.status is Exit.FINE
    assert "16 of 20 EFA NICs" in shown.first
    idle = [efa(nic.name, 0, 0) for nic in EIGHT[1:]]
    assert seen({"a": steady(EIGHT[0], *idle)}).status is Exit.BAD_ANSWER


def test_a_host_that_sends_half_of_what_the_others_do() -> None:
    half = [efa("x", GB, 2 * GB)]
    full = [efa("x", 2 * GB, 2 * GB)]
    hosts = {"a": steady(*full), "b": steady(*full), "c": steady(*half)}
    shown = seen(hosts)
    assert codes(shown) == ["host-uneven"], shown.findings
    assert shown.last == "bad: c: it sends 50 % of what the others do."
    hosts["c"] = steady(efa("x", GB, GB))  # In both directions
    assert seen(hosts).last == shown.last
    # Two hosts do not show which of them is right, and as many slow ones as fast ones neither.
    del hosts["a"]
    assert seen(hosts).status is Exit.FINE


def test_what_moved_before_the_job_began_is_left_out() -> None:
    samples = sampled(at(0, efa("x", 0, 0)), at(10, efa("x", 1e6, 1e6)))
    assert not carries({"a": samples, "b": HostSamples()})
    samples.take(at(11, efa("x", GB, GB)))
    assert carries({"a": samples, "b": HostSamples()})
    samples.restart()
    assert (samples.total.seconds, samples.total.nics[0].tx) == (1, GB - 1e6)
    samples.take(at(12, efa("x", 2 * GB, 2 * GB)))
    assert (samples.total.seconds, samples.total.nics[0].tx) == (2, 2 * GB - 1e6)


def test_a_paused_nic_and_lost_packets() -> None:
    paused = efa("x", GB, GB, **{"paused_us.3": 400_000})
    shown = seen({"a": steady(paused), "b": steady(efa("x", GB, GB, retrans_pkts=5))})
    assert set(codes(shown)) == {"nic-paused", "nic-errors"}
    assert "paused x for 4 s of 10 s" in shown.last


def test_tcp_that_sends_again() -> None:
    tcp = Nic(name="TCP", kind=NicKind.TCP, counters={"tx_packets": 1000, "retrans_segs": 50})
    shown = seen({"a": steady(eth(GB, GB), tcp)})
    assert codes(shown) == ["tcp-retransmits"]


def test_nothing_moves_any_more() -> None:
    snapshots = [at(second, efa("x", min(second, 5) * GB, 0)) for second in range(20)]
    shown = seen({"a": sampled(*snapshots)})
    assert shown.status is Exit.UNTRUSTED
    assert "nothing has moved for 14 s" in shown.first


def job(code: str, severity: Severity = Severity.WARNING, waits: str = "") -> JobView:
    found = Finding(code=code, severity=severity, meaning="NCCL's RAS: it says so.")
    return JobView(waits, [found], "NCCL's RAS answers on a.")


def still() -> HostSamples:
    return sampled(*[at(second, efa("x", min(second, 5) * GB, 0)) for second in range(20)])


def test_nothing_moves_and_ranks_wait() -> None:
    waits = "ranks 4 to 7 wait for rank 3 (node-1, process 4711)"
    shown = judged({"a": still()}, {}, job("ras-mismatch", waits=waits))
    assert shown.status is Exit.BAD_ANSWER
    assert shown.first == f"bad: nothing has moved for 14 s: {waits} (RAS)."
    assert shown.last == shown.first
    assert shown.notes == ["NCCL's RAS answers on a."]


def test_nothing_moved_at_all_and_ranks_wait() -> None:
    samples = steady(efa("x", 0, 0), seconds=12)
    shown = judged({"a": samples}, {}, job("ras-mismatch", waits="rank 0 waits for rank 1 (a)"))
    assert shown.status is Exit.BAD_ANSWER
    assert shown.first == "bad: nothing has moved for 12 s: rank 0 waits for rank 1 (a) (RAS)."


def test_a_text_of_ras_says_who_does_not_answer() -> None:
    shown = judged({"a": still()}, {}, job("ras-incomplete", Severity.ERROR))
    assert shown.status is Exit.BAD_ANSWER
    assert shown.first.endswith("the job has ended, or hangs.")
    assert shown.last == "bad: NCCL's RAS: it says so."


def test_what_ras_says_of_a_job_that_moves_data_is_no_fault() -> None:
    shown = judged({"a": steady(*EIGHT)}, {}, job("ras-mismatch", waits="rank 0 waits"))
    assert (shown.status, shown.findings) == (Exit.FINE, [])


def test_a_ras_that_has_nothing_to_say_changes_nothing() -> None:
    shown = judged({"a": still()}, {}, JobView(note="NCCL's RAS answers on a."))
    assert shown.status is Exit.UNTRUSTED
    assert shown.first.endswith("the job has ended, or hangs.")


def test_calls_before_it_stopped_do_not_say_that_a_job_runs() -> None:
    note = Finding(code="inspector-speed", severity=Severity.NOTE, meaning="80 GB/s.")
    shown = judged({"a": still()}, {}, JobView(calls=[note]))
    assert shown.status is Exit.UNTRUSTED
    assert shown.last == "undecided: nothing has moved for 14 s: the job has ended, or hangs."


def test_a_lost_host_is_told_once_and_others_are_listed() -> None:
    shown = seen({"a": steady(*EIGHT)}, b="No answer.", c="No route.")
    assert shown.last == "incomplete: b could not be watched: No answer."
    assert shown.notes == ["c could not be watched: No route."]


def test_packets_tell_where_bytes_are_not_counted() -> None:
    rxe = Nic(name="rxe0", kind=NicKind.ROCE, counters={"tx_packets": 10**6, "rx_packets": 1})
    samples = steady(rxe, eth(1.05 * GB, GB))
    assert [nic.name for nic in moving(samples.total)] == ["rxe0", "eth0"]
    assert seen({"a": samples}).first.startswith("ok: 1 of 1 RoCE NICs (rxe0)")


def test_the_loopback_is_no_nic_and_is_told(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    samples = HostSamples()
    for second in range(3):
        tree.at(second)
        tree.interface("lo", second * GB, second * GB, device=False)
        tree.interface("eth0", 11, 13)
        samples.take(tree.snapshot(loopback=True))
    shown = seen({"a": samples})
    assert shown.status is Exit.UNTRUSTED
    assert shown.first == "undecided: no NIC carries a job on 1 sampled host."
    (loopback, _) = shown.carriers["a"].nics
    assert (loopback.name, load(samples.total, loopback)) == ("lo", GB)


def test_a_counter_that_no_driver_is_known_to_have_is_not_judged(tmp_path: Path) -> None:
    tree = Tree(tmp_path)
    samples = HostSamples()
    for second in range(2):
        tree.at(second)
        tree.port("mlx5_0", {"counters/port_xmit_data": second * GB})
        first, *others = tree.text().splitlines()
        unknown = "sys/class/infiniband/mlx5_0/ports/1/ethtool/rx_new_pause_thing:7"
        samples.take(read_snapshot([first, unknown, *others]))
    (note,) = seen({"a": samples}).notes
    assert note.startswith("a: mlx5_0: rx_new_pause_thing is not judged")
