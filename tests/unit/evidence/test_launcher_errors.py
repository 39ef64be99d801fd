"""What programs print when a run dies.

Each wording once, alone, above and below complete tables.
"""

import json
import re

import pytest

from fabbench.evidence import known_errors
from fabbench.evidence.known_errors import (
    FatalText,
    Kind,
    fatal_message,
    fatal_texts,
    findings_of,
    first_fatal_text,
)
from fabbench.model.log import Outcome
from fabbench.runs.inputs import parse
from tests.support.paths import DATA
from tests.support.read_logs import read

HARMLESS = json.loads((DATA / "harmless_messages.json").read_text("utf-8"))
"""What ends no run → a remark."""
TEXTS = fatal_texts()
LINES = [(text, line) for text in TEXTS for line in text.examples]
STARTED = [line for _, line in LINES if (known := fatal_message(line)) and known.kind < 3]
TABLES = {
    "osu": (
        "# OSU MPI Latency Test v5.6.2\n# Size    Latency (us)\n0           1.21\n1           1.25"
    )
}


@pytest.mark.parametrize(("text", "line"), LINES)
def test_a_text_that_ends_a_run_is_a_failure(text: FatalText, line: str) -> None:
    (log,) = read(line + "\n")
    assert log.benchmark in {None, "osu"}  # a line may name the benchmark
    assert log.outcome == ("timeout" if text.kind == "timeout" else "failed")
    if log.benchmark is None and text.source != "ROCm":  # whose errors have a meaning of their own
        words = " ".join(line.split()).removeprefix(f"{text.source}: ")
        assert log.reason == f"{text.source} reported: {words}"


PREFIXES = ("", "node1: ", "[1,3]<stderr>:", "2026-11-25T01:02:03Z ", "12: ", "node1 | ")


@pytest.mark.parametrize("every", [len(PREFIXES), pytest.param(1, marks=pytest.mark.slow)])
def test_a_table_is_never_ok_with_such_a_text_above_or_below(every: int) -> None:
    """Each text behind one of the prefixes in turn; by night behind each of them."""
    table = TABLES["osu"]
    texts = [
        prefix + line
        for number, line in enumerate(STARTED)
        for prefix in PREFIXES[number % every :: every]
    ]
    for text in texts:
        for whole in (f"{table}\n{text}\n", f"{text}\n{table}\n"):
            outcomes = [log.outcome for log in read(whole) if log.benchmark]
            assert outcomes in ([Outcome.FAILED], [Outcome.TIMEOUT]), text


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


def record(line: str) -> FatalText | None:
    """Return the record that a line shows."""
    if fatal_message(line) is None:
        return None
    first = first_fatal_text(line)
    assert first is not None
    return first[1]


@pytest.mark.parametrize("text", TEXTS, ids=lambda text: f"{text.source}: {text.kind}")
def test_a_record_is_shown_by_its_examples_alone(text: FatalText) -> None:
    assert all(record(line) is text for line in text.examples)
    assert all(record(line) is not text for line in text.counterexamples)
    assert text.counterexamples
    for expression in text.expressions:
        assert any(re.search(expression, line) for line in text.examples), expression


@pytest.mark.parametrize("name", ["osu-sigill.txt", "torch-mismatch.txt"])
def test_rows_above_a_fatal_text_that_a_filter_by_hand_once_hid_are_not_ok(name: str) -> None:
    assert [log.outcome for log in parse(DATA / "fatal" / name)] == [Outcome.FAILED]


@pytest.mark.parametrize("line", HARMLESS)
def test_other_words_are_no_failure(line: str) -> None:
    assert fatal_message(line) is None
    assert read(line + "\n") == []


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("[exit status: 0]", 0),
        ("[exit status: 137]", 137),
        ("# exit status: 7", 7),
        ("exit status: 7", None),
        ('{"timestamp":17.3,"name":"complete","context":{"status":0}}', 0),
        ('{"timestamp":17.3,"name":"complete","context":{"status":256}}', 1),
        ('{"timestamp":17.3,"name":"complete","context":{"status":9}}', 137),
        ('{"timestamp":17.3,"name":"complete"}', None),
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
    assert [each.code for each in findings_of([message.sentence])] == ["program-missing"]
    assert [each.code for each in findings_of(["Process name: [[17,1],0] Exit code: 127"])] == [
        "program-missing"
    ]
