"""What stands below the last row of a whole table: a death, what is usual there, or a note."""

from itertools import product

import pytest

from fabbench.evidence.known_errors import DEAD, fatal_message
from fabbench.model.log import Ending, Log, Outcome
from tests.support.paths import DATA
from tests.support.read_logs import read_lines
from tests.unit.benchmarks.nccl.test_heads import WHOLE

IMB = ["# Benchmarking PingPong", "       #bytes #repetitions      t[usec]   Mbytes/sec"]
SUITE = "#    Intel(R) MPI Benchmarks 2021.3, MPI-1 part"
IMB_ROWS = [
    "            0         1000         1.25         0.00",
    "            1         1000         1.25         0.80",
    "            2         1000         1.25         1.60",
]
CLIENT = "[fabbench:client] "
PERFTEST = (DATA / "corpus/perftest/a-device-that-was-asked-for.txt").read_text("utf-8")
TABLES = {
    "osu": [
        "# OSU MPI Latency Test v7.4",
        "# Size       Avg Latency(us)",
        *(f"{1 << power}              {power + 2}.50" for power in range(12)),
    ],
    "nccl": WHOLE.rstrip("\n").split("\n"),
    "perftest": [
        line.removeprefix(CLIENT) for line in PERFTEST.split("\n") if line.startswith(CLIENT)
    ],
    "imb": [*IMB, *IMB_ROWS],
}
"""Benchmark → a whole table without an exit status."""
DEATHS = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.",
    "ray.exceptions.RayTaskError(ValueError): ray::run()",
    "modal.exception.FunctionTimeoutError: Task's current input hit its timeout of 300s",
    "##[error]The operation was canceled.",
    "Finished: FAILURE",
    "make: *** [Makefile:10: run] Error 1",
    "Received 15 death signal, shutting down workers",
    "HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception.",
    "RuntimeError: CUDA error: device-side assert triggered",
    "[E] gloo: Connection closed by peer [10.0.0.2]:3241",
    "Timed out initializing process group in store based barrier on rank: 0",
    "Job has reached the specified backoff limit: BackoffLimitExceeded",
    "State: OUT_OF_MEMORY (exit code 0)",
    "nvshmem: non-zero status: 7: No such file, exiting...",
    "program exited with code 137",
    "terminated by signal 9",
    'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nValueError: bad',
    "FAILED",
    "Segmentation fault (core dumped)",
    "KeyboardInterrupt",
    "mpi4py.MPI.Exception: MPI_ERR_TRUNCATE: message truncated",
    "terminate called after throwing an instance of 'std::runtime_error'",
    "panic: runtime error: index out of range",
    "rank 3 died",
)
USUAL = (
    "",
    "$ exit",
    "[root@n1 ~]# ls -l",
    "logout",
    "Connection to n1 closed.",
    "total time 12 s",
    "real\t0m12.3s",
    "Mon Nov 30 16:25:43 UTC 2026",
    "==== end of test ====",
    "rx_packets: 17",
    "Errors: 0",
    "0 failed",
    "program exited with code 0",
    "| node | rate |",
    "+ sleep 1",
    "Job finished",
)
GOES_ON = (
    # A logger's level, of the start of the next program.
    "[1795563752.830398] [n4:7120:0] tl_cuda_context.c:60 TL_CUDA ERROR failed to initialize x",
    "WARNING: error: no such device, ignoring it",
    "Exception ignored in: <x>\nTraceback (most recent call last):\n  File 'x.py'\nOSError: 9",
)


def read_one(lines: list[str], ending: Ending | None = None) -> Log:
    (log,) = read_lines(lines, ending=ending)
    return log


def codes(log: Log) -> list[str]:
    return [found.code for found in log.findings]


PLAIN = {name: read_one(lines) for name, lines in TABLES.items()}


def test_the_tables_are_whole() -> None:
    assert [(log.benchmark, log.outcome) for log in PLAIN.values()] == [
        (name, Outcome.OK) for name in TABLES
    ]


@pytest.mark.parametrize(("name", "death"), [*product(TABLES, DEATHS)])
def test_a_death_below_the_last_row_is_none_only_with_a_status_of_0(name: str, death: str) -> None:
    lines = [*TABLES[name], *death.split("\n")]
    died = read_one(lines)
    assert died.outcome in DEAD
    assert len(died.points) == len(PLAIN[name].points)
    ended = read_one([*lines, "[exit status: 0]"])
    # What reports the end of another program is no word: a status does not outrank it.
    messages = filter(None, map(fatal_message, lines))
    is_record = any(message.is_report for message in messages)
    assert (ended.outcome in DEAD) == is_record
    assert is_record or "went-on" in codes(ended)


@pytest.mark.parametrize(("name", "text"), [*product(TABLES, USUAL)])
def test_what_is_usual_below_a_table_says_nothing(name: str, text: str) -> None:
    log = read_one([*TABLES[name], text])
    assert (log.outcome, codes(log)) == (Outcome.OK, codes(PLAIN[name]))


@pytest.mark.parametrize(("name", "text"), [*product(TABLES, GOES_ON)])
def test_what_goes_on_is_no_death(name: str, text: str) -> None:
    assert read_one([*TABLES[name], *text.split("\n")]).outcome is Outcome.OK


@pytest.mark.parametrize("name", TABLES)
def test_any_other_line_is_a_note_where_no_end_is_shown(name: str) -> None:
    text = "The quick brown fox jumps over the lazy dog"
    log = read_one([*TABLES[name], text])
    notes = [found.line for found in log.findings if found.code == "followed"]
    assert log.outcome is Outcome.OK
    assert notes == ([text] if log.facts["complete"] == "unknown" else [])
    assert "followed" not in codes(read_one([*TABLES[name], text, "[exit status: 0]"]))


@pytest.mark.parametrize("name", ["osu", "imb"])
def test_a_death_above_the_last_row_is_not_below_it(name: str) -> None:
    *above, last = TABLES[name]
    assert read_one([*above, "FAILED", last]).outcome is Outcome.OK


def test_a_death_between_two_tables_is_of_the_first() -> None:
    lines = [*TABLES["osu"], "FAILED", *TABLES["osu"]]
    assert [log.outcome for log in read_lines(lines)] == [Outcome.FAILED, Outcome.OK]


def test_a_death_that_another_process_prints_is_of_the_table() -> None:
    table = [f"(head, rank=0, pid=1) {line}" for line in TABLES["osu"]]
    log = read_one([*table, "(worker1, rank=1, pid=2) ValueError: bad"])
    assert log.outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("heading", "keep", "outcome"),
    [
        ([], 1, Outcome.TRUNCATED),
        ([], 2, Outcome.OK),
        ([SUITE, "# IMB-MPI1 -zero_size off PingPong"], 1, Outcome.OK),
        ([SUITE, "# Minimum message length in bytes:   0"], 1, Outcome.TRUNCATED),
    ],
)
def test_a_table_of_imb_without_its_first_row_is_noticed_without_a_heading_too(
    heading: list[str], keep: int, outcome: Outcome
) -> None:
    assert read_one([*heading, *IMB, *IMB_ROWS[keep:]]).outcome is outcome
