"""What all launchers of batch jobs have in common: one suite, over each of them.

Nothing may be left after any test of it: no job, no file, no process (the fixture looks).
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabbench.model.log import Outcome
from tests.support import slurm_runs
from tests.support.batch_launchers import BatchLauncher, Queue, Sky, Slurm
from tests.support.ssh_faults import sizes
from tests.support.tiers import sampled

LOCAL, LAB, SLOW = pytest.mark.local, pytest.mark.lab, pytest.mark.slow
ENDLESS = ("--env", "STANDIN_ROW_S=0.3", "--env", "STANDIN_HANG_AT=512")
"""Six rows come slowly; whatever happens later, it has not ended then."""
WORDS = {
    ("pbs", "lose"): "Exit_status = -20",
    ("pbs", "cancel"): "The script was stopped by a signal",
    ("lsf", "lose"): "TERM_ZOMBIE",
    ("lsf", "cancel"): "TERM_OWNER",
    ("flux", "lose"): "node failure on node1",
    ("flux", "cancel"): "type=cancel",
    ("skypilot", "lose"): "FAILED_DRIVER",
    ("skypilot", "cancel"): "CANCELLED",
    ("slurm", "lose"): "lost a node",
    ("slurm", "cancel"): "was cancelled",
}
"""How each system says that it has ended a job."""
REFUSALS = {
    "pbs": "Unknown queue",
    "lsf": "No such queue",
    "flux": "'nope' is not a valid queue",
    "skypilot": "No resource satisfying",
    "slurm": "Requested reservation is invalid",
}
"""What each system says of a job that it refuses."""
CUT_SHORT = {Outcome.TRUNCATED, Outcome.FAILED}
LAUNCHERS = (
    pytest.param("pbs", marks=LOCAL),
    pytest.param("lsf", marks=[LOCAL, SLOW]),
    pytest.param("flux", marks=[LOCAL, SLOW]),
    pytest.param("skypilot", marks=LOCAL),
    pytest.param("slurm", marks=LAB),
)


@pytest.fixture(params=LAUNCHERS)
def launcher(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[BatchLauncher]:
    made: BatchLauncher
    match request.param:
        case "slurm":
            made = Slurm(slurm_runs.site(request.getfixturevalue("lab")))
        case "skypilot":
            made = Sky(request.param, tmp_path, monkeypatch)
        case name:
            made = Queue(name, tmp_path, monkeypatch)
    with made.nothing_left():
        yield made


def test_a_run_is_one_job(launcher: BatchLauncher) -> None:
    with launcher.started("--repeat", "2") as run:
        assert run.ends() == 0, run.err
    assert [log.outcome for log in launcher.logs] == [Outcome.OK] * 2
    assert launcher.submitted() == 1
    (document,) = (launcher.run.path / "rendered").iterdir()
    assert document.name in {"job.sh", "job.sbatch", "task.yaml"}


@pytest.mark.parametrize("number", sampled([signal.SIGINT, signal.SIGTERM, signal.SIGHUP], every=3))
def test_rows_come_as_it_measures_and_an_interrupt_cancels_it(
    launcher: BatchLauncher, number: signal.Signals
) -> None:
    with launcher.started(*ENDLESS) as run:
        run.until(lambda: len(launcher.rows()) >= 2)
        run.process.send_signal(number)
        assert run.ends() == 130, run.err
    assert "Interrupted" in run.err
    (log,) = launcher.logs
    assert log.outcome is Outcome.TRUNCATED
    assert 2 <= len(sizes(log)) < 8


@pytest.mark.parametrize("how", ["lose", pytest.param("cancel", marks=SLOW)])
def test_a_job_that_loses_a_node_or_is_cancelled_is_the_environments_error(
    launcher: BatchLauncher, how: str
) -> None:
    with launcher.started(*ENDLESS) as run:
        run.until(lambda: len(launcher.rows()) >= 2)
        launcher.end(how)
        assert run.ends() == 3, run.err
    (log,) = launcher.logs
    assert log.outcome in CUT_SHORT
    assert WORDS[launcher.name, how] in f"{log.reason} {run.err}"


@SLOW
def test_what_a_time_limit_ends_is_a_timeout(launcher: BatchLauncher) -> None:
    """What was measured until then is kept."""
    if launcher.name == "skypilot":
        pytest.skip("its jobs have no time limit")
    with launcher.started(*ENDLESS, "--time", "1") as run:
        run.until(lambda: len(launcher.rows()) >= 2)
        launcher.end("expire")
        assert run.ends(240) == 4, run.err
    (log,) = launcher.logs
    assert log.outcome is Outcome.TIMEOUT, log.reason
    assert sizes(log) == [int(size) for size in launcher.rows()]
    assert len(sizes(log)) >= 2


def test_a_queue_that_is_full_is_waited_for_and_said(launcher: BatchLauncher) -> None:
    with launcher.full(), launcher.started("--start-timeout", "5") as run:
        assert run.ends() == 3, run.err
        assert launcher.waits in run.err
        assert "after 5 s" in run.err
    assert launcher.logs == []


@pytest.mark.parametrize("number", sampled([signal.SIGINT, signal.SIGTERM], every=2))
@SLOW
def test_an_interrupt_while_it_waits_cancels_it(
    launcher: BatchLauncher, number: signal.Signals
) -> None:
    with launcher.full(), launcher.started() as run:
        run.until(launcher.submitted)
        run.process.send_signal(number)
        assert run.ends() == 130, run.err
    assert launcher.logs == []


@SLOW
def test_a_job_that_is_refused_has_the_words_of_the_system(launcher: BatchLauncher) -> None:
    launcher.refuse()
    with launcher.started(*launcher.refused) as run:
        assert run.ends() == 3, run.err
    assert REFUSALS[launcher.name] in run.err
    assert launcher.logs == []


def test_what_programs_say_on_standard_error_is_in_the_log(launcher: BatchLauncher) -> None:
    with launcher.started(programs=Path("/nowhere")) as run:
        assert run.ends() == 4, run.err
    (log,) = launcher.logs
    assert log.outcome is Outcome.FAILED
    assert "program-missing" in {found.code for found in log.findings}, log.findings
