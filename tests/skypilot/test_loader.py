"""SkyPilot's own loader: it takes what is rendered, and it takes what `fabbench check --task` warns of."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from fabbench.cli import cli
from fabbench.launchers.skypilot.validate_task import CONFIG, check_task
from tests.support.command_line import runner
from tests.support.paths import ROOT
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
SILENT: dict[str, dict[str, Any]] = {
    "misspelt": {"config": {"kubernetes": {"pod_conf": {}}}},
    "unknown cloud": {"config": {"kubernets": {"pod_config": {}}}},
    "not for tasks": {"config": {"kubernetes": {"allowed_contexts": ["a"]}}},
    "of machines": {"config": {"aws": {"use_internal_ips": True}}},
    "pod": {"config": {"kubernetes": {"pod_config": {"spec": {"container": []}}}}},
}


def loaded(folder: Path, texts: dict[str, str]) -> Any:
    files = {}
    for name, text in texts.items():
        files[name] = folder / f"{name.replace(' ', '-').replace('/', '-')}.yaml"
        files[name].write_text(text)
    env = {**os.environ, "HOME": str(folder), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    # -P: tests/support has a directory kubernetes, which is not the package.
    argv: list[str | Path] = [python(), "-P", ROOT / "tests/support/skypilot_load.py", *files.values()]
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
    _, tasks = loaded(tmp_path, texts)
    for name, task in tasks.items():
        instance_type, infra = name.split()
        gpu, efa = TYPES[instance_type]
        assert "error" not in task, (name, task)
        assert (task["nodes"], task["envs"]) == (2, {"FABRIC": "all"})
        assert task["infra"] == infra.replace("k8s", "kubernetes")
        assert task["run"] == yaml.safe_load(texts[name])["run"]
        if infra.startswith("aws"):
            assert (task["instance_type"], task["network_tier"]) == (instance_type, "best")
        else:
            assert task["accelerators"] == {gpu: 8}
        if infra == "k8s":
            (container,) = task["config"]["kubernetes"]["pod_config"]["spec"]["containers"]
            assert container["resources"]["limits"] == container["resources"]["requests"] == {EFA: efa}
            assert task["image_id"]


def test_it_takes_in_silence_what_the_check_finds(tmp_path: Path) -> None:
    """Should SkyPilot begin to refuse these, the check is no longer alone."""
    given = {name: {"run": "true", **task} for name, task in SILENT.items()}
    _, tasks = loaded(tmp_path, {name: yaml.safe_dump(task) for name, task in given.items()})
    for name, task in given.items():
        assert "error" not in tasks[name], name
        assert any(check.status == "fail" for check in check_task(name, task)), name


def test_it_refuses_what_the_check_says_it_refuses(tmp_path: Path) -> None:
    given: dict[str, dict[str, Any]] = {
        "top": {"num_node": 2},
        "resources": {"resources": {"acelerators": "H100:8"}},
    }
    _, tasks = loaded(tmp_path, {name: yaml.safe_dump(task) for name, task in given.items()})
    assert all("error" in task for task in tasks.values()), tasks


def test_the_keys_that_count_are_those_of_skypilot(tmp_path: Path) -> None:
    keys, _ = loaded(tmp_path, {})
    assert sorted(f"{section}.{key}" for section, names in CONFIG.items() for key in names) == sorted(
        ".".join(path) for path in keys if len(path) > 1
    )
