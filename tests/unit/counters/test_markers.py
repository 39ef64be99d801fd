"""NIC counters that a job's script prints: its lines, read from a job that runs and from a log."""

from dataclasses import replace
from pathlib import Path

import pytest

from fabbench.benchmarks.nvshmem.plan import NvshmemWork
from fabbench.counters.execution_counters import ExecutionCounters
from fabbench.launchers.batch_job import Demux
from fabbench.model.log import Log, Outcome
from fabbench.model.plan import Execution
from fabbench.plan.build import plan
from fabbench.runs.parse_file import parse_stream
from fabbench.runs.store import StoredRun
from fabbench.testing import sample_run
from tests.support.replay import GB, NVSHMEM, PrintingHosts, ReplayHosts
from tests.support.requests import request
from tests.support.script_plans import printed as printed_by_script

UNEVEN = ((10 * GB, 0), (10 * GB, 40 * GB), (10 * GB, 0), (10 * GB, 0))
WORK = NvshmemWork(tests=("alltoall_latency",), min_bytes=8, max_bytes=8)
REQUEST = request("nvshmem", WORK, "efa", target="playing", repeats=2)


def ran(folder: Path, allocation: ReplayHosts) -> StoredRun:
    stored, results = sample_run(
        replace(REQUEST, store=folder / type(allocation).__name__), allocation
    )
    assert results.stop is None
    return stored


def place(folder: Path, **options: object) -> PrintingHosts:
    made = PrintingHosts(folder=folder / "hosts", lines=NVSHMEM, moves=UNEVEN)
    for name, value in options.items():
        setattr(made, name, value)
    return made


def executions(made: ReplayHosts) -> tuple[Execution, ...]:
    return plan(REQUEST, made.inventory).executions


def printed(made: ReplayHosts) -> list[list[str]]:
    """What a job prints in each of its executions."""
    return [list(made.execute(execution)) for execution in executions(made)]


def codes(log: Log) -> list[str]:
    return [finding.code for finding in log.findings if finding.code.startswith("nic-")]


def logged(folder: Path, lines: list[str], configuration: str = "") -> list[Log]:
    file = folder / "log"
    file.write_text("\n".join(lines) + "\n")
    with file.open("rb") as stream:
        return [
            log for label, log in parse_stream(stream, str(file)) if configuration in {"", label}
        ]


# ---------------------------------------------------------------- a job that runs


def test_a_job_is_judged_by_what_it_prints_as_others_by_what_is_asked(tmp_path: Path) -> None:
    from_hosts = ran(
        tmp_path, ReplayHosts(folder=tmp_path / "from-hosts", lines=NVSHMEM, moves=UNEVEN)
    )
    from_markers = ran(tmp_path, place(tmp_path))
    assert [codes(log) for log in from_markers.logs("efa")] == [["nic-imbalance-rx"]] * 2
    assert [log.findings for log in from_markers.logs("efa")] == [
        log.findings for log in from_hosts.logs("efa")
    ]
    for execution in from_markers.executions:
        assert from_markers.counters(execution.id) == from_hosts.counters(execution.id)
        assert "#@fabbench nics" not in (execution.path / "output.log").read_text()


def test_a_host_that_did_not_tell_is_a_note(tmp_path: Path) -> None:
    first, second = ran(tmp_path, place(tmp_path, silent=frozenset({"b"}))).logs("efa")
    assert codes(first) == ["nic-imbalance-rx", "nic-counters"]
    found = [finding.meaning for finding in second.findings if finding.code == "nic-counters"]
    assert found == [
        f"No NIC counters of b from {when} this execution." for when in ("before", "after")
    ]


def test_counters_are_of_the_execution_that_they_name(tmp_path: Path) -> None:
    made = place(tmp_path)
    one, two = printed(made)
    split = Demux(["before", *one, "between", *two])
    first, second = executions(made)
    assert list(split.execute(first)) == ["before", *one, "between"]
    assert list(split.execute(second)) == two


def test_a_job_that_begins_anew_counts_anew(tmp_path: Path) -> None:
    made = place(tmp_path)
    execution = executions(made)[0]
    cut, _ = printed(made)
    again = [*made.nics(execution, "before"), *made.nics(execution, "after")]
    counters = of_lines([*cut[: len(cut) // 2], *again])
    assert {host: moved.total for host, moved in counters.traffic().items()} == {"a": 0, "b": 0}


def of_lines(lines: list[str]) -> ExecutionCounters:
    return printed_by_script("\n".join(lines), "000-efa-r1")


@pytest.mark.parametrize(
    ("spoilt", "said"),
    [
        (lambda text: text[:-12], "The printed counters of a are incomplete."),
        (lambda text: text[:-5] + "Z" * 5, "The printed counters of a are damaged."),
        (lambda text: "H4sI" + text[9:], "The printed counters of a are damaged."),
        (lambda text: "\u00fc" + text, "The printed counters of a are damaged."),
        (lambda _: "", ""),
    ],
)
def test_what_is_damaged_is_reported_and_not_guessed(
    tmp_path: Path, spoilt: object, said: str
) -> None:
    assert callable(spoilt)
    made = place(tmp_path)
    before, *rest = made.nics(executions(made)[0], "before")
    start, equals, text = before.rpartition("packed=")
    counters = of_lines([f"{start}{equals}{spoilt(text)}", *rest])
    assert counters.hosts["a"].before is None
    assert counters.hosts["b"].before is not None
    assert counters.failures == ((said,) if said else ())


# ---------------------------------------------------------------- a log


def test_a_log_of_a_script_is_judged_with_the_counters_in_it(tmp_path: Path) -> None:
    made = place(tmp_path)
    one = printed(made)[0]
    made.moves = [(0, 0)] * 4
    two = printed(made)[1]
    found = logged(tmp_path, [*one, *two, "the launcher's last word"])
    assert [codes(log) for log in found] == [["nic-imbalance-rx"], ["nic-idle"]]
    assert {log.outcome for log in found} == {Outcome.OK}


def test_the_same_script_twice_in_one_log(tmp_path: Path) -> None:
    made = place(tmp_path)
    one = printed(made)[0]
    made.moves = [(0, 0)] * 4
    printed(made)
    found = logged(tmp_path, [*one, *printed(made)[0]])
    assert [codes(log) for log in found] == [["nic-imbalance-rx"], ["nic-idle"]]


def test_prefixes_of_a_launcher_do_not_matter(tmp_path: Path) -> None:
    lines = [
        f"(head, rank=0, pid=2123) {line}" for part in printed(place(tmp_path)) for line in part
    ]
    assert [codes(log) for log in logged(tmp_path, lines)] == [["nic-imbalance-rx"]] * 2


def test_one_configuration_of_a_log_has_its_own_counters(tmp_path: Path) -> None:
    made = place(tmp_path)
    one, two = (
        [line.replace("-efa-", f"-{name}-") for line in part]
        for name, part in zip(("new", "old"), printed(made), strict=True)
    )
    quiet = [line for line in two if "nics" not in line]
    lines = [*one, *quiet]
    assert [codes(log) for log in logged(tmp_path, lines, "new")] == [["nic-imbalance-rx"]]
    assert [codes(log) for log in logged(tmp_path, lines, "old")] == [[]]
    assert [codes(log) for log in logged(tmp_path, [*quiet, *one], "old")] == [[]]


def test_a_log_that_ends_in_an_execution_says_what_is_missing(tmp_path: Path) -> None:
    (log,) = logged(
        tmp_path, [line for line in printed(place(tmp_path))[0] if "when=after" not in line]
    )
    assert codes(log) == ["nic-counters"]
    assert "No NIC counters of a, b from after this execution." in {
        finding.meaning for finding in log.findings
    }
