"""What programs print when a run dies.

Each wording once, alone, above and below complete tables.
"""

import json

import pytest

from fabbench.evidence import known_errors
from fabbench.evidence.known_errors import _SIGN, Kind, _table, fatal_message, told
from fabbench.model.log import Outcome
from tests.support.paths import DATA
from tests.support.read_logs import read

FATAL = json.loads((DATA / "fatal_messages.json").read_text("utf-8"))
"""Who prints it → what ends a run."""
HARMLESS = json.loads((DATA / "harmless_messages.json").read_text("utf-8"))
"""What ends no run → a remark."""
LIMITS = [
    "The user-provided time limit for job execution has been reached:",
    "slurmstepd: error: *** JOB 7 ON node0 CANCELLED AT 2026-11-21T11:47:14 DUE TO TIME LIMIT ***",
    "=>> PBS: job killed: walltime 3612 exceeded limit 3600",
    "TERM_RUNLIMIT: job killed after reaching LSF run time limit.",
    "timeout: sending signal TERM to command './all_reduce_perf'",
    (
        "[rank0]:[E1125 a.cpp:689] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=4)"
    ),
    (
        "DeepEP dispatch forwarder timeout (RDMA meta), channel: 3, RDMA: 1, nvl: 3, src RDMA "
        "lane: "
        "0, dst NVL: 7"
    ),
    "RuntimeError: [Rank 0]: Ranks 3, 5 failed to pass monitoredBarrier in 1800000 ms",
]
LINES = [(source, line) for source, lines in FATAL.items() for line in lines]
STARTED = [line for _, line in LINES if (known := fatal_message(line)) and known.kind < 3]
TABLES = {
    "osu": (
        "# OSU MPI Latency Test v5.6.2\n# Size    Latency (us)\n0           1.21\n1           1.25"
    )
}


@pytest.mark.parametrize(("source", "line"), LINES)
def test_a_text_that_ends_a_run_is_a_failure(source: str, line: str) -> None:
    (log,) = read(line + "\n")
    assert log.benchmark in {None, "osu"}  # a line may name the benchmark
    assert log.outcome == "failed"
    if log.benchmark is None:
        words = " ".join(line.split()).removeprefix(f"{source}: ")
        assert log.reason == f"{source} reported: {words}"


@pytest.mark.parametrize(
    "prefix", ["", "node1: ", "[1,3]<stderr>:", "2026-11-25T01:02:03Z ", "12: ", "node1 | "]
)
def test_a_table_is_never_ok_with_such_a_text_above_or_below(prefix: str) -> None:
    table = TABLES["osu"]
    for text in (prefix + line for line in STARTED):
        for whole in (f"{table}\n{text}\n", f"{text}\n{table}\n"):
            assert {log.outcome for log in read(whole) if log.benchmark} == {Outcome.FAILED}, text


@pytest.mark.parametrize("prefix", ["[pod/node-0/main] ", "(worker1, rank=1, pid=12) "])
def test_what_a_launcher_prints_without_the_prefix_of_the_table_counts(prefix: str) -> None:
    table = "".join(f"{prefix}{line}\n" for line in TABLES["osu"].splitlines())
    for text in (
        f"{table}command terminated with exit code 137\n",
        f"Killed by signal 9.\n{table}",
    ):
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
        + (
            "\nprterun noticed that process rank 1 with PID 2228 on node vm exited on\nsignal 9 "
            "(Killed).\n"
        )
        + "-" * 74
        + "\nThe end of the script.\n"
    )
    (log,) = read(text)
    told = (
        "prterun noticed that process rank 1 with PID 2228 on node vm exited on signal 9 (Killed)."
    )
    assert log.reason == f"Open MPI reported: {told}"


def test_every_text_of_the_table_has_a_sign() -> None:
    """Lines without a sign are not compared with the table at all."""
    assert all(_SIGN.search(line) for _, line in LINES)


def test_every_source_of_the_table_has_lines_here() -> None:
    sources = {entry.source for entry in _table()[0]}
    assert sources - {*FATAL} == {
        "fabbench",
        "mpiexec",
        "The shell",
        "Python",
    }  # tested with their benchmarks


@pytest.mark.parametrize("line", HARMLESS)
def test_other_words_are_no_failure(line: str) -> None:
    assert fatal_message(line) is None
    assert read(line + "\n") == []


@pytest.mark.parametrize("line", LIMITS)
def test_a_launchers_time_limit_is_a_timeout(line: str) -> None:
    (log,) = read(line + "\n")
    assert log.outcome == "timeout"


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("[exit status: 0]", 0),
        ("[exit status: 137]", 137),
        ("# exit status: 7", 7),
        ("exit status: 7", None),
    ],
)
def test_the_status_that_a_recorder_wrote_is_read(line: str, status: int | None) -> None:
    assert known_errors.exit_status(line) == status


@pytest.mark.parametrize(
    "text", ["bash: line 1: all_reduce_perf: command not found", "sh: 1: osu_bw: not found"]
)
def test_a_program_that_is_missing_is_told_from_what_a_node_does(text: str) -> None:
    message = fatal_message(text)
    assert message is not None
    assert message.kind is Kind.SHELL
    assert [each.code for each in told([message.sentence])] == ["program-missing"]
    assert [each.code for each in told(["Process name: [[17,1],0] Exit code: 127"])] == [
        "program-missing"
    ]
