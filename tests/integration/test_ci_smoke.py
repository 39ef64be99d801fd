"""The smoke check of a test cluster: the script is run for real, the workflow is read."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NCCL
from tests.support.local_runs import environment, eventually, nothing_left
from tests.support.paths import ROOT

SMOKE = ROOT / "examples" / "ci-smoke"
QUICK = "pingpong --no-efa --size 64 --size 1K --iterations 10"

local = pytest.mark.local


def start(tmp_path: Path, **settings: str) -> "subprocess.Popen[str]":
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.Popen(
        [str(SMOKE / "smoke.sh")],
        cwd=tmp_path,
        env={**environment(tmp_path), "PATH": path, "FABBENCH_TARGET": "local", **settings},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def smoke(tmp_path: Path, **settings: str) -> tuple[int, str]:
    """Run the script; give its status and its summary."""
    with start(tmp_path, **settings) as run:
        out, err = run.communicate(timeout=120)
    summary = (tmp_path / settings.get("SMOKE_OUT", "smoke") / "summary.md").read_text("utf-8")
    assert out == summary, err
    return run.returncode, summary


@local
@pytest.mark.slow
def test_a_fabric_that_holds_its_gates_passes(tmp_path: Path) -> None:
    job = tmp_path / "job.md"
    job.write_text("Earlier step\n")
    status, summary = smoke(
        tmp_path,
        SMOKE_RUN=QUICK,
        SMOKE_GATES="latency@64<=10s latency@1K<=10s",
        GITHUB_STEP_SUMMARY=str(job),
    )
    assert status == 0
    assert summary.startswith("## Fabric smoke check passed\n")
    assert re.search(r"^\| 64 B +\| +[\d.]+ \|$", summary, re.MULTILINE)
    assert "`fabbench run pingpong --no-efa " in summary
    output = job.read_text()
    assert output == f"Earlier step\n{summary}"
    assert re.search(r"^\| latency@64<=10s +\| passed +\|", output, re.MULTILINE)
    gates = ET.parse(tmp_path / "smoke" / "junit.xml").findall(
        ".//testcase[@classname='fabbench.gate']"
    )
    assert [gate.get("name") for gate in gates] == ["latency@64<=10s", "latency@1K<=10s"]
    (run,) = (tmp_path / "smoke" / "runs").glob("*-pingpong-*")
    status, summary = smoke(
        tmp_path, SMOKE_RUN=QUICK, SMOKE_GATES="latency:900000%", SMOKE_BASELINE=str(run)
    )
    assert status == 0, summary


@pytest.mark.slow
@local
def test_a_breached_gate_fails(tmp_path: Path) -> None:
    status, summary = smoke(
        tmp_path, SMOKE_RUN=QUICK, SMOKE_GATES="latency@64<=1ns", SMOKE_OUT="elsewhere"
    )
    assert status == 1
    assert summary.startswith("## Fabric smoke check failed: measured")
    assert re.search(r"^\| latency@64<=1ns +\| failed", summary, re.MULTILINE)
    assert list((tmp_path / "elsewhere" / "runs").glob("*-pingpong-*"))


@local
@pytest.mark.slow
def test_what_the_fabric_did_not_carry_is_not_trusted(tmp_path: Path) -> None:
    status, summary = smoke(
        tmp_path, SMOKE_RUN=f"{QUICK} --device no-such-interface", SMOKE_GATES="latency@64<=10s"
    )
    assert status == 4
    assert summary.startswith("## Fabric smoke check failed: ")
    assert "off-fabric" in summary


@local
@pytest.mark.parametrize(
    ("settings", "status"),
    [
        pytest.param(
            {"SMOKE_RUN": QUICK, "SMOKE_GATES": "latency@64:5%"}, 2, marks=pytest.mark.slow
        ),
        ({"SMOKE_RUN": QUICK, "SMOKE_BASELINE": "no-such-run", "SMOKE_GATES": "latency@64:5%"}, 2),
        ({"SMOKE_RUN": "pingpong --efa"}, 3),
    ],
    ids=["gate without a base", "no such baseline", "no such fabric"],
)
def test_what_could_not_be_measured_says_so(
    tmp_path: Path, settings: dict[str, str], status: int
) -> None:
    found, summary = smoke(tmp_path, **settings)
    assert found == status
    assert summary.startswith("## Fabric smoke check not measured: ")


@local
@pytest.mark.slow
def test_it_ends_in_time(tmp_path: Path) -> None:
    status, summary = smoke(
        tmp_path, SMOKE_RUN="pingpong --no-efa --size 64M --iterations 100000", SMOKE_DEADLINE="4"
    )
    assert status == 124
    assert summary.startswith("## Fabric smoke check failed: not done after 4 s\n")


@local
@pytest.mark.slow
def test_a_cancelled_job_takes_its_programs_down(tmp_path: Path) -> None:
    with start(tmp_path, SMOKE_RUN="pingpong --no-efa --size 64M --iterations 100000") as run:
        runs = tmp_path / "smoke" / "runs"
        assert eventually(lambda: list(runs.glob("*/exec/*/*"))), "the run did not start"
        run.send_signal(signal.SIGTERM)
        out, err = run.communicate(timeout=60)
    assert run.returncode not in {0, 1}, err
    assert out.startswith("## Fabric smoke check interrupted")
    assert nothing_left(tmp_path)


# ---------------------------------------------------------------- the workflow


def workflow() -> dict[Any, Any]:
    loaded: dict[Any, Any] = yaml.safe_load((SMOKE / "workflow.yaml").read_text("utf-8"))
    return loaded


def steps() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = workflow()["jobs"]["smoke"]["steps"]
    return found


def test_what_the_workflow_may_and_when_it_starts() -> None:
    """By hand, by night and after changes, and never for strangers.

    Text from outside becomes no command.
    """
    used = [step["uses"] for step in steps() if "uses" in step]
    assert len(used) == 4
    assert all(re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|[0-9a-f]{40})", each) for each in used)
    assert workflow()["permissions"] == {"id-token": "write", "contents": "read"}
    assert "permissions" not in workflow()["jobs"]["smoke"]
    assert "secrets." not in (SMOKE / "workflow.yaml").read_text("utf-8")
    checkout = next(step for step in steps() if "checkout" in step.get("uses", ""))
    assert checkout["with"] == {"persist-credentials": False}
    # YAML 1.1 reads the key "on" as true.
    assert set(workflow()[True]) == {"workflow_dispatch", "schedule", "push"}
    assert all("${{" not in step.get("run", "") for step in steps())


def test_the_job_measures_keeps_the_run_and_ends() -> None:
    """Two checks never share nodes."""
    concurrency, job = workflow()["concurrency"], workflow()["jobs"]["smoke"]
    assert concurrency["cancel-in-progress"] is False
    assert concurrency["group"].endswith("${{ vars.EKS_CLUSTER }}")
    (measure,) = [step for step in steps() if "smoke.sh" in step.get("run", "")]
    assert ROOT.joinpath(measure["run"].removeprefix("exec ")) == SMOKE / "smoke.sh"
    assert int(job["env"]["SMOKE_DEADLINE"]) + 600 <= job["timeout-minutes"] * 60
    keep = steps()[-1]
    assert keep["if"] == "always()"
    assert keep["with"]["path"] == job["env"]["SMOKE_OUT"]
    script = (SMOKE / "smoke.sh").read_text("utf-8")
    known = set(re.findall(r"^# ((?:SMOKE|FABBENCH)_\w+)", script, re.MULTILINE))
    assert set(re.findall(r"\$\{((?:SMOKE|FABBENCH)_\w+)", script)) == known
    assert {name for name in job["env"] if name.startswith("SMOKE")} <= known


# ---------------------------------------------------------------- on a cluster


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize(("gate", "status"), [("latency@64<=10s", 0), ("latency@64<=1us", 1)])
def test_on_a_cluster(
    cluster: Cluster, namespace: str, tmp_path: Path, gate: str, status: int
) -> None:
    before = cluster.traces()
    place = f"--kubeconfig {cluster.kubeconfig} --namespace {namespace} --image {NCCL}"
    ended, summary = smoke(
        tmp_path, FABBENCH_TARGET="kubernetes", SMOKE_RUN=f"{QUICK} {place}", SMOKE_GATES=gate
    )
    assert ended == status, summary
    assert re.search(r"^\| 64 B +\| +[\d.]+ \|$", summary, re.MULTILINE)
    assert cluster.left_since(before, 30) == []
