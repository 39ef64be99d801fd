"""Two runs of fabbench on one machine, with real programs: each of them hears of the other."""

from pathlib import Path

import pytest

from fabbench.launchers.login_node import login
from fabbench.model.hosts import Host, Target
from fabbench.model.log import Outcome
from tests.support.here import held
from tests.support.hosts import processes
from tests.support.local_runs import QUICK, fabbench, the_run

pytestmark = pytest.mark.local

HERE = Host(name="here")


@pytest.mark.slow
def test_a_run_hears_of_one_that_starts_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FABBENCH_NEIGHBORS")
    with held(HERE) as first, held(HERE) as second:
        (earlier,) = first.machines
        (later,) = second.machines
        assert later.others_there()  # it looked when it started
        assert processes.eventually(earlier.others_there, 60)


def test_a_run_beside_another_says_and_stores_it(tmp_path: Path) -> None:
    with held(HERE):
        words = ("run", "pingpong", "--on", "local", "--fabric", "tcp", "--size", "64", *QUICK)
        done = fabbench(tmp_path, *words, FABBENCH_NEIGHBORS="")
    assert "already runs" in done.stderr
    (log,) = the_run(tmp_path).logs("tcp")
    assert log.outcome is Outcome.OK
    assert "neighbor" in {each.code for each in log.findings}


def test_runs_in_one_job_hear_of_each_other_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """What others do on the machine where steps are started is on other nodes.

    The jobs are those of no other test, which may run now.
    """
    monkeypatch.delenv("FABBENCH_NEIGHBORS")
    here = Target(name="slurm", launcher="slurm")
    with (
        held(HERE),
        login(here, follows=True, job="90018"),
        login(here, follows=True, job="90017") as first,
    ):
        assert not first.agent.others_there()
        with login(here, follows=True, job="90017") as second:
            assert second.agent.others_there()
        with login(here, follows=True, job="900177") as third:
            assert not third.agent.others_there()
