"""An execution that its environment ended has status 3.

One that cannot be trusted for itself has 4.
"""

from pathlib import Path

import pytest

from fabbench.evidence.judge import judge
from fabbench.model.errors import Exit
from fabbench.model.log import Ending, Outcome, Point, Proof, Record
from tests.support.paths import LOGS
from tests.support.read_logs import read_lines

LOST = Ending(
    stopped="fabbench could not continue: No answer from node1.", lost=True, planned_sizes=(64, 128)
)
STOPPED = Ending(stopped="fabbench was interrupted.", planned_sizes=(64, 128))


def record(**more: object) -> Record:
    points = [Point(64, {}, ("latency",), (1e-6,))]
    return Record(benchmark="pingpong", case="pingpong", points=points, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("read", "ending", "outcome", "status"),
    [
        (record(), LOST, Outcome.TRUNCATED, Exit.REFUSED),
        (record(failures=["The launcher reported: it failed"]), LOST, Outcome.FAILED, Exit.REFUSED),
        (record(), STOPPED, Outcome.TRUNCATED, Exit.UNTRUSTED),
        (
            record(failures=["The launcher reported: it failed"]),
            STOPPED,
            Outcome.FAILED,
            Exit.UNTRUSTED,
        ),
        (record(wrong=1), LOST, Outcome.CORRUPT, Exit.UNTRUSTED),
        (record(timed_out="It hung."), LOST, Outcome.TIMEOUT, Exit.UNTRUSTED),
        (
            record(finished=True, facts={"transport": "tcp"}),
            Ending(status=0, planned_sizes=(64,)),
            Outcome.OK,
            Exit.FINE,
        ),
    ],
)
def test_what_the_environment_explains_is_not_the_benchmarks_fault(
    read: Record, ending: Ending, outcome: Outcome, status: Exit
) -> None:
    log = judge(read, source="x", ending=ending)
    assert (log.outcome, log.status) == (outcome, status)


def test_another_network_is_not_explained_by_a_lost_host() -> None:
    refused = Ending(refused="tcp carried the data.", lost=True)
    log = judge(record(finished=True), source="x", proof=Proof(fabric="efa"), ending=refused)
    assert (log.outcome, log.status) == (Outcome.OFF_FABRIC, Exit.UNTRUSTED)


@pytest.mark.parametrize(
    "line",
    [
        "ORTE has lost communication with a remote daemon.",
        "ssh: connect to host 198.18.1.99 port 2222: No route to host",
        "root@198.18.1.11: Permission denied (publickey).",
        "srun: error: Node failure on node1",
        "slurmstepd-node0: error: *** JOB 7 ON node0 CANCELLED AT 2026-11-21T11:44:49 ***",
        (
            "slurmstepd: error: *** JOB 7 ON n0 CANCELLED AT 2026-11-21T11:44:49 DUE TO NODE "
            "FAILURE, SEE LOG"
        ),
        "fabbench: SkyPilot ended job 1 as CANCELLED: x",
    ],
)
def test_a_launcher_that_lost_a_host_or_its_job_says_so(line: str) -> None:
    """In fabbench's own executions.

    Of a log that it only reads, it does not know what went before.
    """
    ours = read_lines([line], ending=Ending(status=1))
    assert [(log.outcome, log.status) for log in ours] == [(Outcome.FAILED, Exit.REFUSED)]
    assert [log.status for log in read_lines([line])] == [Exit.UNTRUSTED]


@pytest.mark.parametrize(
    "line",
    [
        "slurmstepd-node0: error: *** STEP 1.30 ON node0 CANCELLED AT 2026-11-21T11:44:49 ***",
        "srun: error: node0: task 0: Exited with exit code 7",
        "fabbench: SkyPilot ended job 1 as FAILED: x",
        "There are not enough slots available in the system to satisfy the 4",
    ],
)
def test_a_rank_that_fails_is_no_lost_host(line: str) -> None:
    """Slurm cancels the step of a rank that fails."""
    logs = read_lines([line], ending=Ending(status=1))
    assert [(log.outcome, log.status) for log in logs] == [(Outcome.FAILED, Exit.UNTRUSTED)]


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("ompi4-unreachable-host", Exit.REFUSED),
        ("ompi4-unknown-host", Exit.REFUSED),
        ("ompi4-exit7", Exit.UNTRUSTED),
        ("ompi4-killed", Exit.UNTRUSTED),
        ("slurm-srun-exit7", Exit.UNTRUSTED),
    ],
)
def test_recorded_messages_of_launchers(name: str, status: Exit) -> None:
    _, *lines, _ = Path(LOGS / f"launchers/{name}.txt").read_text().splitlines()
    assert {log.status for log in read_lines(lines, ending=Ending(status=1))} == {status}
