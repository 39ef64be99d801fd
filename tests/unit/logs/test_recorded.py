"""Every recorded log is read as the facts table beside it says."""

import json
from pathlib import Path
from typing import Any

import pytest

from fabbench.model.log import Log, Point
from fabbench.model.plan import Proof
from fabbench.runs.parse_file import parse_file
from tests.support.read_logs import LOGS, printed, read, read_live

FACTS: dict[str, Any] = json.loads((LOGS / "facts.json").read_text())
"""File → what its log must be read as; a list where it holds several, None where it holds none."""
KNOWN = sorted(name for name, facts in FACTS.items() if facts is not None)
EACH = [(name, index) for name in KNOWN for index in range(len(FACTS[name]) if isinstance(FACTS[name], list) else 1)]
"""Files and the logs in them, counted from 0."""
UNKNOWN = sorted(name for name, facts in FACTS.items() if facts is None)
ONE_ERA = ["time", "algbw", "busbw", "wrong"]


def expected(name: str) -> list[dict[str, Any]]:
    facts = FACTS[name]
    return facts if isinstance(facts, list) else [facts]


def log_of(name: str, index: int) -> Log:
    logs = list(parse_file(LOGS / name))
    assert len(logs) == len(expected(name))
    return logs[index]


def only_log(path: Path, fabric: str | None = None) -> Log:
    (log,) = parse_file(path, proof=Proof(fabric=fabric) if fabric else None)
    return log


def test_every_recorded_log_has_its_facts() -> None:
    there = {
        str(path.relative_to(LOGS))
        for folder in ("nccl", "launchers", "runs")
        for path in (LOGS / folder).iterdir()
        if path.name != "README.md"
    }
    assert there == set(FACTS)


@pytest.mark.parametrize(("name", "index"), EACH)
def test_a_recorded_log_has_the_outcome_facts_and_findings_that_a_reader_sees(name: str, index: int) -> None:
    facts = expected(name)[index]
    log = log_of(name, index)
    assert log.benchmark == facts["benchmark"]
    assert log.case == facts["case"]
    assert log.outcome == facts["outcome"], log.reason
    assert facts.get("reason", "") in (log.reason or "")
    assert (log.reason is None) == (log.outcome == "ok")
    assert {fact: log.facts.get(fact) for fact in facts["facts"]} == facts["facts"]
    assert {finding.code for finding in log.findings} >= set(facts["findings"])
    assert len(log.points) == facts["points"]
    assert log.damaged == ()


@pytest.mark.parametrize(
    ("name", "index"), [(name, index) for name, index in EACH if "largest" in expected(name)[index]]
)
def test_the_figures_at_the_largest_size_are_those_that_were_printed(name: str, index: int) -> None:
    largest = expected(name)[index]["largest"]
    log = log_of(name, index)
    assert max(point.size for point in log.points) == largest["size"]
    for side in ("out-of-place", "in-place"):
        *_, point = (
            point
            for point in log.points
            if point.size == largest["size"] and point.labels["placement"] == side and "stat" not in point.labels
        )
        cells = dict(zip(ONE_ERA, largest[side], strict=True))
        figures = {metric: printed(cell, metric) for metric, cell in cells.items() if cell != "N/A"}
        assert dict(zip(point.metrics, point.values, strict=True)) == figures


@pytest.mark.parametrize(
    ("name", "index", "size", "labels", "figures"),
    [
        ("torch-p2p", 0, 4_000_000_000, {}, {"algbw": 346.179e9, "busbw": 346.179e9}),
        ("torch-tcp", 0, 4_000_000_000, {}, {"algbw": 3.469e9, "busbw": 3.469e9}),
        (
            "nvshmem-p2p",
            0,
            1 << 20,
            {"dtype": "64-bit", "scope": "block"},
            {"latency": 53.992162e-6, "algbw": 19.421e9, "busbw": 9.710e9},
        ),
        ("nvshmem-p2p", 1, 1 << 20, {"direction": "uni"}, {"bandwidth": 245.922928e9}),
    ],
)
def test_a_run_of_torch_or_nvshmem_has_the_figures_that_were_printed(
    name: str, index: int, size: int, labels: dict[str, str], figures: dict[str, float]
) -> None:
    log = log_of(f"runs/{name}.txt", index)
    (point,) = (each for each in log.points if each.size == size and each.labels == labels)
    assert dict(zip(point.metrics, point.values, strict=True)) == pytest.approx(figures)


@pytest.mark.parametrize("name", UNKNOWN)
def test_a_launch_that_says_nothing_of_a_benchmark_gives_no_log(name: str) -> None:
    assert list(parse_file(LOGS / name)) == []


def test_logs_without_debug_text_have_exactly_these_findings() -> None:
    for name in ("allreduce-1proc-g4.txt", "alltoall-mpi.txt", "opt-c0.txt", "opt-I.txt", "split.txt"):
        codes = [finding.code for finding in only_log(LOGS / "nccl" / name).findings]
        assert codes == FACTS[f"nccl/{name}"]["findings"], name


def test_a_row_that_was_torn_a_hundred_lines_apart_is_whole_again() -> None:
    log = only_log(LOGS / "nccl/x-ofi-tcp-subsys.txt")
    first = log.points[:2]
    assert [point.size for point in first] == [8, 8]
    sizes = sorted({point.size for point in log.points})
    assert sizes == [8 << power for power in range(24)]


def test_per_iteration_statistics_are_points_of_their_own() -> None:
    log = only_log(LOGS / "nccl/opt-I.txt")
    last = [point for point in log.points if point.size == 67108864]
    assert [(point.labels["placement"], point.labels.get("stat"), point.values[0]) for point in last] == [
        ("out-of-place", None, 328.40e-6),
        ("out-of-place", "min", 323.94e-6),
        ("out-of-place", "max", 338.98e-6),
        ("out-of-place", "p99", 338.98e-6),
        ("in-place", None, 328.12e-6),
        ("in-place", "min", 324.70e-6),
        ("in-place", "max", 335.62e-6),
        ("in-place", "p99", 335.62e-6),
    ]


def test_all_types_and_operations_of_one_size_are_told_apart() -> None:
    log = only_log(LOGS / "nccl/opt-dall.txt")
    kinds = {(point.labels["dtype"], point.labels["redop"]) for point in log.points}
    assert len(kinds) == 72
    assert ("f8e5m2", "mulsum") in kinds


@pytest.mark.parametrize(
    ("name", "fabric", "outcome"),
    [
        ("../runs/nccl-tcp.txt", "tcp", "ok"),
        ("../runs/nccl-tcp.txt", "efa", "off-fabric"),
        ("../runs/nccl-tcp.txt", "shm", "off-fabric"),
        ("../runs/nccl-p2p.txt", "p2p", "ok"),
        ("../runs/nccl-p2p.txt", "tcp", "off-fabric"),
        ("../runs/nccl-shm.txt", "shm", "ok"),
        ("../runs/nccl-shm.txt", "p2p", "off-fabric"),
        ("../runs/torch-p2p.txt", "p2p", "ok"),
        ("../runs/torch-tcp.txt", "tcp", "ok"),
        ("../runs/torch-tcp.txt", "efa", "off-fabric"),
        ("x-ofi-efa-missing.txt", "efa", "off-fabric"),
        ("x-ofi-efa-missing.txt", "tcp", "ok"),
        ("x-ofi-empty.txt", "efa", "off-fabric"),
        ("x-net-socket.txt", "tcp", "ok"),
        ("x-net-socket.txt", "ofi-tcp", "off-fabric"),
        ("x-net-socket.txt", "shm", "off-fabric"),
        ("x-ofi-tcp.txt", "tcp", "off-fabric"),
        ("x-ofi-tcp.txt", "efa", "off-fabric"),
        ("x-ofi-tcp.txt", "ofi-tcp", "ok"),
        ("x-ofi-tcp-subsys.txt", "ofi-tcp", "ok"),
        ("allreduce-2node-socket.txt", "tcp", "ok"),
        ("allreduce-2node-socket.txt", "efa", "off-fabric"),
        ("allreduce-1proc-g4.txt", "efa", "unproven"),
        ("allreduce-1proc-g4.txt", "p2p", "unproven"),
        ("allreduce-mpi-nvlink.txt", "p2p", "ok"),
        ("allreduce-mpi-nvlink.txt", "tcp", "off-fabric"),
        ("allreduce-mpi-nvlink.txt", "efa", "off-fabric"),
        ("all_reduce.json", "efa", "unproven"),
        ("fail-killed.txt", "efa", "failed"),
    ],
)
def test_a_log_counts_for_the_fabric_that_it_proves(name: str, fabric: str, outcome: str) -> None:
    log = only_log(LOGS / "nccl" / name, fabric)
    assert log.outcome == outcome, log.reason


@pytest.mark.parametrize("name", [name for name in KNOWN if name.endswith(".txt")])
def test_reading_line_by_line_gives_the_same_as_reading_the_file(name: str) -> None:
    text = (LOGS / name).read_text()
    whole = read(text)
    points, logs = read_live(text.split("\n"))
    assert logs == whole
    assert sorted(map(key, points)) == sorted(key(point) for log in whole for point in log.points)


def key(point: Point) -> tuple[object, ...]:
    return point.size, sorted(point.labels.items()), point.metrics, point.values
