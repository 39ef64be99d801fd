"""What a run says of settings that were measured with something else."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from fabbench.benchmarks.nccl.plan import NcclWork
from fabbench.model.hosts import Host, Inventory
from fabbench.model.mappings import Variables
from fabbench.model.plan import Configuration, Plan, Variant
from fabbench.runs.store import RunWriter, StoredRun
from fabbench.runs.tuned_settings import elsewhere, measured_with
from tests.support.logs_by_hand import column, log
from tests.support.requests import request

HERE = "nodes=2,type=p5.48xlarge,GPU=NVIDIA H100 80GB HBM3,NCCL=2.27.5"
COLUMN = column("tcp", log([], facts={"nccl": "2.27.5"}))


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    """A run of two nodes."""
    tcp = Configuration(label="tcp", fabric="tcp")
    host = Host(name="a", instance_type="p5.48xlarge", gpu_model="NVIDIA H100 80GB HBM3", gpus=8)
    hosts = (host, replace(host, name="b"))
    plan = Plan(benchmark="nccl", target="local", configurations=(tcp,), executions=())
    asked = request("nccl", NcclWork(), "tcp", store=tmp_path / "store")
    return RunWriter(asked, Inventory(target="local", hosts=hosts), plan).run


def said(run: StoredRun, env: Variables, variant: Variant | None = None) -> list[str]:
    asked = request("nccl", NcclWork(), "tcp", env=env)
    return [*elsewhere(asked, run, [replace(COLUMN, variant=variant)])]


def written(file: Path, measured: str) -> str:
    """Write a file with the comment of a tune; gives its path."""
    file.write_text(
        f"# Written by fabbench tune\n# Measured with {measured}. Elsewhere, measure again.\nA=1\n"
    )
    return str(file)


def test_what_a_run_was_measured_with(run: StoredRun) -> None:
    assert measured_with(run, COLUMN) == HERE
    assert measured_with(run, column("tcp", log([], facts={}))) == HERE.rpartition(",")[0]


@pytest.mark.parametrize("name", ["NCCL_CONF_FILE", "NCCL_TUNER_CONFIG_FILE"])
@pytest.mark.parametrize(
    "other", ["nodes=4", "type=p5en.48xlarge", "GPU=NVIDIA H200", "NCCL=2.30.7"]
)
def test_a_file_is_used_elsewhere(run: StoredRun, tmp_path: Path, name: str, other: str) -> None:
    fact, _, value = other.partition("=")
    there = ",".join(other if part.startswith(fact) else part for part in HERE.split(","))
    file = written(tmp_path / "file", there)
    (sentence,) = said(run, {name: file})
    assert sentence.startswith(f"{file} was measured with {fact} {value}; here: {fact} ")
    assert said(run, {name: written(tmp_path / "file", HERE)}) == []
    assert said(run, {"OTHER": file}) == []


def test_what_the_run_does_not_know_is_not_compared(run: StoredRun, tmp_path: Path) -> None:
    file = written(tmp_path / "file", "nodes=2,NCCL=2.30.7,driver=580")
    asked = request("nccl", NcclWork(), "tcp", env={"NCCL_CONF_FILE": file})
    assert [*elsewhere(asked, run, [column("tcp", log([], facts={}))])] == []
    assert len([*elsewhere(asked, run, [COLUMN])]) == 1


def test_a_variant_is_used_elsewhere(run: StoredRun, tmp_path: Path) -> None:
    assert said(run, {}, Variant(name="tuned", measured=HERE)) == []
    (sentence,) = said(run, {}, Variant(name="tuned", measured="nodes=4"))
    assert sentence.startswith("tuned ")
    file = written(tmp_path / "file", "nodes=4")
    (sentence,) = said(run, {}, Variant(name="a", env={"NCCL_CONF_FILE": file}))
    assert sentence.startswith(file)


def test_files_of_others_say_nothing(run: StoredRun, tmp_path: Path) -> None:
    (tmp_path / "own.conf").write_text("# Measured with care.\nNCCL_ALGO=RING\n")
    (tmp_path / "bytes.conf").write_bytes(b"\xff\xfe# Measured with nodes=4. Elsewhere")
    os.mkfifo(tmp_path / "pipe")
    for name in ("own.conf", "bytes.conf", "pipe", "none", "", "\0"):
        assert said(run, {"NCCL_CONF_FILE": str(tmp_path / name)}) == []
