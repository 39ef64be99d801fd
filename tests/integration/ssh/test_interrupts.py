"""Ctrl-C and other signals at each stage of a run over ssh.

What was measured is kept, nothing is left.
"""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from tests.support.host_fixtures import BOTH_SSH_CLIENTS, Labs, standin
from tests.support.hosts import Lab, processes
from tests.support.ssh_faults import SIZES, SLOW, RunningCommand, running, sizes, tcp
from tests.support.ssh_runs import STORE, nccl, nothing_left, the_run

pytestmark = [pytest.mark.lab, BOTH_SSH_CLIENTS]


@pytest.mark.parametrize("other", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_in_the_middle_of_rows(lab: Labs, other: bool) -> None:
    """By Ctrl-C, and by another signal, which fabbench hears alike.

    Of these each client has one.
    """
    site = lab(2)
    number = signal.SIGINT
    if other:
        number = signal.SIGHUP if site.ssh_client == "openssh" else signal.SIGTERM
    with (
        nothing_left(site),
        standin(*site.hosts, WAIT_AT=SIZES[2]),
        running(site, nccl(site, *SLOW)) as run,
    ):
        run.until_rows()
        run.process.send_signal(number)
        if other:  # and once more, while it cleans up
            assert processes.eventually(lambda: not runs_somewhere(site, "all_reduce_perf"), 90)
            # It may have ended already: then nothing hears it.
            run.process.send_signal(number)
        assert run.ends() == 130, run.err
    assert "Interrupted" in run.err
    log = tcp(site)
    assert log.outcome is Outcome.TRUNCATED
    assert 2 <= len(sizes(log)) < 8


def interrupted(run: RunningCommand, ready: Callable[[], object]) -> None:
    """Interrupt a run once something is so, and see that it ends."""
    run.until(ready)
    run.process.send_signal(signal.SIGINT)
    assert run.ends() == 130, run.err
    assert "Interrupted" in run.err


def runs_somewhere(site: Lab, word: str) -> bool:
    return any(word in " ".join(line) for host in site.hosts for line in host.processes().values())


@pytest.mark.slow
def test_while_connecting(lab: Labs) -> None:
    """To a host that takes connections and says nothing."""
    site = lab(3)
    site[2].freeze()
    with nothing_left(site), running(site, nccl(site, *SLOW)) as run:
        interrupted(run, lambda: runs_somewhere(site, "sshd: root"))


@pytest.mark.slow
def test_while_hosts_are_asked(lab: Labs, tmp_path: Path) -> None:
    """One of them has a program that hangs."""
    site = lab(2, share=(tmp_path,))
    hangs = tmp_path / "fi_info"
    hangs.write_text("#!/bin/sh\nexec sleep 12345\n")
    hangs.chmod(0o755)
    # What hangs there has ten seconds, whatever becomes of fabbench.
    words = nccl(site, "--bin-dir", str(tmp_path), *SLOW)
    with nothing_left(site), running(site, words) as run:
        interrupted(run, lambda: runs_somewhere(site, "sleep 12345"))


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["agent", "keep", "mpirun", "orted", "all_reduce_perf"])
def test_as_soon_as(lab: Labs, stage: str) -> None:
    """The first moment at which something is seen on a host."""
    site = lab(2)
    with nothing_left(site), standin(*site.hosts, ROW_S=1), running(site, nccl(site, *SLOW)) as run:
        interrupted(run, lambda: runs_somewhere(site, stage))


@pytest.mark.slow
def test_between_executions(lab: Labs) -> None:
    site = lab(2)
    words = nccl(site, "--no-efa", "-e", "1K", "--repeat", "3")
    with nothing_left(site), standin(*site.hosts, ROW_S=0.2), running(site, words) as run:
        interrupted(run, lambda: list(site.path(STORE).glob("*/exec/000-*/run.json")))
    outcomes = [log.outcome for log in the_run(site).logs("tcp")]
    assert outcomes[0] is Outcome.OK
    assert len(outcomes) <= 2
