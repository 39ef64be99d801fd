"""Runs on a real Slurm that are ended from outside: in an allocation, and by kill -9.

What interrupts do to runs of all batch systems is in test_batch_launchers.py.
"""

import shlex
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.host_fixtures import Labs, standin
from tests.support.hosts import HOME, processes
from tests.support.paths import ROOT
from tests.support.slurm_runs import (
    ENDLESS,
    SLOW,
    most_rows,
    nccl,
    nothing_left,
    site,
    state,
    taken,
    the_job,
)
from tests.support.ssh_faults import running
from tests.support.ssh_runs import STORE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

pytestmark = pytest.mark.lab


@pytest.mark.slow
@pytest.mark.parametrize("number", ["INT", "TERM"])
def test_in_an_allocation(lab: Labs, number: str) -> None:
    """What ran is ended on all nodes, and the allocation stays its owner's."""
    hosts = site(lab)
    words = [word for word in nccl(*SLOW[:-2]) if word not in {"--login", "node0", "--on", "slurm"}]
    salloc = ["salloc", "-N2", "-p", "rest", "--exclusive", "--quiet", "sh", "-c"]
    ours = (
        f"env -C {HOME} PYTHONPATH={ROOT}/src {shlex.join(words)}; echo status $?; srun true "
        "&& squeue -h"
    )
    with nothing_left(hosts), standin(*hosts.hosts, **ENDLESS):
        with hosts.popen(["ssh", "node0", shlex.join([*salloc, ours])]) as run:
            assert processes.eventually(lambda: most_rows(hosts[0].path(STORE)) >= 2)
            hosts[0].sh(["pkill", f"-{number}", "-f", f"^{sys.executable} -m fabbench run"])
            out, err = run.communicate(timeout=60)
        assert "status 130" in out, err
        assert " R " in out
        hosts[0].sh(["rm", "-rf", STORE])


@pytest.mark.slow
@pytest.mark.parametrize("moment", ["begins", "has a job", "measures"])
def test_killed_leaves_no_process_here(lab: Labs, moment: str) -> None:
    """The job on its nodes ends by itself, three minutes later."""
    hosts = site(lab)
    with nothing_left(hosts), standin(*hosts.hosts, **ENDLESS), running(hosts, nccl(*SLOW)) as run:
        when: Mapping[str, Callable[[], object]] = {
            "begins": lambda: processes.descendants(run.process.pid),
            "has a job": lambda: the_job(hosts[0]),
            "measures": run.rows,
        }
        run.until(when[moment])
        left = processes.descendants(run.process.pid)
        run.process.kill()
        run.process.wait()
        assert processes.ended_soon(left)
        if job := the_job(hosts[0]):
            hosts[0].sh(["scancel", job])


@pytest.mark.slow
def test_killed_on_the_login_node_leaves_no_process_there(lab: Labs) -> None:
    hosts = site(lab)
    words = [word for word in nccl(*SLOW) if word not in {"--login", "node0"}]
    ours = f"exec env -C {HOME} PYTHONPATH={ROOT}/src {shlex.join(words)}"
    with nothing_left(hosts), standin(*hosts.hosts, **ENDLESS):
        before = set(hosts[0].processes())
        with hosts.popen(["ssh", "node0", ours]) as run:
            assert processes.eventually(lambda: most_rows(hosts[0].path(STORE)) >= 1)
            started = set(hosts[0].processes()) - before
            hosts[0].sh(["pkill", "-9", "-f", f"^{sys.executable} -m fabbench run"])
            assert processes.ended_soon(started)
            run.communicate(timeout=60)
        hosts[0].sh(["scancel", the_job(hosts[0])])
        hosts[0].sh(["rm", "-rf", STORE])


@pytest.mark.slow
def test_what_a_killed_fabbench_left_is_found_and_cancelled(lab: Labs) -> None:
    hosts = site(lab)
    clean = [sys.executable, "-m", "fabbench", "clean", "--on", "slurm", "--login", "node0"]
    with nothing_left(hosts), standin(*hosts.hosts, **ENDLESS), taken(hosts[0], "-p", "one"):
        # The agent on the login node waits for twice as long.
        with running(hosts, [*nccl(*SLOW), "--set", "lost-after=10"]) as run:
            run.until_rows(1)
            run.process.kill()
        job = the_job(hosts[0])
        kept = hosts.run([*clean, "--yes"])
        assert [line.split()[:2] for line in kept.stdout.splitlines()] == [
            ["RUN", "PARTITION"],
            [job, "rest"],
        ]
        assert (kept.returncode, state(hosts[0], job)) == (0, "RUNNING")
        assert hosts.run([*clean, "--all"]).returncode == 1
        removed = hosts.run([*clean, "--all", "--yes"])
        assert "Removed 1 run." in removed.stderr
        assert processes.eventually(lambda: state(hosts[0], job) == "CANCELLED")
        assert "Nothing left to clean" in hosts.run(clean).stderr
