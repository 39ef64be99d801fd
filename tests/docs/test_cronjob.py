"""examples/nccl_cronjob.yaml: the Job that render prints, every night, and what writes metrics."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabbench.cli import cli
from tests.support.command_line import runner
from tests.support.needed import need
from tests.support.paths import EXAMPLES, LOGS

pytestmark = pytest.mark.local
FILE = "/metrics/fabbench-rendered.prom"
END = "trap '{ kill $(jobs -p); wait; } 2>/dev/null; complete"
TEXT = (EXAMPLES / "nccl_cronjob.yaml").read_text("utf-8")


def documents(text: str) -> tuple[dict[str, Any], dict[str, Any]]:
    service, owner = yaml.safe_load_all(text)
    job = owner["spec"]["jobTemplate"]["spec"] if owner["kind"] == "CronJob" else owner["spec"]
    return service, job


def scripts() -> list[str]:
    _, job = documents(TEXT)
    return [each["args"][0] for each in job["template"]["spec"]["containers"]]


def test_it_runs_what_render_prints() -> None:
    """Its Jobs have names of their own.

    Pods find each other by a label, and by the name of their Job.
    """
    words = "render nccl --efa --as kubernetes --instance-type p5.48xlarge"
    assert f"# The Job of fabbench {words} " in TEXT
    service, job = documents(TEXT)
    _, rendered = documents(runner().invoke(cli, words.split()).stdout)
    assert {**job, "template": None} == {**rendered, "template": None}
    pods, container = job["template"], job["template"]["spec"]["containers"][0]
    theirs = rendered["template"]["spec"]
    assert service["spec"]["selector"] == pods["metadata"]["labels"] == {"fabbench/run": "rendered"}
    (apart,) = pods["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert apart["labelSelector"]["matchLabels"] == pods["metadata"]["labels"]
    for name in ("image", "resources", "securityContext", "command"):
        assert container[name] == theirs["containers"][0][name]
    ours, printed = (
        container["args"][0].splitlines(),
        theirs["containers"][0]["args"][0].splitlines(),
    )
    assert [line for line in ours if line not in printed] == [
        'mapfile -t hosts < <(seq -f "$JOB_NAME-%g.fabbench-rendered" 0 $((nodes - 1)))',
        (
            f'[ "$JOB_COMPLETION_INDEX" = 0 ] || rm -f {FILE} # from a run in which this node was '
            "first"
        ),
        "exec > >(tee /results/log) 2>&1 && tee=$! # for the container that writes metrics",
        f"""{END}; exec >&- 2>&-; wait "$tee"; touch /results/done' EXIT""",
    ]
    assert [line for line in printed if line not in ours] == [
        "mapfile -t hosts < <(seq -f 'fabbench-rendered-%g.fabbench-rendered' 0 $((nodes - 1)))",
        f"{END}' EXIT",
    ]


def test_shellcheck_reads_both_scripts() -> None:
    need("shellcheck")
    known = "# shellcheck disable=SC2016,SC2034,SC2043,SC2046,SC2054,SC2154,SC2317,SC2329\n"
    for shell, script in zip(("bash", "sh"), scripts(), strict=True):
        text = f"#!/bin/{shell}\n{known}{script.replace('$$', '$')}"
        done = subprocess.run(
            ["shellcheck", "-"], input=text, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.parametrize(
    ("log", "gate", "status", "text"),
    [
        ("nccl/x-net-socket.txt", "time>=0us", 0, "fabbench_exit_status 0.0\n"),
        ("nccl/x-net-socket.txt", "time<=0us", 1, "fabbench_exit_status 1.0\n"),
        (None, "time>=0us", 3, "fabbench_exit_status 3\n"),
    ],
)
def test_the_job_fails_with_its_gate_and_the_file_is_whole(
    tmp_path: Path, log: str | None, gate: str, status: int, text: str
) -> None:
    """The container's script, with fabbench itself, and the log of nccl-tests."""
    for folder in ("results", "metrics"):
        (tmp_path / folder).mkdir()
    if log:
        shutil.copy(LOGS / log, tmp_path / "results/log")
    (tmp_path / "results/done").touch()
    _, script = scripts()
    for place in ("/results", "/metrics"):
        script = script.replace(place, f"{tmp_path}{place}")
    assert "'busbw@1G>=80GB/s'" in script
    script = script.replace("busbw@1G>=80GB/s", gate)
    for index in ("1", "0"):  # the second pod writes nothing
        assert list((tmp_path / "metrics").iterdir()) == []
        env = {
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "JOB_COMPLETION_INDEX": index,
        }
        done = subprocess.run(
            ["sh", "-c", script], env=env, capture_output=True, text=True, check=False
        )
        assert done.returncode == (status if index == "0" else 0), done.stderr
    (file,) = (tmp_path / "metrics").iterdir()
    assert file.name == "fabbench-rendered.prom"
    assert text in file.read_text()
