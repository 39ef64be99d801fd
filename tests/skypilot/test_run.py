"""`fabbench run --on skypilot`: real launches on a Slurm of two hosts, and what becomes of them."""

import json
import signal
from pathlib import Path

import pytest

from fabbench.runs.store import StoredRun, runs
from tests.support.hosts import processes
from tests.support.skypilot_fixtures import NOTHING, USER, VENV, SkyLab

pytestmark = [pytest.mark.sky, pytest.mark.slow]
ONE = ("--fabric", "tcp", "--size", "64", "--iterations", "100")
LONG = ("--fabric", "tcp", "--size", "1M", "--iterations", "1000000", "--timeout", "300")


def newest(site: SkyLab) -> StoredRun:
    return StoredRun(next(runs(site.store)))


def test_both_configurations_are_measured_by_one_job(skypilot: SkyLab) -> None:
    words = (*ONE, "--fabric", "ofi-tcp", "--repeat", "2", "--format", "json")
    done = skypilot.run(*words, name="both")
    assert done.returncode == 0, done.stdout + done.stderr
    compared = json.loads(done.stdout)
    assert "SkyPilot" not in done.stdout
    assert compared
    run = newest(skypilot)
    assert [
        log.outcome for configuration in ("tcp", "ofi-tcp") for log in run.logs(configuration)
    ] == ["ok"] * 4
    for log in (log for configuration in ("tcp", "ofi-tcp") for log in run.logs(configuration)):
        assert (log.facts["transport"], {point.size for point in log.points}) == ("tcp", {64})
    assert [f"Job submitted, ID: {number}" in done.stderr for number in (1, 2)] == [True, False]
    assert "Tearing down" in done.stderr
    printed = skypilot.site.run(
        [VENV / "bin/python", "-m", "fabbench", "render", "pingpong", "--as", "skypilot",
         "--infra", "slurm", "--bin-dir", "/usr/bin", *words[:-2]],
        env=skypilot.env, check=True,
    )  # fmt: skip
    # The first line is the command that made it.
    submitted = (run.path / "rendered/task.yaml").read_text()
    assert submitted.splitlines()[1:] == printed.stdout.splitlines()[1:]
    assert skypilot.settled() == NOTHING


def test_a_cluster_that_is_kept_takes_more_runs(skypilot: SkyLab) -> None:
    failing = skypilot.run(*ONE, "--bin-dir", "/nowhere", "--set", "keep=true", name="kept")
    assert failing.returncode == 4, failing.stderr[-500:]
    assert "/nowhere/fi_pingpong" in failing.stderr
    assert "sky down kept" in failing.stderr
    kept = {"clusters": ["kept"], "jobs": [f"kept-{USER} RUNNING"]}
    assert skypilot.settled(**kept) == {**NOTHING, **kept}
    again = skypilot.run(*ONE, name="kept")
    assert again.returncode == 0, again.stderr
    assert "existing cluster kept" in again.stderr
    assert skypilot.clusters() == ["kept"]
    skypilot.sky("down", "-y", "kept")
    assert skypilot.settled() == NOTHING


def test_a_job_that_somebody_else_cancels_is_a_failed_execution(
    skypilot: SkyLab, tmp_path: Path
) -> None:
    errors = tmp_path / "stderr"
    started = skypilot.popen(*LONG, name="gone", errors=errors)
    assert processes.eventually(lambda: _measures(skypilot), 300), errors.read_text()
    with processes.slowed(skypilot.measuring()):
        # It may not live to see it: fabbench tears the cluster down at once.
        skypilot.sky("cancel", "-y", "gone", "1", check=False)
        assert started.wait(300) == 3, errors.read_text()
    (log,) = newest(skypilot).logs("tcp")
    assert (log.outcome, "CANCELLED" in (log.reason or "")) == ("failed", True), log.reason
    assert skypilot.settled() == NOTHING


def test_an_interrupt_while_it_measures_tears_all_down(skypilot: SkyLab, tmp_path: Path) -> None:
    errors = tmp_path / "stderr"
    started = skypilot.popen(*LONG, name="cut", errors=errors)
    assert processes.eventually(lambda: _measures(skypilot) and _followed(skypilot), 300), (
        errors.read_text()
    )
    with processes.slowed(skypilot.measuring()):
        started.send_signal(signal.SIGTERM)
        assert started.wait(300) == 130, errors.read_text()
    assert "Cancelling job 1" in errors.read_text()
    assert skypilot.settled() == NOTHING
    (log,) = newest(skypilot).logs("tcp")
    assert log.outcome != "ok"


def test_an_interrupt_while_it_is_launched_tears_all_down(skypilot: SkyLab, tmp_path: Path) -> None:
    errors = tmp_path / "stderr"
    started = skypilot.popen(*ONE, "--nodes", "3", name="early", errors=errors)
    assert processes.eventually(lambda: "early" in str(skypilot.jobs()), 300), errors.read_text()
    started.send_signal(signal.SIGINT)
    assert started.wait(300) == 130, errors.read_text()
    assert skypilot.settled() == NOTHING


def test_a_cluster_that_cannot_be_had_in_time_is_given_up(skypilot: SkyLab) -> None:
    done = skypilot.run(*ONE, "--nodes", "3", "--start-timeout", "20", name="never")
    assert done.returncode == 3, done.stderr
    assert "after 20 s" in done.stderr
    assert skypilot.settled() == NOTHING


def test_a_place_that_skypilot_cannot_use_is_reported(skypilot: SkyLab) -> None:
    done = skypilot.run(*ONE, "--infra", "k8s", name="other")
    assert done.returncode == 3, done.stderr
    assert "cannot be launched" in done.stderr
    argv = [str(VENV / "bin/python"), "-m", "fabbench", "check", "--on", "skypilot", "--infra"]
    good = skypilot.site.run([*argv, "slurm"], env=skypilot.env)
    assert (good.returncode, "slurm: enabled." in good.stdout) == (0, True), good.stdout
    bad = skypilot.site.run([*argv, "k8s"], env=skypilot.env)
    assert (bad.returncode, "k8s: not enabled." in bad.stdout) == (3, True), bad.stdout + bad.stderr


def _followed(skypilot: SkyLab) -> bool:
    """Whether fabbench has seen the newest run begin to measure."""
    logs = newest(skypilot).path.glob("exec/*/output.log")
    return any("#@fabbench begin" in log.read_text() for log in logs)


def _measures(skypilot: SkyLab) -> bool:
    """Whether both sides are connected, and poll.

    A signal would end the wait for a connection as a failure.
    """
    stats = [
        Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        for pid in skypilot.measuring()
    ]
    return len(stats) == 2 and all(int(stat[11]) > 20 for stat in stats)  # ticks of user time
