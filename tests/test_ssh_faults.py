"""What happens to a run over ssh when hosts, links and programs fail while it goes on."""

import time

import pytest

from fabbench.model import Outcome
from lab_hosts import Labs
from ssh_faults import SIZES, sizes, slowly, tcp
from ssh_runs import nothing_left

pytestmark = pytest.mark.lab

NOTICES = ("ClientAliveInterval 2", "ClientAliveCountMax 2")
"""sshd's own sessions end too where a network does not come back: hours later, if nothing is said."""


@pytest.mark.parametrize("fault", ["sshd", "links"])
def test_a_connection_that_comes_back(lab: Labs, fault: str) -> None:
    """The run goes on over there, and fabbench catches up: every row once, in order."""
    site = lab(2, homes="own")
    with nothing_left(site), slowly(site) as run:
        for host in site.hosts:
            host.kill_sshd() if fault == "sshd" else host.cut("fab0")
        time.sleep(2)
        for host in site.hosts:
            host.start_sshd() if fault == "sshd" else host.heal("fab0")
        assert run.ends() == 0, run.err
    assert run.rows() == SIZES
    assert (tcp(site).outcome, sizes(tcp(site))) == (Outcome.OK, SIZES)


@pytest.mark.parametrize(("fault", "number"), [("cut", 0), ("frozen", 1), ("killed", 1)])
def test_a_host_that_does_not_come_back(lab: Labs, fault: str, number: int) -> None:
    """It is given up after a while and named, the rest is kept, and it cleans up by itself."""
    site = lab(3, homes="own", sshd=NOTICES)
    lost = site[number]
    with nothing_left(site, within_s=15):
        with slowly(site, "--lost-after", "5", row_s=2, rows=1) as run:
            {"cut": lost.cut, "frozen": lost.freeze, "killed": lost.kill}[fault]()
            began = time.monotonic()
            assert run.ends() == 4, run.err
            took_s = time.monotonic() - began
        if fault == "frozen":
            lost.thaw()
        # A host that is cut off ends everything too, though nobody tells it.
    assert took_s < 20
    assert f"node{number} has not answered for" in run.err
    log = tcp(site)
    # mpirun notices by itself that a host is dead; of one that hangs it would wait for ever.
    assert log.outcome in {Outcome.TRUNCATED, Outcome.FAILED if fault == "killed" else Outcome.TRUNCATED}
    assert 1 <= len(sizes(log)) < 8
