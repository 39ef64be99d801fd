"""``fabbench watch --job``: the nodes of a job that somebody started, over ssh."""

import json
import signal

import pytest

from tests.support.host_fixtures import Labs
from tests.support.host_programs import is_sampled
from tests.support.hosts import processes
from tests.support.slurm_runs import site, state, taken
from tests.support.ssh_runs import argv

pytestmark = [pytest.mark.lab, pytest.mark.slow]


def watch(*words: str) -> list[str]:
    return argv("watch", "--login", "node0", *words, "--for", "2", "--json")


def test_the_nodes_of_a_job_are_watched(lab: Labs) -> None:
    made = site(lab)
    with taken(made[0], "--nodes", "2", "--partition", "rest") as job:
        assert processes.eventually(lambda: state(made[0], job) == "RUNNING")
        done = made.run(watch("--job", job))
    assert done.returncode == 4, done.stderr  # nothing moves
    assert json.loads(done.stdout)["carriers"].keys() == {"node1", "node2"}
    assert "implied by --job" in done.stderr


def test_a_job_that_has_ended_is_named(lab: Labs) -> None:
    made = site(lab)
    with taken(made[0], "--partition", "rest") as job:
        pass
    assert processes.eventually(lambda: state(made[0], job) == "CANCELLED")
    for number in (job, "4711000"):
        done = made.run(watch("--job", number))
        assert done.returncode == 3
        assert f"Job {number} does not run" in done.stderr


def test_a_job_that_starts_later_is_waited_for(lab: Labs) -> None:
    made = site(lab)
    batch = ["sbatch", "--parsable", "-o", "/dev/null", "--partition", "rest", "--nodes", "2"]
    with taken(made[0], "--nodes", "2", "--partition", "rest"):
        job = made[0].sh([*batch, "--exclusive", "--wrap", "sleep 600"]).stdout.strip()
        done = made.run(watch("--job", job))
        assert (done.returncode, "does not run" in done.stderr) == (3, True), done.stderr
        waiting = made.popen(watch("--job", job, "--wait", "200"))
        assert waiting.stderr
        # Until it says why the job is pending
        assert any(f"Job {job}: " in line for line in waiting.stderr)
    assert processes.eventually(lambda: is_sampled(made[1]) and is_sampled(made[2]), 120)
    waiting.send_signal(signal.SIGINT)  # Nothing moves: it would wait for that, too
    _, err = waiting.communicate(timeout=60)
    made[0].sh(["scancel", job])
    assert waiting.returncode == 4, err
