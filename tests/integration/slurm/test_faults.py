"""Jobs of a real Slurm to which something happens.

A node is drained, a connection, the login node or the controller fails, others preempt it.
"""

import pytest

from fabbench.model.log import Outcome
from tests.support.host_fixtures import Labs, standin
from tests.support.hosts import processes
from tests.support.hosts.slurm import await_idle
from tests.support.slurm_runs import (
    ENDLESS,
    PAIRS,
    SLOW,
    files,
    nccl,
    nothing_left,
    pingpong,
    queued,
    site,
    taken,
    the_job,
)
from tests.support.ssh_faults import running, sizes
from tests.support.ssh_runs import STORE, the_log, the_run

pytestmark = [pytest.mark.lab, pytest.mark.slow]
ALL = [8, 16, 32, 64, 128, 256, 512, 1024]


def test_a_node_that_is_drained_meanwhile_finishes_its_job(lab: Labs) -> None:
    hosts = site(lab)
    try:
        with (
            nothing_left(hosts),
            standin(*hosts.hosts, ROW_S=2),
            running(hosts, nccl(*SLOW)) as run,
        ):
            run.until_rows(1)
            hosts[0].sh(["scontrol", "update", "nodename=node2", "state=drain", "reason=later"])
            assert run.process.poll() is None
            assert run.ends() == 0, run.err
        with running(hosts, nccl(*SLOW)) as run:
            assert run.ends() == 3
        assert "node2 (drain+idle: later" in run.err
    finally:
        hosts[0].sh(["scontrol", "update", "nodename=node2", "state=resume"])
        await_idle(hosts.hosts)


def test_connections_that_break_do_not_matter(lab: Labs) -> None:
    hosts = lab(3, fresh=True, slurm=True)
    with standin(*hosts.hosts, ROW_S=3), running(hosts, nccl(*SLOW)) as run:
        for rows in (1, 3, 5):
            run.until_rows(rows)
            hosts[0].kill_sshd()
            run.until_behind()
            hosts[0].start_sshd()
        assert run.ends() == 0, run.err
    assert (the_log(hosts, "tcp").outcome, sizes(the_log(hosts, "tcp"))) == (Outcome.OK, ALL)
    assert run.text().count("#@fabbench begin") == 1
    assert (queued(hosts[0]), files(hosts[0])) == ([], [])


def test_a_login_node_that_is_gone_at_the_end_is_reported(lab: Labs) -> None:
    hosts = lab(3, fresh=True, slurm=True)
    words = [*nccl(*SLOW), "--set", "lost-after=3"]
    with standin(*hosts.hosts, **ENDLESS), running(hosts, words) as run:
        run.until_rows(2)
        job = the_job(hosts[0])
        hosts[0].kill_sshd()
        assert run.ends() == 3
    assert f"Job {job} may still exist" in run.err
    assert "scancel" in run.err
    hosts[0].start_sshd()


def test_the_controller_may_be_silent_for_a_while(lab: Labs) -> None:
    """While ranks run: srun starts nothing without it."""
    hosts = lab(3, fresh=True, slurm=True)
    with standin(*hosts.hosts, ROW_S=2.5), running(hosts, nccl(*SLOW)) as run:
        run.until_rows(1)
        pid = hosts[0].path("/run/slurm/slurmctld.pid").read_text().strip()
        hosts[0].sh(["kill", "-STOP", pid])
        run.until_rows(5)
        hosts[0].sh(["kill", "-CONT", pid])
        assert run.ends() == 0, run.err
    assert sizes(the_log(hosts, "tcp")) == ALL
    assert processes.eventually(lambda: queued(hosts[0]) == [])


def test_a_disk_of_the_login_node_that_fills(lab: Labs) -> None:
    """What a step printed and nobody could keep is not a short table."""
    hosts = lab(3, fresh=True, slurm=True)
    with standin(*hosts.hosts, ROW_S=0.5), running(hosts, nccl(*SLOW)) as run:
        run.until_rows(1)
        hosts[0].fill_disk()
        assert run.ends() == 3, run.err
        hosts[0].free_disk()
    assert "No space left in /tmp/fabbench-" in run.err
    assert "on node0" in run.err
    assert the_log(hosts, "tcp").outcome is Outcome.TRUNCATED
    assert processes.eventually(lambda: queued(hosts[0]) == [])


def test_two_runs_at_a_time_share_nothing(lab: Labs) -> None:
    hosts = site(lab, 4)
    words = [*pingpong("--no-efa", *PAIRS)]
    with (
        nothing_left(hosts),
        running(hosts, words) as one,
        hosts.popen([*words[:-1], f"{STORE}-2"]) as two,
    ):
        assert one.ends() == 0, one.err
        _, err = two.communicate(timeout=120)
        assert two.returncode == 0, err
    assert the_run(hosts).logs("tcp")[0].outcome is Outcome.OK


def test_a_job_that_is_preempted_ends(lab: Labs) -> None:
    hosts = site(lab)
    with nothing_left(hosts), standin(*hosts.hosts, **ENDLESS), running(hosts, nccl(*SLOW)) as run:
        run.until_rows()
        with taken(hosts[0], "-N3", "-p", "urgent"):
            assert run.ends() == 3
    assert "preempted" in run.err
