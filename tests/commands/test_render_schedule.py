"""`fabbench render --as kubernetes --schedule`: a CronJob, and a container that writes metrics."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from fabbench.cli import cli
from tests.support.command_line import runner
from tests.support.needed import need
from tests.support.paths import LOGS

NIGHTLY = ("--schedule", "0 3 * * *")
METRICS = (*NIGHTLY, "--metrics-image", "registry.example/fabbench:1")


def render(*more: str) -> Result:
    words = ("nccl", "--efa", "--as", "kubernetes", "--instance-type", "p5.48xlarge")
    return runner().invoke(cli, ["render", *words, *more])


def documents(*more: str) -> tuple[dict[str, Any], dict[str, Any]]:
    done = render(*more)
    assert done.exit_code == 0, done.stderr
    service, owner = yaml.safe_load_all(done.stdout)
    return service, owner


def pods(owner: dict[str, Any]) -> dict[str, Any]:
    job = owner["spec"]["jobTemplate"]["spec"] if owner["kind"] == "CronJob" else owner["spec"]
    found: dict[str, Any] = job["template"]
    return found


def test_a_cron_job_starts_what_is_else_one_job() -> None:
    """Its Jobs have names of their own: pods find each other by a label, and by the name of their Job."""
    service, cron_job = documents(*NIGHTLY)
    _, job = documents()
    spec = cron_job["spec"]
    assert (cron_job["kind"], spec["schedule"], spec["concurrencyPolicy"]) == (
        "CronJob",
        "0 3 * * *",
        "Forbid",
    )
    found, alone = spec["jobTemplate"]["spec"], job["spec"]
    assert {**found, "template": None} == {**alone, "template": None}
    label = {"fabbench/run": "rendered"}
    assert service["spec"]["selector"] == pods(cron_job)["metadata"]["labels"] == label
    affinity = pods(cron_job)["spec"]["affinity"]["podAntiAffinity"]
    (apart,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    assert apart["labelSelector"]["matchLabels"] == label
    (container,) = pods(cron_job)["spec"]["containers"]
    (once,) = pods(job)["spec"]["containers"]
    (name,) = container["env"]
    assert name["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.labels['batch.kubernetes.io/job-name']"
    names = "fabbench-rendered-0.fabbench-rendered fabbench-rendered-1.fabbench-rendered"
    assert (
        once["args"][0].replace(names, '"$JOB_NAME"-0.fabbench-rendered "$JOB_NAME"-1.fabbench-rendered')
        == (container["args"][0])
    )


def test_labels_of_the_user_stay() -> None:
    _, cron_job = documents(*NIGHTLY, "--label", "team=a", "--annotation", "note=b", "--run-id", "night")
    metadata = pods(cron_job)["metadata"]
    assert metadata == {"labels": {"team": "a", "fabbench/run": "night"}, "annotations": {"note": "b"}}
    assert cron_job["metadata"]["name"] == "fabbench-night"


def test_a_second_container_writes_metrics_on_the_node() -> None:
    _, cron_job = documents(*METRICS)
    spec = pods(cron_job)["spec"]
    measuring, metrics = spec["containers"]
    assert metrics["image"] == "registry.example/fabbench:1"
    assert "securityContext" not in metrics
    for container in (measuring, metrics):
        places = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
        assert (places["results"], places["metrics"]) == ("/results", "/metrics")
    volumes = {each["name"]: each for each in spec["volumes"]}
    assert volumes["metrics"]["hostPath"]["path"] == "/var/lib/node_exporter/textfile_collector"
    _, elsewhere = documents(*METRICS, "--metrics-dir", "/srv/metrics")
    volumes = {each["name"]: each for each in pods(elsewhere)["spec"]["volumes"]}
    assert volumes["metrics"]["hostPath"]["path"] == "/srv/metrics"


GATES = ("--gate", "busbw@1G>=80 GB/s", "--gate", "ratio@1G>=10", "--no-efa", "--strict")


def test_gates_are_evaluated_beside_the_metrics() -> None:
    _, cron_job = documents(*METRICS, *GATES)
    script = pods(cron_job)["spec"]["containers"][1]["args"][0]
    words = (
        "--format openmetrics --gate 'busbw@1G>=80 GB/s' --gate 'ratio@1G>=10' --strict >.fabbench-rendered"
    )
    assert words in script
    assert "@" not in script.replace("@1G", "")


@pytest.mark.local
def test_the_job_fails_where_a_gate_fails(tmp_path: Path) -> None:
    """The container's script, with fabbench itself, and the log of nccl-tests."""
    (tmp_path / "results").mkdir()
    (tmp_path / "metrics").mkdir()
    shutil.copy(LOGS / "nccl/x-net-socket.txt", tmp_path / "results/log")
    (tmp_path / "results/done").touch()
    env = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "JOB_COMPLETION_INDEX": "0"}
    for gate, status in (("time>=0us", 0), ("time<=0us", 1)):
        _, cron_job = documents(*METRICS, "--gate", gate)
        script = pods(cron_job)["spec"]["containers"][1]["args"][0]
        for place in ("/results", "/metrics"):
            script = script.replace(place, f"{tmp_path}{place}")
        done = subprocess.run(["sh", "-c", script], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == status, done.stderr
        text = (tmp_path / "metrics/fabbench-rendered.prom").read_text()
        assert "fabbench_gate" in text
        assert f"fabbench_exit_status {status}.0\n" in text


@pytest.mark.local
def test_shellcheck_reads_both_scripts() -> None:
    need("shellcheck")
    _, cron_job = documents(*METRICS, *GATES)
    known = "# shellcheck disable=SC2016,SC2043,SC2054,SC2317,SC2329\n"
    for shell, container in zip(("bash", "sh"), pods(cron_job)["spec"]["containers"], strict=True):
        script = f"#!/bin/{shell}\n{known}{container['args'][0].replace('$$', '$')}"
        done = subprocess.run(["shellcheck", "-"], input=script, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.local
@pytest.mark.parametrize(("printed", "status"), [("rows", 0), ("", 1)])
def test_a_file_is_written_whole_also_where_nothing_was_measured(
    tmp_path: Path, printed: str, status: int
) -> None:
    """The container's script, with a `fabbench` that prints this and ends like that."""
    (tmp_path / "results").mkdir()
    (tmp_path / "results/done").touch()
    (tmp_path / "metrics").mkdir()
    program = tmp_path / "fabbench"
    program.write_text(f"#!/bin/sh\nprintf %s '{printed}'\nexit {status}\n")
    program.chmod(0o755)
    _, cron_job = documents(*METRICS)
    script = pods(cron_job)["spec"]["containers"][1]["args"][0]
    for place in ("/results", "/metrics"):
        script = script.replace(place, f"{tmp_path}{place}")
    for index in ("1", "0"):  # the second pod writes nothing
        assert list((tmp_path / "metrics").iterdir()) == []
        env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "JOB_COMPLETION_INDEX": index}
        done = subprocess.run(["sh", "-c", script], env=env, check=False)
        assert done.returncode == (status if index == "0" else 0)
    (file,) = (tmp_path / "metrics").iterdir()
    assert (file.name, file.read_text()) == (
        "fabbench-rendered.prom",
        printed or f"fabbench_exit_status {status}\n",
    )


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (("--schedule", "at night"), "cron"),
        (("--schedule", "0 3 * *"), "cron"),
        (("--metrics-image", "a:1"), "--metrics-image has no effect without --schedule"),
        ((*NIGHTLY, "--metrics-dir", "/a"), "--metrics-dir has no effect without --metrics-image"),
        ((*METRICS, "--metrics-dir", "a"), "an absolute path"),
        ((*NIGHTLY, "--gate", "busbw>=1B/s"), "--gate has no effect in a document without fabbench"),
        ((*METRICS, "--supervised", "--gate", "busbw>=1B/s"), "--gate has no effect"),
        ((*METRICS, "--gate", "busbw>>1"), "Invalid gate"),
        ((*METRICS, "--strict"), "--strict has no effect without --gate"),
        ((*METRICS, "--gate", "busbw:5%"), "needs a baseline, and there is nothing"),
        ((*METRICS, "--gate", "latency@64<=20us"), "nccl (all_reduce) measures busbw, algbw"),
        ((*METRICS, "--gate", "busbw@3M>=1GB/s"), "measures 29 sizes from 8 B to 2 GB"),
        ((*NIGHTLY, "--supervised"), "--schedule has no effect on pods that wait for programs"),
    ],
)
def test_what_has_no_effect_is_refused(more: tuple[str, ...], expected: str) -> None:
    done = render(*more)
    assert (done.exit_code, done.stdout) == (2, "")
    assert expected in done.stderr
