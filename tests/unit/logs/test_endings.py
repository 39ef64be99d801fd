"""How an execution ends counts for what ran last, however much of it was printed."""

import json

import pytest

from fabbench.model.log import Ending, Log, Outcome
from tests.support.paths import DATA
from tests.support.read_logs import read_lines

LATE = Ending(
    status=None, timed_out="Step x was aborted: no output for 5 s.", planned_sizes=(64, 256)
)

STEPS = json.loads((DATA / "hung_steps.json").read_text("utf-8"))
"""Benchmark → the marker's words, and what a program of it prints before it hangs."""


def hung(benchmark: str, keep: int, *, end: bool, before: tuple[str, ...] = ()) -> list[Log]:
    words, *said = STEPS[benchmark]
    lines = [*before, f"#@fabbench begin 000-tcp-r1/{words}", *said[:keep]]
    if end:
        lines.append(f"#@fabbench end 000-tcp-r1/{words.partition(' ')[0]} ?")
    return read_lines(lines, ending=LATE)


@pytest.mark.parametrize("end", [True, False])
@pytest.mark.parametrize(
    ("benchmark", "keep"),
    [(name, keep) for name, step in STEPS.items() for keep in range(len(step))],
)
def test_a_program_that_hangs_is_a_timeout_wherever_it_does(
    benchmark: str, keep: int, end: bool
) -> None:
    (log,) = hung(benchmark, keep, end=end)
    assert (log.benchmark, log.outcome) == (benchmark, Outcome.TIMEOUT)
    assert (log.reason or "").startswith(LATE.timed_out)
    assert ("The last row is of" in (log.reason or "")) == bool(log.points)


WHOLE = [
    "#@fabbench begin 000-tcp-r1/first benchmark=nvshmem test=shmem_put_bw ranks=2",
    *STEPS["nvshmem"][1:],
    "256         None      0.009776        ",
    "#@fabbench end 000-tcp-r1/first 0",
]


@pytest.mark.parametrize("keep", [0, 3])
def test_a_step_that_hangs_does_not_spoil_the_one_before_and_is_not_lost(keep: int) -> None:
    first, second = hung("nvshmem", keep, end=True, before=tuple(WHOLE))
    assert (first.outcome, len(first.points)) == (Outcome.OK, 2)
    assert (second.benchmark, second.outcome) == ("nvshmem", Outcome.TIMEOUT)


@pytest.mark.parametrize("status", [0, 7])
def test_a_step_that_says_nothing_is_not_ok(status: int) -> None:
    words = STEPS["nvshmem"][0]
    lines = [
        *WHOLE,
        f"#@fabbench begin 000-tcp-r1/{words}",
        f"#@fabbench end 000-tcp-r1/shmem_put_bw {status}",
    ]
    first, second = read_lines(lines, ending=Ending(status=status, planned_sizes=(64, 256)))
    assert first.outcome is Outcome.OK
    assert second.outcome is (Outcome.FAILED if status else Outcome.TRUNCATED)


# ---------------------------------------------------------------- whether the end is shown

OSU = ["# OSU MPI Latency Test v7.4", "# Size       Avg Latency(us)"]
ROWS = [f"{1 << power}              {power + 2}.50" for power in range(23)]
CUT = [*OSU, *ROWS[:12]]
IMB = ["# Benchmarking PingPong", "       #bytes #repetitions      t[usec]   Mbytes/sec"]
IMB_ROWS = ["            0         1000         1.25         0.00"]
FLUX = '{{"timestamp":1724210442.3,"name":"complete","context":{{"status":{}}}}}'


@pytest.mark.parametrize(
    ("lines", "complete"),
    [
        (CUT, "unknown"),
        ([*OSU, *ROWS], "yes"),
        (["$ mpirun -np 2 osu_latency -m 2048", *CUT], "yes"),
        (["$ mpirun -np 2 osu_latency -m 1024:2048", *OSU, *ROWS[10:12]], "yes"),
        (["$ mpirun -np 2 osu_latency", *CUT], "no"),
        (["# OSU MPI Barrier Latency Test v7.4", "# Avg Latency(us)", "   12.50"], "unknown"),
        ([*CUT, "[exit status: 0]"], "yes"),
        ([*CUT, FLUX.format(0)], "yes"),
        (["# Maximum message length in bytes:   0", *IMB, *IMB_ROWS], "unknown"),
        (["#@fabbench begin 0-a-r1/s benchmark=osu", *CUT, "#@fabbench end 0-a-r1/s 0"], "yes"),
        (["#@fabbench begin 0-a-r1/s benchmark=osu", *CUT], "no"),
    ],
)
def test_a_table_without_closing_lines_ends_where_something_shows_it(
    lines: list[str], complete: str
) -> None:
    (log,) = read_lines(lines)
    assert (log.facts["complete"], log.shows_end) == (complete, complete != "unknown")


WORDS = "0.035s: flux-shell[1]: ERROR: host a: Could not change dir to /opt: Going to /tmp instead"
KILLED = "srun: error: node0: task 1: Killed"


@pytest.mark.parametrize(
    ("lines", "outcome", "codes"),
    [
        ([WORDS, *CUT, FLUX.format(0)], Outcome.OK, ["went-on"]),
        ([WORDS, *CUT, "[exit status: 0]"], Outcome.OK, ["went-on"]),
        ([*CUT, WORDS, "[exit status: 0]"], Outcome.OK, ["went-on"]),
        # Words alone, an exit record of another program, a signal, or no whole table.
        ([WORDS, *CUT], Outcome.FAILED, ["first-error"]),
        ([WORDS, *CUT, FLUX.format(256)], Outcome.FAILED, ["first-error"]),
        ([*CUT, FLUX.format(9)], Outcome.FAILED, None),
        ([*CUT, KILLED, "[exit status: 0]"], Outcome.FAILED, None),
        ([WORDS, *OSU, FLUX.format(0)], Outcome.FAILED, ["first-error"]),
        ([WORDS, *CUT, "4096   1.", FLUX.format(0)], Outcome.FAILED, ["first-error"]),
    ],
)
def test_an_exit_record_counts_more_than_words(
    lines: list[str], outcome: Outcome, codes: list[str] | None
) -> None:
    (log,) = read_lines(lines)
    assert log.outcome is outcome
    assert codes is None or [found.code for found in log.findings] == codes


def test_an_exit_record_of_a_run_counts_more_than_words_too() -> None:
    (log,) = read_lines([WORDS, *CUT], ending=Ending(status=0))
    assert (log.outcome, [found.code for found in log.findings]) == (Outcome.OK, ["went-on"])
    (log,) = read_lines([WORDS, *CUT], ending=Ending(status=1))
    assert log.outcome is Outcome.FAILED
