"""Real RDMA devices.

Two virtual machines with soft-RoCE. perftest, fi_pingpong, UCX and the counters are real.

The machines are emulated, and slow: few messages. No figure is looked at but what `watch` counts.
"""

import json
import re
import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fabbench.model.log import Log, Outcome
from tests.support import local_runs
from tests.support.host_fixtures import OSU
from tests.support.local_runs import eventually, the_run
from tests.support.vms import Machines

pytestmark = pytest.mark.rdma

PERFTEST = ("perftest", "--fabric", "roce", "--iterations", "100", "--timeout", "100")


def only(store: Path) -> Log:
    """The log of the one execution."""
    (log,) = the_run(store).logs("roce")
    return log


def codes(log: Log) -> set[str]:
    return {finding.code for finding in log.findings}


def test_check_finds_the_devices(rdma: Machines, tmp_path: Path) -> None:
    words = ("--fabric", "roce", "--interface", "eth1", "--benchmark", "perftest")
    done = local_runs.fabbench(tmp_path, "check", *rdma.options, *words, "--format", "json")
    status = {(row["host"], row["check"]): row["status"] for row in json.loads(done.stdout)}
    seen = {
        status[host, check]
        for host in rdma.names
        for check in ("rdma ports", "verbs", "memlock", "programs")
    }
    assert seen == {"pass"}, done.stdout


def test_perftest_over_roce_is_proven_and_its_packets_are_counted(
    rdma: Machines, tmp_path: Path
) -> None:
    with rdma.nothing_left():
        done = rdma.run(tmp_path, *PERFTEST)
    assert done.returncode == 0, done.stderr
    log = only(tmp_path)
    facts = {
        name: log.facts[name] for name in ("transport", "link", "device", "gid_index", "iterations")
    }
    expected = {
        "transport": "RC",
        "link": "Ethernet",
        "device": "rxe0",
        "gid_index": 1,
        "iterations": 100,
    }
    assert (log.outcome, facts, codes(log)) == (Outcome.OK, expected, set())
    counters = the_run(tmp_path).counters("000-roce-r1")
    assert counters
    moved = {
        host: traffic.nics[0].counters
        for host, traffic in counters.of_fabric(counters.traffic()).items()
    }
    # 100 messages of 64 KB in packets of 4 KB; soft-RoCE counts no bytes.
    assert moved["rdma2"]["tx_packets"] >= 1600
    assert moved["rdma1"]["rx_packets"] >= 1600


def test_a_ping_pong_over_verbs(rdma: Machines, tmp_path: Path) -> None:
    """A message takes some 10 ms here.

    Fabbench's own number of messages would take a quarter of an hour.
    """
    with rdma.nothing_left():
        done = rdma.run(
            tmp_path,
            "pingpong",
            "--fabric",
            "roce",
            "--size",
            "64",
            "--iterations",
            "10",
            "--timeout",
            "100",
        )
    assert done.returncode == 0, done.stderr
    log = only(tmp_path)
    assert (log.outcome, log.facts["transport"], log.facts["domain"]) == (
        Outcome.OK,
        "verbs",
        "rxe0",
    )
    assert {point.labels["sent"] for point in log.points} == {"10"}


def test_ucx_that_gets_no_answer_is_explained(rdma: Machines, tmp_path: Path) -> None:
    """UCX 1.13 chooses the device; its own messages stay unanswered on soft-RoCE."""
    words = ("--fabric", "roce", "-e", "64", "--timeout", "200", "--bin-dir", str(OSU))
    with rdma.nothing_left():
        done = rdma.run(tmp_path, "osu", *words)
    assert done.returncode == 4, done.stderr
    log = only(tmp_path)
    assert (log.outcome, log.facts["transport"], log.points) == (Outcome.FAILED, "ib", [])
    assert "nic-retries-exceeded" in codes(log)


def test_a_wrong_gid_index_is_explained(rdma: Machines, tmp_path: Path) -> None:
    with rdma.nothing_left():
        done = rdma.run(tmp_path, *PERFTEST, "--gid-index", "7")
    assert done.returncode == 4, done.stderr
    log = only(tmp_path)
    assert (log.outcome, log.points) == (Outcome.FAILED, [])
    assert "nic-unreachable" in codes(log)
    assert not re.search(r"Transport per the logs: (?!.*\(chosen\))", done.stdout)


def test_an_mtu_that_differs_shows(rdma: Machines, tmp_path: Path) -> None:
    """perftest agrees on the smaller one: the figure is good, and lower."""
    with rdma.changed("rdma2", "ip link set eth1 mtu 1500", "ip link set eth1 mtu 4200"):
        done = rdma.run(tmp_path, *PERFTEST)
    assert done.returncode == 0, done.stderr
    assert (only(tmp_path).outcome, only(tmp_path).facts["mtu"]) == (Outcome.OK, 1024)


def test_packets_that_are_lost_are_a_finding(rdma: Machines, tmp_path: Path) -> None:
    with rdma.changed(
        "rdma2", "tc qdisc add dev eth1 root netem loss 5%", "tc qdisc del dev eth1 root"
    ):
        done = rdma.run(tmp_path, *PERFTEST)
    assert done.returncode == 0, done.stderr
    (found,) = (finding for finding in only(tmp_path).findings if finding.code == "nic-errors")
    assert "out_of_seq_request" in found.meaning
    assert found.meaning in done.stdout


def causes(store: Path, *words: str) -> tuple[list[str], ...]:
    """Return what `explain` says of each: its causes, the most likely first."""
    told = local_runs.fabbench(store, "explain", *words, "--format", "json")
    return tuple(
        [each["code"] for each in log["causes"]] for log in json.loads(told.stdout)["logs"]
    )


def test_a_delay_is_named_beside_a_run_without_it(rdma: Machines, tmp_path: Path) -> None:
    """`-u 18`.

    Queue pairs wait a second before they send again, so that the delay is all that changes.
    """
    sizes = (
        "--size",
        "2",
        "--size",
        "1M",
        "--iterations",
        "20",
        "--timeout",
        "100",
        "--",
        "-u",
        "18",
    )
    words = ("perftest", "--fabric", "roce", "--program", "ib_send_lat", *sizes)
    done = rdma.run(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    usual = the_run(tmp_path).id
    with rdma.changed(
        "rdma2", "tc qdisc add dev eth1 root netem delay 50ms", "tc qdisc del dev eth1 root"
    ):
        done = rdma.run(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    delayed, before = causes(tmp_path, "last", usual)
    assert (delayed[:1], before) == (["path-delay"], [])


def test_memory_that_may_not_be_locked_is_named(rdma: Machines, tmp_path: Path) -> None:
    """As over a login without limits.conf: 64 KiB, and without root's right to more."""
    limited = "/root/limited"
    program = 'setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock /usr/bin/ib_write_bw "$@"'
    lines = shlex.join(["#!/bin/sh", f"ulimit -l 64; exec {program}"])
    made = f"mkdir {limited}; printf '%s\\n' {lines} >{limited}/ib_write_bw; chmod +x {limited}/*"
    with ExitStack() as stack:
        for name in rdma.names:
            stack.enter_context(rdma.changed(name, made, f"rm -r {limited}"))
        done = rdma.run(tmp_path, *PERFTEST, "--bin-dir", limited)
    assert done.returncode == 4, done.stderr
    assert (only(tmp_path).outcome, only(tmp_path).points) == (Outcome.FAILED, [])
    assert causes(tmp_path, "last")[0][:1] == ["memory-not-registered"]


def test_a_port_that_goes_down_ends_the_run(rdma: Machines, tmp_path: Path) -> None:
    sent = "cat /sys/class/infiniband/rxe0/ports/1/hw_counters/sent_pkts"
    before = int(rdma.sh("rdma2", sent))
    words = (
        "run",
        "perftest",
        *rdma.options,
        "--interface",
        "eth1",
        "--fabric",
        "roce",
        "--iterations",
        "1000000",
    )
    with rdma.nothing_left():
        running = local_runs.start_program(tmp_path, (*words, "--timeout", "300"))
        try:
            assert eventually(lambda: int(rdma.sh("rdma2", sent)) > before + 200, 240)
            with rdma.changed("rdma2", "ip link set eth1 down", "ip link set eth1 up"):
                out, err = running.communicate(timeout=200)
        finally:
            running.kill()
    assert running.returncode == 4, err
    log = only(tmp_path)
    assert (log.outcome, log.points) == (Outcome.FAILED, [])
    assert "Failed status" in (log.reason or "")
    assert "link_downed" in out


MTU, MESSAGE, COUNT = 1024, 65536, 50
FOREIGN = f"ib_write_bw -d rxe0 -x 1 -F -u 18 -m {MTU} -s {MESSAGE}"
"""What somebody types; in packets of 1 KiB, as `watch` takes those of soft-RoCE for."""


@contextmanager
def foreign(rdma: Machines, *more: str) -> Iterator["subprocess.Popen[str]"]:
    """Start ib_write_bw on both, without fabbench; yield the sender, on rdma2."""

    def end() -> None:
        for name in rdma.names:
            rdma.sh(name, "pkill -x ib_write_bw", check=False)

    words = f"{FOREIGN} {shlex.join(more)}"
    ssh = ("ssh", "-F", str(rdma.config))
    pipes: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        stack.enter_context(subprocess.Popen([*ssh, "rdma1", words], **pipes))
        stack.callback(end)
        # 18515, where it waits for the sender
        assert eventually(lambda: ":4853 " in rdma.sh("rdma1", "cat /proc/net/tcp*"), 60)
        argv = [*ssh, "rdma2", f"{words} 10.77.0.1"]
        sender = stack.enter_context(subprocess.Popen(argv, **pipes))
        stack.callback(end)
        yield sender


def says(rdma: Machines, name: str, command: str, text: str) -> bool:
    return text in rdma.sh(name, command)


def watch(rdma: Machines, store: Path, *more: str) -> "subprocess.Popen[str]":
    """Start a watch of both."""
    return local_runs.start_program(store, ("watch", *rdma.options, "--json", *more))


def watching(rdma: Machines, store: Path, *more: str) -> "subprocess.Popen[str]":
    """Start a watch of both, and wait until each is sampled."""
    started = watch(rdma, store, *more)
    for name in rdma.names:
        assert eventually(partial(says, rdma, name, "ps -eo args=", "sh -s"), 120)
    return started


def test_a_watch_counts_what_a_foreign_perftest_sends(rdma: Machines, tmp_path: Path) -> None:
    """What perftest prints is the rate over its own time, and the watch is longer."""
    with rdma.nothing_left():
        run = watching(rdma, tmp_path, "--every", "2")
        with foreign(rdma, "-n", str(COUNT)) as sender:
            told, _ = sender.communicate(timeout=300)
        run.send_signal(signal.SIGINT)
        out, err = run.communicate(timeout=60)
    assert run.returncode in {0, 1, 4}, err  # It may move too little for a job
    # Bytes, messages, peak, average (MB/s: MiB), messages per second
    row = re.search(rf"^ *{MESSAGE} +{COUNT} +\S+ +(\S+) ", told, re.MULTILINE)
    assert row, told
    printed = float(row[1]) * 2**20
    seconds = COUNT * MESSAGE / printed
    carriers = json.loads(out)["carriers"]
    for name, counter in (("rdma2", "tx_packets"), ("rdma1", "rx_packets")):
        (packets,) = (
            nic["counters"][counter] for nic in carriers[name]["nics"] if nic["name"] == "rxe0"
        )
        assert packets * MTU / seconds == pytest.approx(printed, rel=0.03)


def test_a_watch_says_whose_queue_pairs_a_device_has(rdma: Machines, tmp_path: Path) -> None:
    with rdma.nothing_left(), foreign(rdma, "-D", "600"):
        for name in rdma.names:
            seen = partial(says, rdma, name, "rdma resource show qp", "ib_write_bw")
            assert eventually(seen, 120)
        pids = {name: rdma.sh(name, "pgrep -x ib_write_bw").strip() for name in rdma.names}
        run = watch(rdma, tmp_path, "--for", "2")  # Its samples may be over before anybody looks
        out, err = run.communicate(timeout=200)
    assert run.returncode in {0, 1, 4}, err
    notes = json.loads(out)["notes"]
    for name, pid in pids.items():
        assert f"{name}: rxe0: queue pairs of ib_write_bw (process {pid}): 1." in notes, notes
