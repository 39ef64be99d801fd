"""Runs that died: how often the outcome is right and the cause is first, and that there is one.

`pytest -s` prints the rates.
"""

import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest

from fabbench.evidence.first_error import FirstErrors
from fabbench.evidence.judge import judge
from fabbench.evidence.known_errors import DEAD, Cause, by_code, causes
from fabbench.model.log import Ending, Log, Outcome, Record, Severity
from tests.support.corpus import recorded
from tests.support.paths import DATA
from tests.support.read_logs import read
from tests.support.tiers import sampled

FOLDER = DATA / "dead"


def cases(name: str) -> list[dict[str, Any]]:
    text = (FOLDER / f"{name}.toml").read_text("utf-8")
    found: list[dict[str, Any]] = tomllib.loads(text)["case"]
    return found


SETS = (
    "cases",
    "untried",
    "second",
    "third",
    "fourth",
    "fifth",
    "sixth",
    "seventh",
    "eighth",
    "ninth",
    "tenth",
    "eleventh",
    "twelfth",
    "thirteenth",
    "fourteenth",
    "fifteenth",
    "sixteenth",
    "seventeenth",
    "gloo",
)
CASES = [case for name in SETS for case in cases(name)]


def is_dead(case: dict[str, Any]) -> bool:
    return "cause" in case or "quote" in case


def each_of(chosen: Sequence[dict[str, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", chosen, ids=[case["name"] for case in chosen])


@dataclass(frozen=True)
class Score:
    """How a case was read."""

    name: str
    is_outcome_right: bool
    dead: bool
    place: int
    """Of the right cause; 0: it is not there."""
    causes: int

    @property
    def is_wrong_first(self) -> bool:
        return self.dead and self.place != 1 and self.causes > 0


def is_right(cause: Cause, case: dict[str, Any]) -> bool:
    said = f"{cause.finding.line} {cause.finding.meaning}"
    wanted = case.get("cause", cause.finding.code)
    return cause.finding.code == wanted and case.get("quote", "") in said


def log_of(case: dict[str, Any]) -> Log:
    return log_in(case["text"])


@cache
def log_in(text: str) -> Log:
    (log,) = read(text)
    return log


def score(case: dict[str, Any]) -> Score:
    log = log_of(case)
    found, _ = causes(log)
    places = [place for place, cause in enumerate(found, start=1) if is_right(cause, case)]
    dead = is_dead(case)
    place = places[0] if places and dead else 0
    return Score(case["name"], log.outcome == case["outcome"], dead, place, len(found))


@pytest.mark.parametrize("name", SETS)
def test_outcomes_are_right_and_causes_first(name: str) -> None:
    scores = [score(case) for case in cases(name)]
    dead = [each for each in scores if each.dead]
    outcomes = sum(each.is_outcome_right for each in scores) / len(scores)
    first = sum(each.place == 1 for each in dead) / len(dead)
    among_two = sum(each.place in {1, 2} for each in dead) / len(dead)
    wrong = [each.name for each in dead if each.is_wrong_first]
    print(
        f"\n{name}: {len(scores)} cases, outcome right {outcomes:.0%}; of {len(dead)} dead runs "
        f"the cause first {first:.0%}, among two {among_two:.0%}, wrong one first: {wrong}"
    )
    assert outcomes >= 0.97
    assert first >= 0.9
    assert among_two >= 0.97
    assert len(wrong) <= 1


@each_of([case for case in CASES if "not" in case])
def test_what_only_follows_is_not_first(case: dict[str, Any]) -> None:
    first, *_ = causes(log_of(case))[0]
    assert case["not"] not in first.finding.line


@each_of([case for case in CASES if not is_dead(case)])
def test_a_healthy_run_has_no_cause(case: dict[str, Any]) -> None:
    log = log_of(case)
    assert [each.code for each in log.findings if each.severity is Severity.ERROR] == []
    assert causes(log)[0] == []


def beginnings(case: dict[str, Any]) -> Iterator[str]:
    lines = case["text"].split("\n")
    for count in range(1, len(lines)):
        yield "\n".join(lines[:count])


@pytest.mark.parametrize("case", sampled(CASES, every=6), ids=[case["name"] for case in CASES])
def test_a_run_that_died_has_a_cause_wherever_its_log_ends(case: dict[str, Any]) -> None:
    for text in beginnings(case):
        for log in read(text):
            if log.outcome in DEAD:
                assert causes(log)[0], text


def test_every_dead_run_of_the_corpus_has_a_cause() -> None:
    known = by_code()
    for name, logs in recorded().items():
        for log in logs:
            codes = [each.split()[0] for each in log.get("findings", ())]
            explaining = [each for each in codes if each in known and known[each].advice]
            assert log["outcome"] not in DEAD or explaining, name


@pytest.mark.parametrize("ending", [Ending(status=3), Ending(timed_out="It took too long.")])
def test_a_run_without_output_has_a_cause_too(ending: Ending) -> None:
    log = judge(Record(benchmark="nccl"), source="x", ending=ending)
    assert [each.finding.code for each in causes(log)[0]] == ["cause-not-shown"]


@pytest.mark.parametrize(("line", "is_kept"), [("frame #3: f()", True), ("step 3 done", False)])
def test_an_error_is_overcome_by_what_follows_but_not_by_stacks(line: str, is_kept: bool) -> None:
    errors = FirstErrors()
    errors.read("[rank1]: KeyError: 'weights'")
    for _ in range(300):
        errors.read(line)
    assert bool(errors.first()) == is_kept


def test_warnings_of_ever_more_processes_are_not_all_kept() -> None:
    errors = FirstErrors()
    for process in range(1000):
        errors.keep_warning(f"n1:{process}", "no route")
        errors.keep_warning(f"n1:{process}", "Connection reset by peer")
    assert len(errors.kept) == 200
    assert errors.first() == "no route"


READY = "n1:1:2 [0] NCCL INFO comm 0x5 rank 0 nranks 2 cudaDev 0 busId 1 - Init COMPLETE"


@pytest.mark.parametrize(
    ("warning", "codes"),
    [
        ("ras/client_support.cc:159 NCCL WARN Call to bind failed: Address already in use", []),
        (
            "ras/ras.cc:391 NCCL WARN NCCL version mismatch with remote peer n2",
            ["nccl-versions-differ"],
        ),
        ("misc/socket.cc:7 NCCL WARN Call to bind failed: Address already in use", ["first-error"]),
    ],
)
def test_only_what_fails_on_queries_of_ras_is_no_warning(warning: str, codes: list[str]) -> None:
    (log,) = read(f"{READY}\nn1:1:2 [0] {warning}")
    assert [each.code for each in log.findings] == codes


LAST_WARNING = "INTERNAL ERROR: Last NCCL warning(error) 'x'"


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        (["ERROR: Connection reset by peer", "[rank3]: KeyError: 'a'"], "[rank3]: KeyError: 'a'"),
        (["ERROR: x.so cannot be preloaded: ignored", "ValueError: b"], "ValueError: b"),
        (["cannot open x", "ERROR: Broken pipe"], "cannot open x"),
        (["ERROR: Broken pipe", "cannot open x"], "ERROR: Broken pipe"),
        (["cannot open x: ignored", "ERROR: Broken pipe"], "ERROR: Broken pipe"),
        (["ERROR: the test returned 103.", "ERROR: Broken pipe"], "ERROR: Broken pipe"),
        (["ERROR: WARNING: Last x", "ValueError: b"], "ValueError: b"),
        ([LAST_WARNING, "ValueError: b"], LAST_WARNING),
        (["cannot open x", "n1 noticed: process died from signal 11"], "cannot open x"),
        (
            ["rank 3 died from signal 15", "rank 1 died from signal 11"],
            "rank 1 died from signal 11",
        ),
        (["ERROR: unhandled system error", "cannot open x"], "cannot open x"),
        (["ERROR: setup failed for some reason", "cannot open x"], "cannot open x"),
        (["Please check that x can be opened: error", "cannot open x"], "cannot open x"),
        (["n1: unexpected EOF: error", "rank 1 died from signal 11"], "rank 1 died from signal 11"),
        (
            ["[proxy:0:0@n1] f (a.c:1): assert (!closed) failed", "Broken: x failed"],
            "Broken: x failed",
        ),
    ],
)
def test_what_follows_from_another_end_is_first_where_nothing_else_is(
    lines: list[str], first: str
) -> None:
    assert first_of(lines) == first


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        (["Fatal error in F: Other MPI error, error stack:", "F(1)....: F() failed"], "Fatal"),
        (
            ["Fatal error, error stack:", "F(1)..: F() failed", "g(2): PMI is not there"],
            "g(2): PMI",
        ),
        (
            ["Fatal error, error stack:", "f(1): a", "g(2): b", "h(3):", "Error", "g(4): c"],
            "g(2): b",
        ),
        (["(Worker pid=3) ERROR 01 [a.py:1]     failed(x)", "cannot open x"], "cannot open x"),
        (['[0] n1: File "error.py", line 3', "cannot open x"], "cannot open x"),
        (["", "  init: runtime_init failed"], "init: runtime_init failed"),
    ],
)
def test_the_line_that_says_why_is_first_among_those_that_only_lead_to_it(
    lines: list[str], first: str
) -> None:
    assert first_of(lines).startswith(first)


def first_of(lines: Sequence[str]) -> str:
    errors = FirstErrors()
    for errors.number, line in enumerate(lines, start=1):
        errors.read(line)
    return errors.first() or errors.hint


@pytest.mark.parametrize(
    ("between", "is_one"),
    [
        ([], True),
        (["+ python3 x.py", "start"], True),
        (["Traceback (most recent call last):", *['  File "x.py"'] * 9], True),
        (["step 1", "step 2", "step 3"], False),
    ],
)
@pytest.mark.parametrize("words", ["cannot open x", "W 11-26 cannot open x", "Failed:", ""])
def test_of_errors_that_stand_together_the_first_one_counts(
    words: str, between: list[str], *, is_one: bool
) -> None:
    error = "RuntimeError: No GPUs"
    first = words if is_one and words == "cannot open x" else error
    assert first_of([words, *between, error]) == first


def test_a_table_that_quotes_errors_has_none() -> None:
    assert first_of(["| `KeyError: 'a'` | ERROR: b |", "| c | no such file |"]) == ""
    assert [*read("| 3 | ERROR: `mpirun` was unable to launch | x |")] == []


@pytest.mark.parametrize(
    ("said", "first"),
    [
        ("KeyError: 'a'", "first-error"),
        ("ERROR: Broken pipe", "killed"),
        ("ERROR: x: Connection reset by peer", "killed"),
    ],
)
def test_a_killed_process_comes_after_what_a_program_said_and_before_what_follows(
    said: str, first: str
) -> None:
    (log,) = read(
        f"{said}\nmpirun noticed that process rank 1 on node a exited on signal 9 (Killed)."
    )
    assert causes(log)[0][0].finding.code == first


@pytest.mark.parametrize(
    ("last", "count"),
    [
        ("KeyError: 'weights'", 1),
        ("KeyError: 'weights'\nFor debugging, see the docs\n", 1),
        ("KeyError: 'weights'\n" + "step\n" * 6, 0),
        ("cannot open x", 0),
        ("error: not what a launcher says", 0),
        # Figures, a status of 0, and what TensorFlow says whenever it starts
        ("Failed: 0", 0),
        ("Error: 0.0031", 0),
        ("ERROR norm 1.2e-7", 0),
        ("exit code: 0", 0),
        ("CUDA error checking: on", 0),
        ("fi_getinfo: -61\nprovider: tcp\n    domain: x\n", 0),  # the next one was there
        ("E0000 00:00:17.1 7 a.cc:8] Unable to register x when one has already been registered", 0),
    ],
)
def test_a_text_without_a_benchmark_that_ends_with_an_error_is_a_run_that_failed(
    last: str, count: int
) -> None:
    logs = [*read(f"Traceback (most recent call last):\n  File 'a.py'\n{last}")]
    assert [log.outcome for log in logs] == [Outcome.FAILED] * count
    assert all("weights" in causes(log)[0][0].finding.line for log in logs)


def test_a_program_whose_nccl_goes_on_has_not_said_its_last() -> None:
    ready = "n1:3:4 [0] NCCL INFO comm 0x7f rank 0 nranks 4 cudaDev 0 busId 1 - Init COMPLETE"
    (log,) = read(f"ModuleNotFoundError: No module named 'apex'\n{ready}")
    assert log.outcome is Outcome.OBSERVED


LOADER = "./a2a: error while loading shared libraries: liba.so: "
PIPES = "ORTE_ERROR_LOG: The system limit on number of pipes a process can open was reached in file"
SEGMENT = "n1:7:9 [0] misc/shmutils.cc:1 NCCL WARN Error while creating shared memory segment /a, "


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (f"{LOADER}failed to map segment from shared object", "memory-refused"),
        (f"{LOADER}cannot open shared object file: Error 24", "too-many-files"),
        (f"{LOADER}cannot open shared object file: No such file", "program-missing"),
        (f"{SEGMENT}error: Too many open files (24)", "too-many-files"),
        (f"{SEGMENT}error: Cannot allocate memory (12)", "memory-refused"),
        (f"{SEGMENT}error: No space left on device (28)", "shm-too-small"),
        ("MemoryError: Unable to allocate 8.00 GiB", "memory-refused"),
        (f"{PIPES}\n[n1:7] *** Process received signal ***", "too-many-files"),
    ],
)
def test_a_limit_that_a_process_met_is_the_cause_wherever_it_met_it(text: str, code: str) -> None:
    (log,) = read(text)
    assert causes(log)[0][0].finding.code == code


HEAD = "# OSU MPI Bandwidth Test v7.4\n# Size      Bandwidth (MB/s)\n"


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        ("[n1:7] pml_ucx.c:323  Error: ucp_ep_create(proc=1) failed", Outcome.FAILED),
        ("[n1:7] pml_ucx.c:323  Warning: ucp_ep_create(proc=1) failed", Outcome.TRUNCATED),
    ],
)
def test_a_benchmark_without_a_row_that_ends_with_an_error_has_failed(
    end: str, outcome: Outcome
) -> None:
    (log,) = read(HEAD + end)
    assert log.outcome is outcome


def test_a_crash_that_stands_before_its_reason_is_not_first() -> None:
    (log,) = read(
        "[n1:7:0:7] Caught signal 11 (Segmentation fault: address not mapped)\n"
        "/src/modules/transport/ibrc/ibrc.cpp:1: NULL value cq creation failed\n\n"
        "/src/modules/transport/ibrc/ibrc.cpp:2: non-zero status: 7 ep_create failed\n"
    )
    assert "cq creation failed" in causes(log)[0][0].finding.line


CALL = "n1:7:9 [1] NCCL INFO misc/socket.cc:915 (socketProgress) -> 3"
RAISED = "torch.multiprocessing.spawn.ProcessRaisedException:\n\nAssertionError: 4086 != 8169"


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ([CALL], "NCCL failed: misc/socket.cc:915 (socketProgress) -> 3"),
        ([CALL, RAISED], "The program reported: AssertionError: 4086 != 8169"),
        ([RAISED, CALL], "The program reported: AssertionError: 4086 != 8169"),
    ],
)
def test_a_call_that_fails_as_another_process_ended_is_not_the_reason(
    lines: list[str], reason: str
) -> None:
    (log,) = read("\n".join(lines))
    assert log.outcome is Outcome.FAILED
    assert log.reason == reason


def test_code_below_an_announced_error_is_not_the_error() -> None:
    assert first_of(["Last error:", "    return pg.recv([tensor])", "KeyError: 'a'"]) == (
        "KeyError: 'a'"
    )


@pytest.mark.parametrize(
    ("lines", "first"),
    [
        (["x may not be found.", "This may negatively impact performance."], ""),
        (
            ["6m2s  Warning  Failed  pod/a  Failed to pull image: not found"],
            "6m2s  Warning  Failed",
        ),
        (["ERROR: transport retry counter exceeded"], "ERROR: transport retry counter"),
        (["SyntaxWarning: invalid escape", "ERROR: no route"], "ERROR: no route"),
        (["[n1:7] pml_ucx.c:7  Error: Failed to create x", "ERROR: no GID"], "ERROR: no GID"),
        (["E0813 06:19:49.8 7 api.py:8] failed (exitcode: -9) of binary: x"], "E0813 06:19:49.8"),
        (["", "  Error:       No such file"], ""),
    ],
)
def test_what_a_line_says_follows_from_its_form(lines: list[str], first: str) -> None:
    errors = FirstErrors()
    for errors.number, line in enumerate(lines, start=1):
        errors.read(line)
    assert errors.first().startswith(first)
    assert bool(errors.first()) == bool(first)


def test_a_text_that_leaves_out_what_follows_does_not_end_with_an_error() -> None:
    assert [*read("[n1:7] PMIX ERROR: UNPACK in file a.c\n...")] == []


def test_the_first_watchdog_by_its_own_time_is_quoted() -> None:
    late = "[rank7]:[E626 05:14:36.39 a.cpp:7] [Rank 7] x watchdog got stuck for 480 seconds"
    first = (
        "[rank2]:[E626 05:06:30.92 a.cpp:7] [Rank 2] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=7, OpType=ALLREDUCE) ran for 1800065 milliseconds before timing out."
    )
    (log,) = read(f"{late}\n{first}")
    assert causes(log)[0][0].finding.line == first


def test_a_job_that_somebody_canceled_has_this_as_its_cause() -> None:
    (log,) = read(
        "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        "slurmstepd: error: *** JOB 3 ON c1 CANCELLED AT 2025-02-13T15:47:35 ***\n"
    )
    assert causes(log)[0][0].finding.code == "job-canceled"


def test_a_line_that_opens_json_is_not_the_error() -> None:
    lines = [
        "[ERROR] error_handler: {",
        '  "message": {',
        '    "message": "KeyError: a",',
        "    x()",
    ]
    assert first_of(lines) == '"message": "KeyError: a",'


def test_a_warning_is_not_first_above_the_reason_in_an_error_stack() -> None:
    (log,) = read(
        "WARNING: Error in initializing a cache. Continuing without it.\n"
        "[cli_0]: aborting job:\n"
        "Fatal error in PMPI_Init_thread:\nInternal MPI error!, error stack:\n"
        "MPIR_Init_thread(446)......:\nrdma_iba_hca_init(679): Attributes failed sanity check\n"
    )
    assert "sanity check" in causes(log)[0][0].finding.line


@pytest.mark.parametrize(
    "line",
    [
        "[n1:271:0:271] ib_mlx5_log.c:143  Transport retry count exceeded on mlx5_0:1/IB",
        "mlx5: n1: got completion with error:",
        "[train] [nvidia-smi(stdout)] Failed to initialize NVML: Driver/library version mismatch",
        "(RayWorkerWrapper pid=9) [rank1]:[E528 a.cpp:145] Gloo connectFullMesh failed with x",
        "PSM2 was unable to open an endpoint. Please make sure that the network link is",
    ],
)
def test_what_ends_a_program_is_read_without_a_benchmark(line: str) -> None:
    (log,) = read(line)
    assert log.outcome is Outcome.FAILED
    assert causes(log)[0]


def test_a_heartbeat_on_a_line_that_a_terminal_cut_is_of_an_unknown_rank() -> None:
    (log,) = read(
        "s watchdog got stuck for 480 seconds without making progress\n"
        "0(default_pg) Rank 6] Terminating the process after attempting to dump debug info, "
        "due to ProcessGroupNCCL watchdog hang.\n"
    )
    assert log.outcome is Outcome.TIMEOUT
    assert "watchdog-stuck" in {each.finding.code for each in causes(log)[0]}


@pytest.mark.parametrize(("mnnvl", "is_told"), [("0", False), ("1", True)])
def test_what_facts_contradict_is_not_told_by_the_reason_either(
    mnnvl: str, *, is_told: bool
) -> None:
    (log,) = read(
        f"n1:1:2 [0] NCCL INFO comm 0x5 rank 0 nRanks 4 nNodes 1 localRanks 4 MNNVL {mnnvl}\n"
        "n1:1:3 [0] transport/p2p.cc:275 NCCL WARN Cuda failure 101 'invalid device ordinal'\n"
        "n1:1:3 [0] NCCL INFO transport/p2p.cc:350 -> 1\n"
    )
    codes = {each.finding.code for each in causes(log)[0]}
    assert ("imex" in codes) is is_told
