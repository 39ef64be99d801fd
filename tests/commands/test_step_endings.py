"""A step that did not end well is not `ok`, whatever it printed.

Every benchmark, every way to end.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from fabbench.benchmarks import benchmarks
from fabbench.cli import cli
from fabbench.model.log import begin_marker, end_marker
from tests.support.command_line import runner
from tests.support.paths import DATA, EXAMPLES, LOGS
from tests.support.tiers import sampled

CORPUS = DATA / "corpus"
FILES = {
    "nccl": ("time", LOGS / "nccl/x-net-socket.txt"),
    "nvshmem": ("bandwidth", LOGS / "nvshmem/shmem_put_bw.txt"),
    "perftest": ("bandwidth", CORPUS / "perftest/a-command-line-that-a-terminal-broke.txt"),
    "pingpong": ("latency", EXAMPLES / "pair-logs/node0_node1.log"),
    "fabtests": ("time", CORPUS / "fabtests/an-odd-size-is-assumed-and-said-1.txt"),
    "osu": ("latency", CORPUS / "osu/a-title-names-the-program-10.txt"),
    "ucx_perftest": ("latency", CORPUS / "ucx_perftest/the-size-is-what-the-server-says.txt"),
    "ep": ("bandwidth", CORPUS / "ep/inside-a-node.txt"),
    "nixl": ("bandwidth", CORPUS / "nixl/the-times-of-phases.txt"),
    "imb": ("bandwidth", CORPUS / "imb/ping-pong.txt"),
    "kv_transfer": ("bandwidth", CORPUS / "kv_transfer/uccl-of-2025-without-times.txt"),
    "torch": ("busbw", CORPUS / "torch/a-report.txt"),
}
"""Benchmark → a metric, and a file with one whole log."""

ENDS: Mapping[str, tuple[str | None, str]] = {
    "0": ("0", "ok"),
    "1": ("1", "failed"),
    "3": ("3", "failed"),
    "timeout": ("124", "timeout"),
    "killed": ("137", "failed"),
    "signal": ("-9", "failed"),
    "not seen": ("?", "truncated"),
    "no end": (None, "truncated"),
}
"""How a step ended → its status in the marker, and the outcome."""
STEP = "000-tcp-r1/step"


def step(benchmark: str, status: str | None, name: str = STEP) -> list[str]:
    lines = [
        begin_marker(name, {"benchmark": benchmark}),
        *FILES[benchmark][1].read_text().splitlines(),
    ]
    ended = None if status in {None, "?"} else int(status or 0)
    return lines if status is None else [*lines, end_marker(name, ended)]


def test_every_benchmark_is_here() -> None:
    assert {*FILES} == {*benchmarks()}


@pytest.mark.parametrize(
    ("benchmark", "way"),
    [
        *(("nccl", way) for way in ENDS),
        *((benchmark, "3") for benchmark in FILES),
        *(
            pytest.param(benchmark, way, marks=pytest.mark.slow)
            for benchmark in FILES
            for way in ENDS
        ),
    ],
)
def test_the_end_of_a_step_counts_in_every_command(
    benchmark: str, way: str, tmp_path: Path
) -> None:
    status, outcome = ENDS[way]
    path = tmp_path / "step.log"
    path.write_text("\n".join(step(benchmark, status)) + "\n")
    parsed = runner().invoke(cli, ["parse", "--format", "json", str(path)])
    (log,) = json.loads(parsed.stdout)["logs"]
    assert (log["benchmark"], log["outcome"]) == (benchmark, outcome)
    assert (log["samples"] != [], log["reason"] is None) == (True, outcome == "ok")
    if outcome == "failed":
        assert log["reason"] == f"{benchmark} exited with status {status} in step step."
    assert parsed.exit_code == (0 if outcome == "ok" else 4)

    explained = runner().invoke(cli, ["explain", str(path)])
    assert outcome in explained.stdout.splitlines()[0]
    assert explained.exit_code == (0 if outcome == "ok" else 4)

    metric = FILES[benchmark][0]
    gate = f"{metric}<=1s" if metric in {"latency", "time"} else f"{metric}>=1B/s"
    compared = runner().invoke(
        cli, ["compare", str(path), str(path), "--metric", metric, "--gate", gate]
    )
    assert compared.exit_code == (0 if outcome == "ok" else 4)
    assert outcome == "ok" or outcome in compared.output


@pytest.mark.parametrize("benchmark", sampled([*FILES], every=4))
def test_the_end_of_one_execution_does_not_spoil_the_next(benchmark: str, tmp_path: Path) -> None:
    path = tmp_path / "steps.log"
    names = [f"{number:03}-tcp-r1/step" for number in range(3)]
    lines = [
        line
        for name, status in zip(names, ("0", "3", "0"), strict=True)
        for line in step(benchmark, status, name)
    ]
    path.write_text("\n".join(lines) + "\n")
    parsed = runner().invoke(cli, ["parse", "--format", "json", str(path)])
    assert [log["outcome"] for log in json.loads(parsed.stdout)["logs"]] == ["ok", "failed", "ok"]


def test_a_status_that_the_log_states_before_the_marker_does_not_hide_it(tmp_path: Path) -> None:
    path = tmp_path / "step.log"
    lines = step("nccl", "3")
    path.write_text("\n".join([*lines[:-1], "# exit status: 0", lines[-1]]) + "\n")
    parsed = runner().invoke(cli, ["parse", "--format", "json", str(path)])
    (log,) = json.loads(parsed.stdout)["logs"]
    assert (log["outcome"], log["reason"]) == ("failed", "nccl exited with status 3 in step step.")


def test_a_step_that_prints_nothing_is_a_log(tmp_path: Path) -> None:
    path = tmp_path / "steps.log"
    silent = [begin_marker("000-tcp-r1/a", {"benchmark": "nccl"}), end_marker("000-tcp-r1/a", 127)]
    path.write_text("\n".join([*silent, *step("nccl", "0", "000-tcp-r1/b")]) + "\n")
    logs = json.loads(runner().invoke(cli, ["parse", "--format", "json", str(path)]).stdout)["logs"]
    assert [(log["benchmark"], log["outcome"]) for log in logs] == [
        ("nccl", "failed"),
        ("nccl", "ok"),
    ]
