"""What happens to a run over ssh when hosts, links and programs fail while it goes on.

Over either client.
"""

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from tests.support.host_fixtures import BOTH_SSH_CLIENTS, Labs, standin
from tests.support.hosts import Host, Lab, processes
from tests.support.ssh_faults import SIZES, SLOW, RunningCommand, running, sizes, slow_run, tcp
from tests.support.ssh_runs import STORE, kill_all, nccl, nothing_left, pingpong
from tests.support.ssh_runs import run as ssh_run

pytestmark = [pytest.mark.lab, pytest.mark.slow, BOTH_SSH_CLIENTS]

NOTICES = ("ClientAliveInterval 2", "ClientAliveCountMax 2")
"""sshd's own sessions end too where a network does not come back.

Hours later, if nothing is said.
"""


@pytest.mark.parametrize("fault", ["sshd", "links"])
def test_a_connection_that_comes_back(lab: Labs, fault: str) -> None:
    """The run goes on over there, and fabbench catches up: every row once, in order.

    What login shells say of themselves does not matter.
    """
    site = lab(2, homes="own")
    for host in site.hosts:
        (host.home / ".bashrc").write_text("echo Welcome; printf 'no end of a line'\n")
    with nothing_left(site), slow_run(site, "-v") as run:
        for host in site.hosts:
            host.kill_sshd() if fault == "sshd" else host.cut("fab0")
        run.until_behind()
        for host in site.hosts:
            host.start_sshd() if fault == "sshd" else host.heal("fab0")
        assert run.ends() == 0, run.err
    assert f"connect ({site.ssh_client})" in run.err
    assert run.rows() == SIZES
    assert (tcp(site).outcome, sizes(tcp(site))) == (Outcome.OK, SIZES)


def test_fabbench_itself_is_stopped_for_a_while(lab: Labs) -> None:
    """A laptop that sleeps.

    Longer than a host may be silent and than a step may take, and not as long as hosts wait for
    fabbench. The step goes on meanwhile, and ends.
    """
    site = lab(2)
    limits = ("--set", "lost-after=10", "--timeout", "10")
    with nothing_left(site), slow_run(site, *limits) as run:
        run.process.send_signal(signal.SIGSTOP)
        time.sleep(12)
        run.process.send_signal(signal.SIGCONT)
        assert run.ends() == 0, run.err
    assert run.rows() == SIZES


@pytest.mark.parametrize(("fault", "number"), [("cut", 0), ("frozen", 1), ("killed", 1)])
def test_a_host_that_does_not_come_back(lab: Labs, fault: str, number: int) -> None:
    """It is given up after a while and named, the rest is kept, and it cleans up by itself."""
    site = lab(3, homes="own", sshd=NOTICES)
    lost = site[number]
    with nothing_left(site):
        with slow_run(site, "--set", "lost-after=5", row_s=2, rows=1) as run:
            {"cut": lost.cut, "frozen": lost.freeze, "killed": lost.kill}[fault]()
            assert run.ends() == 3, run.err
        if fault == "frozen":
            lost.thaw()
        # A host that is cut off ends everything too, though nobody tells it.
    assert f"No answer from node{number} for" in run.err
    log = tcp(site)
    # mpirun notices by itself that a host is dead; of one that hangs it would wait for ever.
    assert log.outcome in {
        Outcome.TRUNCATED,
        Outcome.FAILED if fault == "killed" else Outcome.TRUNCATED,
    }
    assert 1 <= len(sizes(log)) < 8


def on_hosts(site: Lab, word: str) -> list[int]:
    """Processes on hosts whose command lines have a word."""
    return [
        pid
        for host in site.hosts
        for pid, line in host.processes().items()
        if any(word in each for each in line)
    ]


MOMENTS: Mapping[str, Callable[[RunningCommand], object]] = {
    "begins": lambda run: processes.descendants(run.process.pid),
    "connects": lambda run: on_hosts(run.lab, "sshd: root"),
    "asks hosts": lambda run: on_hosts(run.lab, "fi_info"),
    "agent": lambda run: on_hosts(run.lab, "keep"),
    "mpirun": lambda run: on_hosts(run.lab, "mpirun"),
    "first row": lambda run: run.rows(),
    "later rows": lambda run: len(run.rows()) >= 5,
    "between executions": lambda run: list(run.lab.path(STORE).glob("*/exec/000-*/run.json")),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_fabbench_killed_leaves_no_process(lab: Labs, moment: str) -> None:
    """Here after two seconds; on hosts soon, where a connection of fabbench's own can say so."""
    site = lab(2)
    again = ("-e", "1K", "--repeat", "2", "--no-efa", "--set", "lost-after=30")
    with (
        nothing_left(site, 120),
        standin(*site.hosts, ROW_S=0.2),
        running(site, nccl(site, *again)) as run,
    ):
        own = site.ssh_client == "openssh"  # paramiko starts no program
        if own or moment != "begins":
            run.until(lambda: MOMENTS[moment](run))
        left = processes.descendants(run.process.pid)
        run.process.kill()
        run.process.wait()
        assert processes.eventually(lambda: not any(map(processes.alive, left)), 2)
        if own and moment in {"first row", "later rows"}:
            # Programs have two seconds to end; the hosts' own lease is a minute here.
            assert processes.eventually(lambda: not on_hosts(site, "fabbench-"), 20)


def test_fabbench_killed(lab: Labs) -> None:
    """Nobody is left to clean up: the hosts do it, and another run is not disturbed meanwhile.

    So it is if a machine dies: no process of fabbench's is left to tell the hosts.
    """
    site = lab(2, homes="own")
    with nothing_left(site), standin(*site.hosts, ROW_S=1):
        with slow_run(site, "--set", "lost-after=4", row_s=1) as run:
            kill_all(run.process)
            assert any("all_reduce_perf" in line for line in site.traces())
        done = ssh_run(site, nccl(site, *SLOW))
        assert done.returncode == 0, done.stderr
        assert sizes(tcp(site)) == SIZES


@pytest.mark.parametrize(
    ("behaviour", "limits", "outcome", "reason"),
    [
        ({"EXIT_AT": "64:1:-9"}, (), Outcome.FAILED, "signal 9"),
        ({"EXIT_AT": "64:1:3"}, (), Outcome.FAILED, "exit"),
        (
            {"HANG_AT": "64", "IGNORE_TERM": "1"},
            ("--timeout", "8"),
            Outcome.TIMEOUT,
            "it timed out",
        ),
        ({"HANG_AT": "64"}, ("--silence", "3"), Outcome.TIMEOUT, "no output for 3 s"),
    ],
)
def test_ranks_that_fail(
    lab: Labs, behaviour: dict[str, str], limits: tuple[str, ...], outcome: Outcome, reason: str
) -> None:
    site = lab(2)
    with nothing_left(site), standin(*site.hosts, **behaviour):
        done = ssh_run(site, nccl(site, *SLOW, *limits))
    assert done.returncode == 4, done.stderr
    log = tcp(site)
    assert log.outcome is outcome
    assert reason in (log.reason or "")
    assert sizes(log) == [8, 16, 32]


def test_a_disk_that_fills(lab: Labs) -> None:
    """What a program printed and nobody could keep is not a short table."""
    site = lab(2, homes="own")
    with nothing_left(site), slow_run(site, "-i", "8", row_s=0.05) as run:
        site[0].fill_disk()
        assert run.ends() == 3, run.err
        site[0].free_disk()
    assert "No space left in /tmp/fabbench-" in run.err
    assert "on node0" in run.err
    log = tcp(site)
    assert log.outcome is Outcome.TRUNCATED
    assert 2 <= len(sizes(log)) < 128


PAIR = ("--fabric", "tcp", "--size", "64", "--iterations", "10000000", "--repeat", "1")
"""A pair that goes on for longer than any test."""


@contextmanager
def paired(lab: Lab, *more: str) -> Iterator[RunningCommand]:
    """Start fi_pingpong's two sides, and wait until they are at it."""
    with running(lab, pingpong(lab, *PAIR, *more)) as run:
        run.until(lambda: all(any(map(processes.is_busy, programs(host))) for host in lab.hosts))
        yield run


def programs(host: Host) -> list[int]:
    return [pid for pid, line in host.processes().items() if line[0].endswith("fi_pingpong")]


@pytest.mark.parametrize("number", [0, 1])
def test_a_side_that_is_killed(lab: Labs, number: int) -> None:
    """The other side waits in vain, and not for long."""
    site = lab(2)
    with nothing_left(site), paired(site, "--timeout", "60") as run:
        for pid in programs(site[number]):
            processes.send(signal.SIGKILL, pid)
        assert run.ends() == 4, run.err
    assert tcp(site).outcome is Outcome.FAILED


def test_a_side_whose_host_hangs(lab: Labs) -> None:
    site = lab(2, homes="own", sshd=NOTICES)
    with nothing_left(site):
        with paired(site, "--timeout", "60", "--set", "lost-after=4") as run:
            site[0].freeze()
            assert run.ends() == 3, run.err
        site[0].thaw()
    assert "No answer from node0 for" in run.err
    assert tcp(site).outcome is Outcome.TRUNCATED


def test_a_side_that_hangs(lab: Labs) -> None:
    site = lab(2)
    with nothing_left(site), paired(site, "--timeout", "6") as run:
        for pid in programs(site[0]):
            processes.send(signal.SIGSTOP, pid)
        assert run.ends() == 4, run.err
    log = tcp(site)
    assert log.outcome is Outcome.TIMEOUT
    assert "aborted after 6 s" in (log.reason or "")


def test_a_side_whose_connection_breaks(lab: Labs) -> None:
    site = lab(2)
    words = pingpong(
        site, "--fabric", "tcp", "--size", "64", "--iterations", "20000", "--repeat", "1"
    )
    with nothing_left(site), running(site, words) as run:
        run.until(lambda: all(programs(host) for host in site.hosts))
        site[1].kill_sshd()
        site[1].start_sshd()
        assert run.ends() == 0, run.err
    assert tcp(site).outcome is Outcome.OK


def test_an_mpirun_that_does_not_end(lab: Labs, tmp_path: Path) -> None:
    """Open MPI 5 does that now and then, when all ranks have ended.

    A whole table is worth no less for it.
    """
    site = lab(2, share=(tmp_path,))
    mpirun = tmp_path / "mpirun"
    mpirun.write_text('#!/bin/sh\n/usr/bin/mpirun "$@"\n[ "$1" = --version ] || exec sleep 1000\n')
    mpirun.chmod(0o755)
    with nothing_left(site):
        done = ssh_run(site, nccl(site, "--mpirun", str(mpirun), *SLOW))
    assert done.returncode == 0, done.stderr
    assert (tcp(site).outcome, sizes(tcp(site))) == (Outcome.OK, SIZES)


def test_silent_ranks_are_not_taken_for_ended_ones(lab: Labs) -> None:
    site = lab(2)
    with nothing_left(site), standin(*site.hosts, ROW_S=11.5):
        done = ssh_run(site, nccl(site, "--no-efa", "-e", "8", "--repeat", "1"))
    assert done.returncode == 0, done.stderr
    assert sizes(tcp(site)) == [8]
