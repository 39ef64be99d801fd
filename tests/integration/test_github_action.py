"""action.yml and the workflow that uses it, run as GitHub's runner does.

Actionlint reads all workflows.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
import yaml

from tests.support.github_runner import Job
from tests.support.nccl_text import nccl_text
from tests.support.needed import need, refuse, strict
from tests.support.paths import EXAMPLES, ROOT

GATE = EXAMPLES / "ci-gate/workflow.yaml"
PUBLISHED = sorted((ROOT / ".github/workflows").glob("*.yml"))
WORKFLOWS = (GATE, EXAMPLES / "ci-smoke/workflow.yaml", *PUBLISHED)
FABBENCH = str(Path(sys.executable).parent / "fabbench")
NEW, BASELINE = (str(EXAMPLES / "logs" / name) for name in ("x-ofi-tcp.txt", "x-net-socket.txt"))

local = pytest.mark.local


def loaded(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))
    return found


def gate(tmp_path: Path, **inputs: str) -> tuple[Job, dict[str, str]]:
    """Run one step that uses the action; return the job, and the outputs of the step."""
    folder = tmp_path / "workspace"
    folder.mkdir()
    job = Job(folder, {}, {}, {"./fabbench": ROOT})
    job.run([{"id": "gate", "uses": "./fabbench", "with": {"fabbench": FABBENCH, **inputs}}])
    return job, job.contexts["steps"]["gate"]["outputs"]


@local
def test_a_gate_that_holds_passes_the_build(tmp_path: Path) -> None:
    job, outputs = gate(
        tmp_path,
        compare=f"{NEW}\n{BASELINE}\n",
        labels=" new one \nold\n",
        gates="busbw@64M>=4GB/s\n\n",
    )
    assert not job.failed, job.log
    assert outputs["status"] == "0"
    comment = (job.folder / outputs["comment"]).read_text("utf-8")
    assert comment.startswith("### fabbench: all_reduce")
    assert "new one" in comment
    assert comment.strip() == job.summary.strip()
    assert ET.parse(job.folder / outputs["junit"]).getroot().attrib["failures"] == "0"
    assert "::error" not in job.log


@local
def test_a_gate_that_fails_fails_it_with_an_annotation(tmp_path: Path) -> None:
    job, outputs = gate(
        tmp_path, compare=f"{NEW}\n{BASELINE}", gates="busbw@64M:5%\nbusbw@64M<=4GB/s"
    )
    assert job.failed
    assert outputs["status"] == "1"
    assert "::error title=Gate failed::busbw@64M<=4GB/s: " in job.log
    assert "| busbw@64M:5% " in job.summary
    assert "measured once" in job.summary
    assert ET.parse(job.folder / outputs["junit"]).getroot().attrib["failures"] == "1"


@local
@pytest.mark.slow
@pytest.mark.parametrize(
    ("inputs", "status"),
    [
        ({"compare": "no-such.log"}, "3"),
        ({"compare": f"{NEW}\n{BASELINE}", "options": "--no-such-option"}, "2"),
        ({"compare": "--help"}, "2"),  # an input is none of its options
        ({"compare": "$(touch injected)`touch injected`; touch injected"}, "2"),
        (
            {"compare": f"{NEW}\n{BASELINE}", "labels": "$(touch injected)\n'; touch injected; '"},
            "0",
        ),
    ],
)
def test_inputs_are_words_and_no_commands(
    tmp_path: Path, inputs: dict[str, str], status: str
) -> None:
    job, outputs = gate(tmp_path, **inputs)
    assert outputs["status"] == status, job.log
    assert not (job.folder / "injected").exists()
    assert job.failed == (status != "0")


@local
def test_the_workflow_comments_and_keeps_the_results_of_a_failed_gate(tmp_path: Path) -> None:
    """As in examples/, but for the measurement, and with a `gh` that writes down its words."""
    folder, programs, logs = tmp_path / "workspace", tmp_path / "bin", tmp_path / "logs"
    for number in (1, 2, 3):
        for into, busbw in ((folder / "baseline", 4.7), (logs, 4.3)):
            into.mkdir(parents=True, exist_ok=True)
            (into / f"{number}.log").write_text(
                nccl_text([(64 << 20, busbw + number / 100)], ranks=2, hosts=1)
            )
    programs.mkdir()
    program(folder / "measure", f'cat "{logs}/$(ls new | wc -l).log"')
    program(programs / "gh", 'printf "%s\\n" "$@" >calls; cp "${@: -1}" posted.md')
    path = f"{programs}:{os.environ['PATH']}"
    github = {"token": "t", "event": {"pull_request": {"number": 7}}}
    steps = loaded(GATE)["jobs"]["gate"]["steps"]
    (used,) = (step for step in steps if step.get("id") == "gate")
    used["with"]["fabbench"] = FABBENCH
    job = Job(folder, {"PATH": path}, {"github": github}, {used["uses"]: ROOT})
    job.run(steps)
    assert job.failed
    assert "::error title=Gate failed::busbw@64M:5%: " in job.log
    calls = (folder / "calls").read_text().splitlines()
    assert calls[:3] == ["pr", "comment", "7"]
    assert (
        (folder / "posted.md")
        .read_text("utf-8")
        .startswith("### fabbench: all_reduce, 2 GPUs: this change ")
    )
    assert [each.partition("@")[0] for each in job.left_out] == [
        *("actions/checkout", "actions/setup-python", "actions/upload-artifact")
    ]
    assert (folder / steps[-1]["with"]["path"] / "junit.xml").exists()


def program(path: Path, line: str) -> None:
    path.write_text(f"#!/usr/bin/env bash\n{line}\n")
    path.chmod(0o755)


def test_no_text_from_outside_is_put_into_a_script_and_the_workflow_may_little() -> None:
    steps = [*loaded(ROOT / "action.yml")["runs"]["steps"], *loaded(GATE)["jobs"]["gate"]["steps"]]
    assert all("${{" not in step.get("run", "") for step in steps)
    assert loaded(GATE)["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert "secrets." not in GATE.read_text("utf-8")


@local
def test_shellcheck_reads_the_steps(tmp_path: Path) -> None:
    need("shellcheck")
    for number, step in enumerate(loaded(ROOT / "action.yml")["runs"]["steps"]):
        script = tmp_path / f"{number}.sh"
        script.write_text(f"#!/bin/bash -e\n{step['run']}")
        done = subprocess.run(
            ["shellcheck", str(script)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


@pytest.mark.cluster  # for what setup/cluster compiles: it needs no cluster
def test_actionlint_finds_nothing(tmp_path: Path) -> None:
    """The action is a local one there, so that its inputs and outputs are checked."""
    program = ROOT / ".cluster/actionlint/actionlint"
    if not program.exists():
        refuse("no actionlint: run setup/cluster", fail=strict("FABBENCH_REQUIRE_CLUSTER"))
    (tmp_path / ".git").mkdir()
    workflows = tmp_path / ".github/workflows"
    workflows.mkdir(parents=True)
    shutil.copy(ROOT / "action.yml", tmp_path)
    for path in WORKFLOWS:
        text = re.sub(r"[\w-]+/fabbench@REF", "./", path.read_text("utf-8"))
        (workflows / f"{path.parent.name}-{path.name}").write_text(text, "utf-8")
    done = subprocess.run(
        [str(program), "-no-color"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
