"""SkyPilot's own loader: it takes what is rendered, and drops nothing of it."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabbench.benchmarks import runnable_names
from fabbench.cli import cli
from tests.support.command_line import runner
from tests.support.paths import ROOT
from tests.support.render_matrix import BENCHMARKS, IMAGE, SYSTEMS, rendered
from tests.support.skypilot_fixtures import python

pytestmark = pytest.mark.sky
EFA = "vpc.amazonaws.com/efa"
TYPES = {
    "p4d.24xlarge": ("A100", 4),
    "p5.48xlarge": ("H100", 32),
    "p5en.48xlarge": ("H200", 16),
    "p6-b200.48xlarge": ("B200", 8),
    "g6e.48xlarge": ("L40S", 4),
}


def loaded(folder: Path, texts: dict[str, str]) -> Any:
    files = {}
    for name, text in texts.items():
        files[name] = folder / f"{name.replace(' ', '-').replace('/', '-')}.yaml"
        files[name].write_text(text)
    env = {**os.environ, "HOME": str(folder), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    # -P: tests/support has a directory kubernetes, which is not the package.
    argv: list[str | Path] = [
        python(),
        "-P",
        ROOT / "tests/support/skypilot_load.py",
        *files.values(),
    ]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    return found["keys"], {name: found["tasks"][str(file)] for name, file in files.items()}


def test_it_takes_every_rendered_task(tmp_path: Path) -> None:
    texts = {}
    for instance_type in TYPES:
        for infra in ("k8s", "aws/us-east-1", "slurm/hpc"):
            words = ["render", "nccl", "--ab", "--as", "skypilot", "--instance-type", instance_type]
            done = runner().invoke(cli, [*words, "--infra", infra])
            assert done.exit_code == 0, done.stderr
            texts[f"{instance_type} {infra}"] = done.stdout
    keys, tasks = loaded(tmp_path, texts)
    for name, task in tasks.items():
        instance_type, infra = name.split()
        gpu, efa = TYPES[instance_type]
        assert "error" not in task, (name, task)
        assert (task["nodes"], task["envs"]) == (2, {"FABRIC": "all"})
        assert task["infra"] == infra.replace("k8s", "kubernetes")
        # What SkyPilot does not know under `config` it drops without a word.
        assert all([cloud, key] in keys for cloud, own in task["config"].items() for key in own), (
            name,
            keys,
        )
        assert task["run"] == yaml.safe_load(texts[name])["run"]
        if infra.startswith("aws"):
            assert (task["instance_type"], task["network_tier"]) == (instance_type, "best")
        else:
            assert task["accelerators"] == {gpu: 8}
        if infra == "k8s":
            (container,) = task["config"]["kubernetes"]["pod_config"]["spec"]["containers"]
            devices: dict[str, object] = {EFA: efa}
            if instance_type != "g6e.48xlarge":
                devices["hugepages-2Mi"] = "5120Mi"
            assert container["resources"]["limits"] == container["resources"]["requests"] == devices
            assert task["image_id"]


def test_it_takes_every_benchmark(tmp_path: Path) -> None:
    texts = {}
    for system in SYSTEMS:
        for benchmark in sorted(runnable_names()):
            words = (benchmark, "--instance-type", system, *BENCHMARKS.get(benchmark, ()), *IMAGE)
            texts[f"{system} {benchmark}"] = rendered("skypilot", *words)
    keys, tasks = loaded(tmp_path, texts)
    for name, task in tasks.items():
        assert "error" not in task, (name, task)
        assert task["run"] == yaml.safe_load(texts[name])["run"]
        assert all([cloud, key] in keys for cloud, own in task["config"].items() for key in own)


def test_it_takes_tasks_of_systems_without_a_type_of_its_own(tmp_path: Path) -> None:
    """It finds them by their GPUs, and gives their pods InfiniBand or RoCE."""
    gpus = {"h100-ib": "H100", "gpu-h200-sxm": "H200", "BM.GPU.B200.8": "B200"}
    texts = {}
    for system in gpus:
        done = runner().invoke(
            cli, ["render", "nccl", "--as", "skypilot", "--instance-type", system]
        )
        assert done.exit_code == 0, done.stderr
        texts[system] = done.stdout
    _, tasks = loaded(tmp_path, texts)
    for system, task in tasks.items():
        assert "error" not in task, (system, task)
        assert (task["network_tier"], task["accelerators"]) == ("best", {gpus[system]: 8})


def test_it_takes_tasks_for_other_clouds(tmp_path: Path) -> None:
    """What it says of a fabric it checks at launch, not here."""
    systems = {
        "azure/eastus": "Standard_ND96isr_H100_v5",
        "gcp/us-central1": "a3-highgpu-8g",
        "lambda": "8xH100",
        "nebius/eu-north1": "gpu-h200-sxm",
        "ssh/pool": "h100-ib",
    }
    texts = {}
    for infra, system in systems.items():
        words = ["render", "nccl", "--as", "skypilot", "--instance-type", system]
        words += ["--fabric", "ib" if infra.startswith("nebius") else "tcp", "--infra", infra]
        words += ["--toleration", "team"] if infra.startswith("ssh") else []
        done = runner().invoke(cli, words)
        assert done.exit_code == 0, done.stderr
        texts[infra] = done.stdout
    keys, tasks = loaded(tmp_path, texts)
    for infra, task in tasks.items():
        assert "error" not in task, (infra, task)
        assert task["infra"] == infra
        gpu = {"nebius/eu-north1": "H200"}.get(infra, "H100")
        if infra.startswith("azure"):
            assert task["instance_type"] == systems[infra]
        else:
            assert task["accelerators"] == {gpu: 8}
        assert task["network_tier"] == ("best" if infra.startswith("nebius") else None)
    assert ["ssh", "pod_config"] in keys
    assert [*tasks["ssh/pool"]["config"]] == ["ssh"]
