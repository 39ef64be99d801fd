"""`fabbench run ep` between hosts over ssh: where ranks meet, and what happens when things fail.

Stand-ins of UCCL-EP's tests, one rank per GPU, that meet as torch's do.
"""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fabbench.model.log import Log, Outcome
from tests.support import ep_program
from tests.support.host_fixtures import Labs, standin, with_efa
from tests.support.hosts import Host, Lab, processes
from tests.support.ssh_faults import RunningCommand, running
from tests.support.ssh_runs import argv, hosts, nothing_left, run, the_log

pytestmark = [pytest.mark.lab, pytest.mark.slow]

NOTICES = ("ClientAliveInterval 2", "ClientAliveCountMax 2")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Make the stand-ins ahead of what a test holds to leave nothing."""
    return ep_program.made(tmp_path)


def ep(site: Lab, tests: Path, *more: str) -> list[str]:
    where = ("--on", "ssh", *hosts(site), "--gpus", "2", "--fabric", "efa", "--repeat", "1")
    program = ("--program", "uccl-ep", "--tests", str(tests), "--python", sys.executable)
    return argv("run", "ep", *where, *program, *more)


@contextmanager
def tuning(site: Lab, tests: Path, *more: str) -> Iterator[RunningCommand]:
    """Start a run that has its first result, and no other as long as nobody lets it go on."""
    words = ep(site, tests, *more)
    with standin(*site.hosts, TUNE=1), running(site, words) as started:
        started.until(lambda: started.text().count(ep_program.TUNING) > 2)
        yield started


def ranks(host: Host) -> list[int]:
    """Return the processes of the test itself: not mpirun, whose command line has it, too."""
    started = [sys.executable, "test_internode.py"]
    return [
        pid
        for pid, line in host.processes().items()
        if [line[0], *(Path(word).name for word in line[1:2])] == started
    ]


def is_still(started: RunningCommand) -> bool:
    """Return whether 20 lines of a rank bring the log no further."""
    before = started.text()
    time.sleep(1)
    return started.text() == before


def dispatch_alone(site: Lab) -> Log:
    """Return the log of a run that ended before combine was measured."""
    log = the_log(site, "efa")
    assert {point.labels["operation"] for point in log.points} <= {"dispatch RDMA", "dispatch NVL"}
    return log


@pytest.mark.parametrize(
    ("kernels", "case"),
    [("low-latency", "test_low_latency"), ("high-throughput", "test_internode")],
)
def test_ranks_of_two_hosts_meet(lab: Labs, programs: Path, kernels: str, case: str) -> None:
    """They find two nodes, and nothing that they print shows what carried the data."""
    site = with_efa(lab, share=(programs,))
    with nothing_left(site):
        done = run(site, ep(site, programs, "--kernels", kernels))
    assert done.returncode == 4, done.stderr
    log = the_log(site, "efa")
    assert (log.case, log.outcome, log.facts["ranks"]) == (case, Outcome.UNPROVEN, 4)
    assert log.points


def test_ctrl_c(lab: Labs, programs: Path) -> None:
    site = with_efa(lab, share=(programs,))
    with nothing_left(site), tuning(site, programs) as started:
        started.process.send_signal(signal.SIGINT)
        assert started.ends() == 130, started.err
    assert "Interrupted" in started.err
    assert dispatch_alone(site).outcome is Outcome.TRUNCATED


@pytest.mark.parametrize("number", [0, 1])
def test_a_rank_that_is_killed(lab: Labs, programs: Path, number: int) -> None:
    """The others wait in vain, and not for long."""
    site = with_efa(lab, share=(programs,))
    with nothing_left(site), tuning(site, programs) as started:
        processes.send(signal.SIGKILL, ranks(site[number])[-1])
        assert started.ends() == 4, started.err
    assert dispatch_alone(site).outcome is Outcome.FAILED


def test_a_host_that_dies(lab: Labs, programs: Path) -> None:
    site = with_efa(lab, share=(programs,), homes="own", sshd=NOTICES)
    with nothing_left(site), tuning(site, programs, "--set", "lost-after=5") as started:
        site[1].kill()
        assert started.ends() == 3, started.err
    assert "No answer from node1 for" in started.err
    assert dispatch_alone(site).outcome in {Outcome.TRUNCATED, Outcome.FAILED}


def test_a_disk_that_fills(lab: Labs, programs: Path) -> None:
    """What the ranks printed and nobody could keep is no whole log."""
    site = with_efa(lab, share=(programs,), homes="own")
    with nothing_left(site), tuning(site, programs) as started:
        site[0].fill_disk()
        started.until(lambda: is_still(started))  # nothing more can be kept
        for host in site.hosts:
            host.path(str(ep_program.TUNE)).unlink()
        assert started.ends() == 3, started.err
        site[0].free_disk()
    assert "No space left in /tmp/fabbench-" in started.err
    assert dispatch_alone(site).outcome is Outcome.TRUNCATED
