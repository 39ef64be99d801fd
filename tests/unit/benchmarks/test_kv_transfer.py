"""Programs whose result is a line: their records, and what is read of them."""

from pathlib import Path
from typing import Any

import pytest

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import compare
from fabbench.benchmarks.kv_transfer.reader import Program, programs
from fabbench.model.log import Log, Outcome
from tests.support.paths import DATA
from tests.support.read_logs import read

CORPUS = DATA / "corpus/kv_transfer"


@pytest.mark.parametrize("program", programs(), ids=lambda program: program.case)
def test_a_record_reads_its_examples_and_nothing_else(program: Program) -> None:
    layouts = [*map(program.layout, program.rows)]
    for example in program.examples:
        case, *cells = program.cells(example).split("\t")
        assert (case, len(cells)) in {(program.case, len(layout) - 1) for layout in layouts}
    for counterexample in program.counterexamples:
        assert program.cells(counterexample) == counterexample
    for row in program.rows:
        assert any(program.layout(row) == layout for layout in layouts)
    assert program.examples
    assert program.counterexamples


def logs(name: str) -> list[Log]:
    return read(Path(CORPUS / f"{name}.txt").read_text())


def figures(log: Log) -> list[tuple[int, dict[str, Any]]]:
    return [
        (point.size, dict(zip(point.metrics, point.values, strict=True))) for point in log.points
    ]


def test_both_rates_and_the_time_of_a_block() -> None:
    (log,) = logs("uccl-writes-of-one-block")
    assert (log.benchmark, log.case, log.outcome) == ("kv_transfer", "uccl_p2p", Outcome.OK)
    assert (log.facts["library"], log.facts["complete"]) == ("UCCL", "yes")
    size, first = figures(log)[0]
    assert size == 104857
    assert first == pytest.approx({"bandwidth": 11.6e9, "latency": 9.04e-6})


def test_sizes_are_a_list_of_the_users() -> None:
    (log,) = logs("uccl-of-2025-without-times")
    assert log.outcome is Outcome.OK
    assert [size for size, _ in figures(log)][-3:] == [1 << 20, 10 << 20, 100 << 20]


def test_rates_that_contradict_each_other_and_rows_that_were_cut_are_damaged() -> None:
    (log,) = logs("uccl-cut-and-torn-rows")
    assert log.outcome is Outcome.TRUNCATED
    assert [damaged.line for damaged in log.damaged] == [3, 4]
    assert [size for size, _ in figures(log)] == [1 << 10, 8 << 10]


def test_two_libraries_are_two_runs() -> None:
    libraries = [
        (log.facts["library"], len(log.points)) for log in logs("two-runs-of-two-libraries")
    ]
    assert libraries == [("UCCL", 2), ("NCCL", 2)]


def test_two_libraries_are_no_repeats_and_can_be_compared() -> None:
    uccl, nccl = logs("two-runs-of-two-libraries")
    together = compare([Column(label="a", logs=(uccl, nccl), source="a")])
    assert {section.key["library"] for section in together.sections} == {"UCCL", "NCCL"}
    columns = [
        Column(label=name, logs=(log,), source=name)
        for name, log in zip("ab", (uccl, nccl), strict=True)
    ]
    (section,) = compare(columns).sections
    assert [row.size for row in section.rows] == [32 << 10, 128 << 10]


@pytest.mark.parametrize(
    ("name", "rate"), [("mooncake-without-a-unit", 0.28e9), ("mooncake-over-rdma", 116.37e9)]
)
def test_mooncake_states_a_rate_and_no_size(name: str, rate: float) -> None:
    (log,) = logs(name)
    assert (log.case, log.outcome) == ("transfer_engine_bench", Outcome.OK)
    assert figures(log) == [(0, {"bandwidth": pytest.approx(rate)})]
    assert "size-unstated" in {finding.code for finding in log.findings}
    assert log.facts.get("transport", "unknown") == "unknown"


def test_transfers_that_failed_are_no_result() -> None:
    assert Outcome.FAILED in {
        log.outcome for log in logs("mooncake-in-gigabits-whose-transfers-failed")
    }


def test_a_line_without_its_unit_is_damaged() -> None:
    (log,) = logs("mooncake-a-line-that-was-cut")
    assert (log.outcome, log.points, len(log.damaged)) == (Outcome.TRUNCATED, [], 1)


def test_kvbench_times_patterns() -> None:
    (log,) = logs("kvbench-patterns-one-after-another")
    assert (log.case, log.outcome) == ("sequential-ct-perftest", Outcome.OK)
    assert figures(log)[0] == (4_945_000_000, {"time": pytest.approx(35.047e-3)})
    assert {tuple(point.labels.items()) for point in log.points} == {(), (("stat", "isolated"),)}
    (one,) = logs("kvbench-one-pattern")
    assert figures(one) == [(1_073_742_000, {"time": pytest.approx(0.010247)})]


def test_a_table_of_kvbench_that_was_cut() -> None:
    (log,) = logs("kvbench-of-2025-that-was-cut")
    assert log.outcome is Outcome.TRUNCATED
    assert len(log.damaged) == 2
