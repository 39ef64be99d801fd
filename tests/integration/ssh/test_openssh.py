"""Runs over the user's OpenSSH: the faults that depend on the connection, and nothing is left."""

import re
import signal
import time

import pytest

from fabbench.model.log import Outcome
from tests.support.host_fixtures import Labs, standin
from tests.support.hosts import HOME, processes
from tests.support.ssh_faults import SIZES, SLOW, running, sizes, slow_run, tcp
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


def test_two_users_at_once(lab: Labs) -> None:
    """Each with a home, an ssh configuration and connections of their own."""
    site = lab(2)
    homes = [HOME / "ann", HOME / "bob"]
    for home in homes:
        theirs = site.path(home) / ".ssh"
        site.run(["mkdir", home], check=True)
        site.run(["cp", "-a", HOME / ".ssh", theirs], check=True)
        config = theirs / "config"
        own = f"ControlMaster auto\nControlPath {home}/%C\nUserKnownHostsFile {home}/.ssh/known_hosts\n"
        config.write_text(own + config.read_text())
    with nothing_left(site), standin(*site.hosts, ROW_S=0.5):
        started = []
        for home in homes:
            words = nccl(site, *BY_OPENSSH, *SLOW, "-v", "--ssh-config", f"{home}/.ssh/config")
            started.append(site.popen([*words[:-1], str(home / "runs")], env={"HOME": str(home)}))
        masters: list[set[str]] = []
        for process in started:
            _, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
            assert "8 of 8 sizes, ok" in err
            masters.append(set(re.findall(r"ssh -M .*? -S (\S+)", err)))
        assert [len(each) for each in masters] == [2, 2]
        assert masters[0].isdisjoint(masters[1])
    site.run(["rm", "-r", *homes], check=True)
