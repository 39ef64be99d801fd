"""NIC counters of runs: before, after and during each execution, stored, judged and shown."""

import json
import re
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.benchmarks.nvshmem.plan import NvshmemWork
from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.cli import cli
from fabbench.cli.live import RunScreen
from fabbench.counters.execution_counters import ExecutionCounters, Pair, expected_nics, total
from fabbench.counters.findings import Asked
from fabbench.counters.snapshot import Traffic
from fabbench.execution import nic_sampler
from fabbench.execution.nic_sampler import View
from fabbench.launchers import launchers
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Host, Inventory
from fabbench.model.log import Finding, Log, Outcome, Point
from fabbench.model.plan import Execution
from fabbench.plan.build import plan
from fabbench.plan.request import RunRequest
from fabbench.runs.execute import PlanResult, Watcher
from fabbench.runs.inputs import open_run
from fabbench.runs.store import StoredRun
from fabbench.testing import ReplayLauncher, sample_run
from tests.support.command_line import runner
from tests.support.counter_trees import efas
from tests.support.host_fixtures import Labs
from tests.support.local_runs import QUICK, eventually, fabbench, pingpong, the_run
from tests.support.replay import GB, NVSHMEM, ReplayHosts
from tests.support.requests import request
from tests.support.ssh_runs import nothing_left, run
from tests.support.ssh_runs import pingpong as pingpong_over_ssh
from tests.support.ssh_runs import the_run as run_of_laptop

UNEVEN = ((10 * GB, 0), (10 * GB, 40 * GB), (10 * GB, 0), (10 * GB, 0))
"""What NVSHMEM 3.6.5 does with several NICs for each PE."""
WORK = NvshmemWork(tests=("alltoall_latency",), min_bytes=8, max_bytes=8)


def run_request(repeats: int) -> RunRequest:
    return request("nvshmem", WORK, "efa", target="playing", repeats=repeats)


def played(
    allocation: ReplayHosts, store: Path, *, nics: View | None = None, repeats: int = 1
) -> PlanResult:
    return sample_run(
        replace(run_request(repeats), store=store), allocation, watcher=Watcher(nics)
    )[1]


def replay_hosts(tmp_path: Path, **options: object) -> ReplayHosts:
    allocation = ReplayHosts(folder=tmp_path / "hosts", lines=NVSHMEM, moves=UNEVEN)
    for name, value in options.items():
        setattr(allocation, name, value)
    return allocation


def nic_findings(log: Log) -> dict[str, Finding]:
    return {finding.code: finding for finding in log.findings if finding.code.startswith("nic-")}


# ---------------------------------------------------------------- a real run


@pytest.mark.local
@pytest.mark.slow
def test_a_real_run_has_counters_from_before_and_after(tmp_path: Path) -> None:
    done = pingpong(
        tmp_path, "--fabric", "tcp", "--fabric", "shm", "--repeat", "1", "--size", "64", *QUICK
    )
    assert done.returncode == 0, done.stderr
    run = the_run(tmp_path)
    for execution in run.executions:
        counted = run.counters(execution.id)
        assert counted
        (pair,) = counted.hosts.values()
        assert pair.before
        assert pair.after
        assert (pair.before.time or 0) <= (pair.after.time or 0)
        assert [nic.name for nic in pair.before.nics] == [nic.name for nic in pair.after.nics]
        earlier = {nic.name: nic.counters for nic in pair.before.nics}
        for nic in pair.after.nics:
            assert all(count >= earlier[nic.name][name] for name, count in nic.counters.items())
        assert [nic_findings(log) for log in execution.logs] == [
            {}
        ]  # everything went through the loopback
    assert fabbench(tmp_path, "show").returncode == 0


# ---------------------------------------------------------------- findings


def command(
    allocation: ReplayHosts, store: Path, monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> Result:
    known = {**launchers(), "playing": ReplayLauncher(allocation)}
    monkeypatch.setattr("fabbench.launchers.launchers", lambda: known)
    return runner().invoke(cli, [*arguments, "--store", str(store)])


def test_receiving_on_one_nic_of_four_is_seen_in_run_and_in_show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocation = replay_hosts(tmp_path)
    words = (
        "run",
        "nvshmem",
        "--on",
        "playing",
        "--efa",
        "--program",
        "alltoall_latency",
        "-e",
        "8",
    )
    ran = command(allocation, tmp_path / "store", monkeypatch, *words)
    warning = (
        "a: rdmap1s1 (1 of 4 NICs) received 100 % of 40 GB (max/mean 4, cv 1.73), while "
        "sending is even"
    )
    assert ran.exit_code == 0, ran.output
    assert f"- efa: {warning}; the same on b." in ran.stdout
    (log,) = open_run("last", tmp_path / "store").logs("efa")
    assert log.outcome is Outcome.OK
    assert nic_findings(log).keys() == {"nic-imbalance-rx"}
    shown = command(allocation, tmp_path / "store", monkeypatch, "show")
    assert f"  warning: {warning}; the same on b." in shown.stdout.splitlines()
    cells = [line.split("|")[1:-1] for line in shown.stdout.splitlines() if "| rdmap1s1" in line]
    expected = ["rdmap1s1", "10 GB", "40 GB", "1 GB/s (4 %)", "4 GB/s (16 %)", "200 Gb/s"]
    assert [[cell.strip() for cell in row] for row in cells] == [["a", *expected], ["b", *expected]]
    assert "- b: tx max/mean 1, cv 0; rx max/mean 4, cv 1.73." in shown.stdout.splitlines()
    document = json.loads(
        command(allocation, tmp_path / "store", monkeypatch, "show", "--format", "json").stdout
    )
    (execution,) = document["executions"]
    assert [(nic["host"], nic["rx_bytes"]) for nic in execution["nics"] if nic["rx_bytes"]] == [
        ("a", 40 * GB),
        ("b", 40 * GB),
    ]


def test_what_is_stored_is_judged_as_it_was(tmp_path: Path) -> None:
    allocation = replay_hosts(tmp_path)
    results = played(allocation, tmp_path / "store", repeats=2)
    stored = open_run("last", tmp_path / "store")
    assert stored.logs("efa") == tuple(results.logs["efa"])
    assert [nic_findings(log).keys() for log in stored.logs("efa")] == [{"nic-imbalance-rx"}] * 2


def test_idle_nics_change_no_outcome(tmp_path: Path) -> None:
    allocation = replay_hosts(tmp_path, moves=[(0, 0)] * 4)
    played(allocation, tmp_path / "store")
    (log,) = open_run("last", tmp_path / "store").logs("efa")
    assert (log.outcome, set(nic_findings(log))) == (Outcome.OK, {"nic-idle"})


# ---------------------------------------------------------------- what is missing


def test_a_host_that_does_not_answer_is_a_note(tmp_path: Path) -> None:
    allocation = replay_hosts(tmp_path, silent=frozenset({"b"}))
    results = played(allocation, tmp_path / "store")
    assert results.stop is None
    (log,) = open_run("last", tmp_path / "store").logs("efa")
    found = nic_findings(log)
    assert found["nic-counters"].meaning == "No NIC counters of b from after this execution."
    assert found["nic-imbalance-rx"].meaning.startswith("a: rdmap1s1")


class Broken(ReplayHosts):
    """Its counters cannot be read at all."""

    def counters(self) -> Mapping[str, list[str]]:
        raise MachineError("grep not found on this machine.")


def test_counters_that_cannot_be_read_do_not_fail_the_run(tmp_path: Path) -> None:
    allocation = Broken(folder=tmp_path / "hosts", lines=NVSHMEM)
    results = played(allocation, tmp_path / "store")
    assert results.stop is None
    (log,) = open_run("last", tmp_path / "store").logs("efa")
    assert log.outcome is Outcome.OK
    notes = [finding.meaning for finding in log.findings if finding.code == "nic-counters"]
    missing = "No NIC counters of a, b from {} this execution. grep not found on this machine."
    assert notes == [missing.format("before"), missing.format("after")]


def test_an_interrupted_execution_has_its_counters(tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    results = played(replay_hosts(tmp_path, meanwhile=interrupt), tmp_path / "store", repeats=2)
    assert isinstance(results.stop, KeyboardInterrupt)
    stored = open_run("last", tmp_path / "store")
    first, second = stored.executions
    counted = stored.counters(first.id)
    assert counted
    assert counted.traffic().keys() == {"a", "b"}
    assert nic_findings(first.logs[0]).keys() == {"nic-imbalance-rx"}
    assert (second.begun, stored.counters(second.id)) == (False, None)


def test_a_crash_leaves_what_was_counted_before(tmp_path: Path) -> None:
    class CrashError(BaseException):
        pass

    def crash() -> None:
        raise CrashError

    with pytest.raises(CrashError):
        played(replay_hosts(tmp_path, meanwhile=crash), tmp_path / "store")
    stored = open_run("last", tmp_path / "store")
    (execution,) = stored.executions
    counted = stored.counters(execution.id)
    assert counted
    assert [(pair.before is None, pair.after is None) for pair in counted.hosts.values()] == [
        (False, True)
    ] * 2
    (log,) = execution.logs
    assert log.outcome is Outcome.TRUNCATED
    assert "NIC counters of a, b from after" in nic_findings(log)["nic-counters"].meaning


@pytest.mark.parametrize("text", ["{", '{"format": 9, "hosts": {}}', '{"format": 1, "hosts": {}}'])
def test_damaged_counters_are_a_note(tmp_path: Path, text: str) -> None:
    played(replay_hosts(tmp_path), tmp_path / "store")
    path = open_run("last", tmp_path / "store").path
    (path / "counters" / "000-efa-r1.json").write_text(text)
    (log,) = StoredRun(path).logs("efa")
    assert log.outcome is Outcome.OK
    assert nic_findings(log)["nic-counters"].meaning
    shown = runner().invoke(cli, ["show", str(path)])
    assert shown.exit_code == 0
    assert "| rdmap" not in shown.stdout.replace("| rdmap0s1 (efa)", "")


# ---------------------------------------------------------------- whose NICs


HOST = Host(
    name="a", interface="eth0", gpus=8, devices={f"rdmap{number}s1": "efa" for number in range(32)}
)
HOSTS = tuple(replace(HOST, name=name, interface=f"eth{name}") for name in "012")


def execution_of(
    work: PingpongWork | NvshmemWork, fabric: str, hosts: tuple[Host, ...]
) -> Execution:
    providers = {"tcp": frozenset({"msg"}), "efa": frozenset({"rdm"})}
    there = tuple(replace(host, providers=providers) for host in hosts)
    benchmark = "pingpong" if isinstance(work, PingpongWork) else "nvshmem"
    return plan(request(benchmark, work, fabric), Inventory(target="t", hosts=there)).executions[0]


def test_a_pair_uses_one_nic_of_the_first_and_of_the_last_host() -> None:
    asked = expected_nics(execution_of(PingpongWork(sizes=(64,)), "efa", HOSTS), HOSTS)
    assert (asked.expected, asked.chosen, asked.among) == (1, (), ("0", "2"))


def test_a_domain_names_the_nic_and_sockets_the_interfaces() -> None:
    work = PingpongWork(sizes=(64,), domain="rdmap3s1-rdm")
    assert expected_nics(execution_of(work, "efa", HOSTS), HOSTS).chosen == ("rdmap3s1-rdm",)
    sockets = execution_of(PingpongWork(sizes=(64,)), "tcp", HOSTS)
    assert expected_nics(sockets, HOSTS).chosen == ("eth0", "eth1", "eth2")


def test_one_pe_of_eight_gpus_has_its_part_of_the_nics() -> None:
    pair, everyone = (NvshmemWork(tests=(name,)) for name in ("shmem_put_bw", "alltoall_latency"))
    assert expected_nics(execution_of(pair, "efa", HOSTS[:2]), HOSTS[:2]).expected == 4
    assert expected_nics(execution_of(everyone, "efa", HOSTS[:2]), HOSTS[:2]).expected is None


def test_one_host_is_not_judged() -> None:
    assert (
        expected_nics(execution_of(PingpongWork(sizes=(64,)), "tcp", HOSTS[:1]), HOSTS[:1]).among
        == ()
    )
    parts = tuple(replace(host, virtual=True) for host in HOSTS[:2])
    assert expected_nics(execution_of(PingpongWork(sizes=(64,)), "tcp", parts), parts).among == ()


def test_executions_add_up() -> None:
    place_pairs = {"a": Pair(None, None)}
    counters = ExecutionCounters(
        asked=Asked(fabric="efa", chosen=("x",), among=("a", "b")), hosts=place_pairs
    )
    assert total([counters, counters]) == ({}, ())


# ---------------------------------------------------------------- live


def test_while_an_execution_runs_the_nics_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a thread: looking takes a round trip."""
    monkeypatch.setattr(nic_sampler, "EVERY_S", 0.01)
    monkeypatch.setattr(nic_sampler, "_PAUSE_FACTOR", 0)
    shown_nics: list[tuple[bool, Mapping[str, Traffic]]] = []
    seen = threading.Event()

    def nics(hosts: Mapping[str, Traffic]) -> None:
        shown_nics.append((threading.current_thread() is threading.main_thread(), hosts))
        if any(traffic.total for traffic in hosts.values()):
            seen.set()

    def meanwhile() -> None:
        assert seen.wait(60)

    results = played(replay_hosts(tmp_path, meanwhile=meanwhile), tmp_path / "store", nics=nics)
    number = len(shown_nics)
    assert results.stop is None
    assert seen.is_set()
    assert {main_thread for main_thread, _ in shown_nics} == {False}
    moved = [hosts["a"] for _, hosts in shown_nics if hosts["a"].total]
    assert [(nic.tx, nic.rx) for nic in moved[0].nics] == list(UNEVEN)
    assert moved[0].seconds == 10
    assert eventually(
        lambda: "fabbench counters" not in {thread.name for thread in threading.enumerate()}
    )
    assert len(shown_nics) == number


def test_nics_are_below_the_table_while_an_execution_runs(tmp_path: Path) -> None:
    wanted, drawn = plan(run_request(1), replay_hosts(tmp_path).inventory), list[Sequence[str]]()
    shown = RunScreen(wanted, lambda *state: drawn.append(state[-1]))
    for _ in range(2):
        shown.begin(wanted.executions[0], 1)
        shown.point(wanted.executions[0], Point(8, {}, ("latency",), (5e-6,)))
        shown.tick()
        assert shown.nics is not None
        shown.nics({"a": efas(*UNEVEN), "b": efas(*UNEVEN)})
        shown.tick()
        shown.end(wanted.executions[0], ())
    counts = [sum("rdmap1s1" in line for line in lines) for lines in drawn]
    assert (counts, drawn[1][: len(drawn[0])]) == ([0, 2, 0, 2], drawn[0])


# ---------------------------------------------------------------- real hosts


@pytest.mark.lab
@pytest.mark.slow
def test_between_hosts_the_interface_that_was_asked_for_moves_the_bytes(lab: Labs) -> None:
    """On a terminal, so that counters are read meanwhile too; and seen there."""
    site = lab(2)
    words = pingpong_over_ssh(site, "--fabric", "tcp", "--device", "fab1", "--size", "1M")
    with nothing_left(site):
        done = run(
            site, ["script", "-qec", shlex.join([*words, "--iterations", "150"]), "/dev/null"]
        )
    assert done.returncode == 0, done.stdout
    stored = run_of_laptop(site)
    (execution,) = stored.executions
    counted = stored.counters(execution.id)
    assert counted
    moved = counted.of_fabric(counted.traffic())
    assert {host: [nic.name for nic in traffic.nics] for host, traffic in moved.items()} == {
        host.name: ["fab1"] for host in site.hosts
    }
    assert all(150 << 20 < traffic.total < 3 * 150 << 20 for traffic in moved.values())
    assert [nic_findings(log) for log in execution.logs] == [{}]
    assert re.search(r"fab1 +\d+\.\d\d", done.stdout)
