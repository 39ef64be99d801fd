"""What programs print when a run dies: each wording once, alone, above and below complete tables."""

import pytest

from fabbench.evidence import known_errors
from fabbench.evidence.fatal import _SIGN, _table, fatal_message
from fabbench.model.log import Outcome
from tests.support.read_logs import read

FATAL = {
    "Open MPI": [
        "[node0:4711] *** An error occurred in MPI_Recv",
        "[node0:4711] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort,",
        "[node0:4711] *** Process received signal ***",
        "*** The MPI_Init() function was called before MPI_INIT was invoked.",
        "mpirun has exited due to process rank 1 with PID 0 on node vm exiting improperly.",
        "prterun noticed that process rank 2 with PID 0 on node vm exited on signal 9 (Killed).",
        "prterun detected that one or more processes exited with non-zero status,",
        "Primary job  terminated normally, but 1 process returned",
        "MPI_ABORT was invoked on rank 0 in communicator MPI_COMM_WORLD",
        "It looks like MPI_INIT failed for some reason; your parallel process is",
        "At least one pair of MPI processes are unable to reach each other for",
        "Open MPI failed an OFI Libfabric library call (fi_domain).  This is highly",
        "No components were able to be opened in the pml framework.",
        "[node0:4711] PML cm cannot be selected",
        "ORTE has lost communication with a remote daemon.",
        "There are not enough slots available in the system to satisfy the 4",
        "[node0:4711] mpirun was unable to launch the specified application",
        "mpirun has detected an attempt to run as root.",
        "ORTE was unable to reliably start one or more daemons.",
        "A daemon (pid 4711) failed to report back",
    ],
    "MPICH": [
        "Abort(741942927) on node 19 (rank 19 in comm 0): Fatal error in PMPI_Alltoall: Other MPI error",
        "Abort(1) (rank 3 in comm 496): application called MPI_Abort(comm=0x84000004, 1) - process 3",
        "application called MPI_Abort(MPI_COMM_WORLD, 1) - process 0",
        "Fatal error in PMPI_Init: Other MPI error, error stack:",
    ],
    "MVAPICH": ["[node0:mpi_rank_0][error_sighandler] Caught error: Segmentation fault (signal 11)"],
    "hydra": [
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
        "=   KILLED BY SIGNAL: 9 (Killed)",
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: Killed (signal 9)",
        "[mpiexec@vm] control_cb (pm/pmiserv/pmiserv_cb.c:206): assert (!closed) failed",
    ],
    "PALS": ["x1000c0s0b0n0: rank 5 died from signal 9", "x1000c0s0b0n0.hsn: rank 0 exited with code 1"],
    "ALPS": ["[NID 00012] Apid 4711: initiated application termination"],
    "jsrun": ["ERROR:  One or more process (first noticed rank 1) terminated with signal 9"],
    "Flux": ["flux-job: task(s) exited with exit code 1", "0.5s: job.exception type=exec severity=0 lost shell"],
    "PBS": ["=>> PBS: job killed: mem 4gb exceeded limit 2gb"],
    "LSF": ["TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.", "Exited with exit code 140."],
    "Slurm": [
        "srun: error: node0: task 1: Killed",
        "srun: error: node0: task 1: Exited with exit code 3",
        "slurmstepd-node0: error: *** STEP 1.30 ON node0 CANCELLED AT 2026-11-21T11:44:49 ***",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=4.0.",
        "launch failed on node0: Couldn't allocate a port for PMI to use",
    ],
    "Kubernetes": [
        "command terminated with exit code 137",
        "error: lost connection to pod",
        "Reason: OOMKilled",
        "Error from server: error dialing backend: No agent available",
    ],
    "The kernel": [
        "[ 4711.123] Out of memory: Killed process 4711 (all_reduce_perf) total-vm:123kB",
        "[ 4711.123] Memory cgroup out of memory: Killed process 4711 (osu_bw)",
        "./run.sh: line 14:  4711 Killed                  ./osu_bw",
    ],
    "The system": [
        "Segmentation fault (core dumped)",
        "./run.sh: line 14:  4711 Aborted                 (core dumped) ./osu_bw",
        "*** stack smashing detected ***: terminated",
        "terminate called after throwing an instance of 'std::bad_alloc'",
        "./osu_bw: error while loading shared libraries: libmpi.so.40: cannot open shared object file",
    ],
    "ssh": [
        "Killed by signal 9.",
        "Timeout, server node1 not responding.",
        "ssh: connect to host 198.18.1.99 port 2222: No route to host",
        "root@node1: Permission denied (publickey).",
        "Host key verification failed.",
    ],
    "UCX": [
        "[1795563752.830398] [vm:26026:0]     perftest.c:405  UCX  ERROR client failed. connect() failed",
        "[vm:26026:0:26026] Caught signal 11 (Segmentation fault: address not mapped to object)",
    ],
    "libfabric": ["Libfabric EFA provider has encountered an internal error:"],
    "Other frameworks": [
        "horovod.common.exceptions.HorovodInternalError: ncclCommInitRank failed: unhandled system error",
        "INTERNAL: NCCL operation ncclCommInitRank(&comm, nranks, id, rank) failed: unhandled system error",
        "tensorflow.python.framework.errors_impl.UnknownError: NCCL: unhandled system error",
    ],
    "DeepSpeed": ["[launch.py:325:sigkill_handler] ['python', 'train.py'] exits with return code = -6"],
    "PyTorch": [
        "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:1, unhandled system error",
        "[rank1]: RuntimeError: loss is nan",
        "RuntimeError: NCCL communicator was aborted on rank 0",
        "RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from [0]",
        "[Rank 3] NCCL watchdog thread terminated with exception: NCCL error: remote process exited",
        "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.",
        "E1125 1601 torch/distributed/elastic/api.py:986] failed (exitcode: -9) local_rank: 1",
    ],
}
LIMITS = [
    "The user-provided time limit for job execution has been reached:",
    "slurmstepd: error: *** JOB 7 ON node0 CANCELLED AT 2026-11-21T11:47:14 DUE TO TIME LIMIT ***",
    "=>> PBS: job killed: walltime 3612 exceeded limit 3600",
    "TERM_RUNLIMIT: job killed after reaching LSF run time limit.",
    "[rank0]:[E1125 a.cpp:689] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4)",
]
LINES = [(source, line) for source, lines in FATAL.items() for line in lines]
STARTED = [line for _, line in LINES if (known := fatal_message(line)) and known.kind < 3]
TABLES = {"osu": "# OSU MPI Latency Test v5.6.2\n# Size    Latency (us)\n0           1.21\n1           1.25"}


@pytest.mark.parametrize(("source", "line"), LINES)
def test_a_text_that_ends_a_run_is_a_failure(source: str, line: str) -> None:
    (log,) = read(line + "\n")
    assert log.benchmark in {None, "osu"}  # a line may name the benchmark
    assert log.outcome == "failed"
    if log.benchmark is None:
        words = " ".join(line.split()).removeprefix(f"{source}: ")
        assert log.reason == f"{source} reported: {words}"


@pytest.mark.parametrize("prefix", ["", "node1: ", "[1,3]<stderr>:", "2026-11-25T01:02:03Z ", "12: ", "node1 | "])
def test_a_table_is_never_ok_with_such_a_text_above_or_below(prefix: str) -> None:
    table = TABLES["osu"]
    for text in (prefix + line for line in STARTED):
        for whole in (f"{table}\n{text}\n", f"{text}\n{table}\n"):
            assert {log.outcome for log in read(whole) if log.benchmark} == {Outcome.FAILED}, text


@pytest.mark.parametrize("prefix", ["[pod/node-0/main] ", "(worker1, rank=1, pid=12) "])
def test_what_a_launcher_prints_without_the_prefix_of_the_table_counts(prefix: str) -> None:
    table = "".join(f"{prefix}{line}\n" for line in TABLES["osu"].splitlines())
    for text in (f"{table}command terminated with exit code 137\n", f"Killed by signal 9.\n{table}"):
        assert [log.outcome for log in read(text)] == [Outcome.FAILED]


def test_between_two_tables_without_closing_lines_it_may_be_of_either() -> None:
    death = "[node0:4711] *** An error occurred in MPI_Recv"
    first, second = read(f"{TABLES['osu']}\n{death}\n{TABLES['osu']}\n")
    assert first.outcome is second.outcome is Outcome.FAILED


def test_a_start_that_failed_is_no_failure_of_the_next_run() -> None:
    slots = "There are not enough slots available in the system to satisfy the 4"
    assert [log.outcome for log in read(f"{slots}\n{TABLES['osu']}\n")] == ["failed", "ok"]


def test_another_program_that_a_shell_does_not_find_is_no_failure_of_a_table() -> None:
    assert [log.outcome for log in read(f"{TABLES['osu']}\nsh: 1: gnuplot: not found\n")] == ["ok"]


def test_a_message_of_several_lines_is_quoted_whole() -> None:
    text = (
        "-" * 74
        + "\nprterun noticed that process rank 1 with PID 2228 on node vm exited on\nsignal 9 (Killed).\n"
        + "-" * 74
        + "\nThe end of the script.\n"
    )
    (log,) = read(text)
    told = "prterun noticed that process rank 1 with PID 2228 on node vm exited on signal 9 (Killed)."
    assert log.reason == f"Open MPI reported: {told}"


def test_every_text_of_the_table_has_a_sign() -> None:
    """Lines without a sign are not compared with the table at all."""
    assert all(_SIGN.search(line) for _, line in LINES)


def test_every_source_of_the_table_has_lines_here() -> None:
    sources = {entry.source for entry in _table()[0]}
    assert sources - {*FATAL} == {"fabbench", "mpiexec", "The shell", "Python"}  # tested with their benchmarks


@pytest.mark.parametrize(
    "line",
    [
        "There are enough slots",
        "mpirun (Open MPI) 5.0.11",
        "srun: job 5 queued and waiting for resources",
        "Warning: Permanently added 'node1' (ED25519) to the list of known hosts.",
        "salloc: Granted job allocation 4",
        "Connection to fabbench-rendered-1.fabbench-rendered closed by remote host.",  # a pod at its end
        "Killed by signal 15.",  # mpirun ends its ssh
        "slurmstepd: error: couldn't chdir to `/home/u': No such file or directory: going to /tmp instead",
        'Error from server (NotFound): mpijobs "nccl" not found',
        "error: not what a launcher says",
        "no-slots.txt\tOpen MPI\tThere are not enough slots available in the system",
        "There are not enough slots available in the system\tOpen MPI\tno-slots.txt",
        "| 3 | `mpirun was unable to launch the specified application` |",
        "",
    ],
)
def test_other_words_are_no_failure(line: str) -> None:
    assert fatal_message(line) is None
    assert read(line + "\n") == []


@pytest.mark.parametrize("line", LIMITS)
def test_a_launchers_time_limit_is_a_timeout(line: str) -> None:
    (log,) = read(line + "\n")
    assert log.outcome == "timeout"


@pytest.mark.parametrize(
    ("line", "status"),
    [("[exit status: 0]", 0), ("[exit status: 137]", 137), ("# exit status: 7", 7), ("exit status: 7", None)],
)
def test_the_status_that_a_recorder_wrote_is_read(line: str, status: int | None) -> None:
    assert known_errors.exit_status(line) == status
