"""Runs over the user's OpenSSH: the faults that depend on the connection, and nothing is left."""

import signal
import time

import pytest

from fabbench.model.log import Outcome
from tests.support.host_fixtures import Labs
from tests.support.hosts import processes
from tests.support.ssh_faults import SIZES, running, sizes, slow_run, tcp
from tests.support.ssh_runs import nccl, nothing_left, run

pytestmark = [pytest.mark.lab, pytest.mark.slow]
BY_OPENSSH = ("--ssh-client", "openssh")


def test_a_run(lab: Labs) -> None:
    site = lab(2)
    with nothing_left(site):
        done = run(site, nccl(site, *BY_OPENSSH, "-v", "--no-efa", "-e", "1K", "--repeat", "1"))
    assert done.returncode == 0, done.stderr
    assert "OpenSSH (--ssh-client openssh)" in done.stderr
    assert tcp(site).outcome is Outcome.OK


@pytest.mark.parametrize("fault", ["sshd", "links"])
def test_a_connection_that_comes_back(lab: Labs, fault: str) -> None:
    site = lab(2, homes="own")
    with nothing_left(site), slow_run(site, *BY_OPENSSH) as run:
        for host in site.hosts:
            host.kill_sshd() if fault == "sshd" else host.cut("fab0")
        time.sleep(2)
        for host in site.hosts:
            host.start_sshd() if fault == "sshd" else host.heal("fab0")
        assert run.ends() == 0, run.err
    assert run.rows() == SIZES
    assert (tcp(site).outcome, sizes(tcp(site))) == (Outcome.OK, SIZES)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_end_in_the_middle_of_rows_leaves_no_connection(lab: Labs, number: signal.Signals) -> None:
    site = lab(2)
    with nothing_left(site, within_s=25), slow_run(site, *BY_OPENSSH, "--lost-after", "3") as run:
        run.process.send_signal(number)
        assert run.ends(30) in {130, -number}, run.err
    assert tcp(site).outcome is Outcome.TRUNCATED


def test_a_host_that_hangs_is_given_up(lab: Labs) -> None:
    site = lab(2)
    with nothing_left(site, within_s=25):
        with slow_run(site, *BY_OPENSSH, "--lost-after", "5", row_s=2, rows=1) as run:
            site[1].freeze()
            assert run.ends(90) == 4, run.err
        site[1].thaw()
    assert "No answer from node1 for" in run.err


def test_ctrl_c_while_it_connects(lab: Labs) -> None:
    site = lab(3)
    site[2].freeze()
    with nothing_left(site, within_s=25), running(site, nccl(site, *BY_OPENSSH, "--no-efa")) as run:
        assert processes.eventually(lambda: "sshd: root" in str(site[0].processes()))
        run.process.send_signal(signal.SIGINT)
        assert run.ends(30) == 130, run.err
        site[2].thaw()
