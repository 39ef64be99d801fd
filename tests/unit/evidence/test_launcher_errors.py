"""What launchers say of themselves: each wording, once."""

import pytest

from fabbench.evidence import known_errors
from tests.support.read_logs import read


@pytest.mark.parametrize(
    "line",
    [
        "There are not enough slots available in the system to satisfy the 4",
        "mpirun was unable to launch the specified application as it could not access",
        "prterun noticed that process rank 2 with PID 0 on node vm exited on",
        "mpirun has detected an attempt to run as root.",
        "prterun detected that one or more processes exited with non-zero status,",
        "ORTE was unable to reliably start one or more daemons.",
        "A daemon failed to report back after being spawned. This could",
        "A daemon (pid 4711) failed to report back",
        "srun: error: node0: task 1: Killed",
        "slurmstepd-node0: error: *** STEP 1.30 ON node0 CANCELLED AT 2026-11-21T11:44:49 ***",
        "launch failed on node0: Couldn't allocate a port for PMI to use",
        "start failed on node0: CXI alloc failed on cxi0: request exceeds ACs limits",
        "ssh: connect to host 198.18.1.99 port 2222: No route to host",
        "root@node1: Permission denied (publickey).",
        "Host key verification failed.",
        "bash: line 1: all_reduce_perf: command not found",
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
        "[node0:4711] mpirun was unable to launch the specified application",
    ],
)
def test_a_launcher_that_failed_is_a_benchmark_that_failed(line: str) -> None:
    (log,) = read(line + "\n")
    assert log.benchmark is None
    assert log.outcome == "failed"
    assert log.reason == f"The launcher reported: {line}"


@pytest.mark.parametrize(
    "line",
    [
        "There are enough slots",
        "mpirun (Open MPI) 5.0.11",
        "srun: job 5 queued and waiting for resources",
        "Warning: Permanently added 'node1' (ED25519) to the list of known hosts.",
        "salloc: Granted job allocation 4",
        "error: not what a launcher says",
        "no-slots.txt\tOpen MPI\tThere are not enough slots available in the system",
        "There are not enough slots available in the system\tOpen MPI\tno-slots.txt",
        "| 3 | `mpirun was unable to launch the specified application` |",
        "",
    ],
)
def test_other_words_are_no_failure(line: str) -> None:
    assert known_errors.failure(line) is None
    assert known_errors.time_limit(line) is None
    assert read(line + "\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "The user-provided time limit for job execution has been reached:",
        "slurmstepd: error: *** JOB 7 ON node0 CANCELLED AT 2026-11-21T11:47:14 DUE TO TIME LIMIT ***",
    ],
)
def test_a_launchers_time_limit_is_a_timeout(line: str) -> None:
    (log,) = read(line + "\n")
    assert log.outcome == "timeout"


@pytest.mark.parametrize(
    ("line", "status"),
    [("[exit status: 0]", 0), ("[exit status: 137]", 137), ("# exit status: 7", 7), ("exit status: 7", None)],
)
def test_the_status_that_a_recorder_wrote_is_read(line: str, status: int | None) -> None:
    assert known_errors.exit_status(line) == status
