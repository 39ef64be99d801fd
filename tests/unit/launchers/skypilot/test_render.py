"""Tasks for SkyPilot: they mean what SkyPilot's own example means, where that is right."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import Result

from fabbench.cli import cli
from tests.support.command_line import runner
from tests.support.golden import GOLDEN, assert_golden
from tests.support.kubernetes_schema import schema_problems
from tests.support.needed import need

EFA = "vpc.amazonaws.com/efa"
TYPES = {
    "p4d.24xlarge": ("A100", 4),
    "p4de.24xlarge": ("A100-80GB", 4),
    "p5.48xlarge": ("H100", 32),
    "ml.p5en.48xlarge": ("H200", 16),
    "p6-b200.48xlarge": ("B200", 8),
    "g6e.48xlarge": ("L40S", 4),
    "g7e.48xlarge": ("RTXPRO6000", 4),
}


def rendered(*words: str, benchmark: str = "nccl") -> Result:
    argv = ["render", benchmark, *words, "--as", "skypilot"]
    return runner().invoke(cli, argv)


def task(*words: str, benchmark: str = "nccl") -> dict[str, Any]:
    done = rendered(*words, benchmark=benchmark)
    assert (done.exit_code, done.stderr) == (0, "")
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def executions(found: dict[str, Any]) -> list[str]:
    (names,) = re.findall(r"^for execution in (.+); do$", found["run"], re.MULTILINE)
    return str(names).split()


def of_configuration(found: dict[str, Any], configuration: str) -> str:
    """The text that only a configuration has, and what all have."""
    match = re.search(rf"^ +{configuration}\)(.*?);;$", found["run"], re.MULTILINE | re.DOTALL)
    assert match
    text = str(found["run"])
    return str(match[1]) + text.partition("    case $label in\n")[0] + text.rpartition("esac\n")[2]


TASKS = [
    *((name, "k8s") for name in TYPES),
    *(("p5.48xlarge", infra) for infra in ("k8s/prod", "aws/us-east-1", "slurm/hpc")),
    ("ml.p5en.48xlarge", "aws"),
]


def test_nodes_are_as_the_catalogue_has_them() -> None:
    """All of a task but what it runs. SkyPilot itself takes such tasks: tests/skypilot."""
    made = {}
    for instance_type, infra in TASKS:
        found = task("--ab", "--instance-type", instance_type, "--infra", infra)
        assert found.pop("run")
        made[f"{instance_type} {infra}"] = found
        if infra.startswith("k8s"):
            assert list(schema_problems(found["config"]["kubernetes"]["pod_config"], "V1Pod")) == []
            limits = found["config"]["kubernetes"]["pod_config"]["spec"]["containers"][0][
                "resources"
            ]["limits"]
            gpu, efa = TYPES[instance_type]
            assert found["resources"]["accelerators"] == f"{gpu}:8"
            pages = {} if instance_type.startswith("g") else {"hugepages-2Mi": "5120Mi"}
            assert limits == {EFA: efa, **pages}
    assert_golden(GOLDEN / "skypilot-tasks.json", json.dumps(made, indent=1) + "\n")


@pytest.mark.parametrize("infra", ["k8s", "aws", "slurm/hpc"])
def test_a_task_has_as_many_gpus_as_are_asked_for(infra: str) -> None:
    words = ("--fabric", "tcp", "--instance-type", "h100-ib", "--infra", infra)
    assert task(*words)["resources"]["accelerators"] == "H100:8"
    four = task(*words, "--gpus", "4")
    assert four["resources"]["accelerators"] == "H100:4"
    assert ("--gpus-per-node=4" in four["run"]) == (infra == "slurm/hpc")


def test_pods_have_as_many_gpus_as_they_request() -> None:
    found = task(
        "--fabric", "tcp", "--instance-type", "h100-ib", "--pod-request", "nvidia.com/gpu=4"
    )
    assert found["resources"]["accelerators"] == "H100:4"
    assert "ranks=$((4 * " in found["run"]


@pytest.mark.parametrize(
    ("infra", "system", "machine"),
    [
        ("azure/eastus", "Standard_ND96amsr_A100_v4", "instance_type"),
        ("azure", "h100-ib", "H100:8"),
        ("gcp/us-central1", "a3-highgpu-8g", "H100:8"),
        ("gcp", "a3-megagpu-8g", "H100-MEGA:8"),
        ("gcp", "a4-highgpu-8g", "B200:8"),
        ("nebius/eu-north1", "gpu-h200-sxm", "H200:8"),
        ("lambda", "8xH100", "H100:8"),
        ("aws", "Standard_ND96isr_H100_v5", "H100:8"),
    ],
)
def test_machines_of_other_clouds(infra: str, system: str, machine: str) -> None:
    """By their type where SkyPilot calls it as the catalog does, else by their GPUs."""
    found = task("--fabric", "tcp", "--instance-type", system, "--infra", infra)
    expected = {"infra": infra, "accelerators": machine}
    if machine == "instance_type":
        expected = {"infra": infra, "instance_type": system}
    assert found["resources"] == expected
    assert ("/usr/local/cuda/efa" in found["run"]) == (infra == "aws")
    assert "config" not in found


def test_a_pool_of_ssh_nodes_has_pods() -> None:
    words = ("--instance-type", "h100-ib", "--infra", "ssh/pool")
    found = task("--fabric", "tcp", *words, "--toleration", "team")
    assert found["resources"]["accelerators"] == "H100:8"
    assert found["resources"]["image_id"]
    (pods,) = found["config"].items()
    assert pods[0] == "ssh"
    assert pods[1]["pod_config"]["spec"]["tolerations"][-1]["key"] == "team"
    plain = task("--fabric", "tcp", "--instance-type", "h100-ib", "--toleration", "team")
    assert plain["config"] == {"kubernetes": pods[1]}


@pytest.mark.parametrize(
    ("infra", "system", "fabric", "tier"),
    [
        ("nebius", "gpu-h100-sxm", "ib", "best"),
        ("azure", "Standard_ND96isr_H100_v5", "ib", None),
        ("lambda", "h100-ib", "ib", None),
        ("ssh/pool", "h100-ib", "ib", None),
    ],
)
def test_a_fabric_that_skypilot_does_not_give_is_refused(
    infra: str, system: str, fabric: str, tier: str | None
) -> None:
    done = rendered("--fabric", fabric, "--instance-type", system, "--infra", infra)
    if tier is None:
        assert (done.exit_code, done.stdout) == (2, "")
        assert f"{fabric} needs a way into SkyPilot's" in done.stderr
        return
    assert yaml.safe_load(done.stdout)["resources"]["network_tier"] == tier


def test_machines_without_a_type_of_ec2_or_gpus_are_refused() -> None:
    words = ("--fabric", "tcp", "--instance-type", "tcp-100", "--infra")
    done = rendered(*words, "aws", benchmark="pingpong")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--instance-type p5.48xlarge" in done.stderr
    pods = task(*words, "k8s", benchmark="pingpong")["resources"]
    assert "accelerators" not in pods


def test_a_task_has_the_configurations_of_its_plan() -> None:
    one = task("--efa", "--instance-type", "p5.48xlarge")
    both = task("--ab", "--instance-type", "p5.48xlarge")
    assert ("envs" in one, both["envs"]) == (False, {"FABRIC": "all"})
    assert {name.split("-")[1] for name in executions(one)} == {"efa"}
    assert {name.split("-")[1] for name in executions(both)} == {"efa", "tcp"}


@pytest.mark.parametrize("checker", ["bash", pytest.param("shellcheck", marks=pytest.mark.slow)])
def test_the_run_text_is_clean_shell(checker: str, tmp_path: Path) -> None:
    need(checker)
    files = []
    for infra in ("k8s", "aws", "slurm"):
        text = task("--ab", "--instance-type", "p5.48xlarge", "--infra", infra)["run"]
        files.append(tmp_path / infra)
        files[-1].write_text(
            f"# shellcheck disable=SC2016,SC2034,SC2043,SC2046,SC2054,SC2154,SC2317,SC2329\n{text}"
        )
    calls: list[list[str | Path]] = [["bash", "-n", file] for file in files]
    if checker == "shellcheck":
        calls = [["shellcheck", "-s", "bash", *files]]
    for argv in calls:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_other_nodes_do_nothing() -> None:
    text = task("--efa", "--instance-type", "p5.48xlarge")["run"]
    done = subprocess.run(
        ["bash", "-i"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={"SKYPILOT_NODE_RANK": "1", "PATH": "/usr/bin:/bin"},
        start_new_session=True,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_pods_have_what_users_request_and_add() -> None:
    words = (
        "--pod-request",
        f"{EFA}=1",
        "--pod-request",
        "hugepages-2Mi=5120Mi",
        "--pod-request",
        "cpu=90",
    )
    more = (
        "--toleration team --pod-label queue=q --set pull-secrets=regcred --set network-tier=best"
    )
    found = task("--ab", "--instance-type", "p5.48xlarge", *words, *more.split())
    assert (found["resources"]["cpus"], found["resources"]["network_tier"]) == ("90+", "best")
    # With that tier, SkyPilot sets FI_PROVIDER=efa for the whole container.
    assert "-u FI_PROVIDER " in of_configuration(found, "tcp")
    pod = found["config"]["kubernetes"]["pod_config"]
    amounts = {EFA: 1, "hugepages-2Mi": "5120Mi"}
    assert pod["spec"]["containers"][0]["resources"] == {"limits": amounts, "requests": amounts}
    assert pod["metadata"] == {"labels": {"queue": "q"}}
    assert pod["spec"]["tolerations"][-1] == {"key": "team", "operator": "Exists"}
    assert pod["spec"]["imagePullSecrets"] == [{"name": "regcred"}]


def test_containers_on_machines_have_a_port_of_their_own() -> None:
    found = task(
        "--ab", "--instance-type", "p4d.24xlarge", "--infra", "aws", "--image", "docker:a/b:c"
    )
    assert found["resources"]["image_id"] == "docker:a/b:c"
    assert found["run"].count("-p 10022") >= 2
    plain = task("--ab", "--instance-type", "p4d.24xlarge", "--infra", "aws")["run"]
    assert "-p 10022" not in plain
    assert "stdbuf -oL all_reduce_perf" in " ".join(plain.replace("\\\n", " ").split())
    assert "/usr/local/cuda/efa/test-cuda-*" in plain


def test_slurm_starts_ranks_with_srun() -> None:
    text = task("--ab", "--instance-type", "p5.48xlarge", "--infra", "slurm")["run"]
    assert "srun --overlap --gpus-per-node=8 --mpi=pmix" in " ".join(
        text.replace("\\\n", " ").split()
    )
    assert "mpirun=" not in text


def test_without_an_instance_type_there_is_tcp() -> None:
    found = task("--fabric", "tcp", "--infra", "slurm", "--bin-dir", "/opt/x", benchmark="pingpong")
    assert found["resources"] == {"infra": "slurm", "cpus": "1+"}
    assert "/opt/x/fi_pingpong" in found["run"]
