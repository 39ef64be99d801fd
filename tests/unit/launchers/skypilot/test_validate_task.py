"""What SkyPilot takes without a word: `fabbench check --task`."""

import json
from pathlib import Path
from typing import Any

import pytest

from fabbench.cli import cli
from fabbench.launchers.skypilot.validate_task import check_task
from tests.support.command_line import runner

EFA = "vpc.amazonaws.com/efa"


def found(task: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Title of a check that found something → its status, and what it says in all."""
    checks = check_task("task.yaml", task)
    return {
        check.name: (check.status.value, f"{check.seen} {check.advice}")
        for check in checks
        if check.status.value != "pass"
    }


def pod(spec: Any, section: str = "kubernetes") -> dict[str, Any]:
    return {"config": {section: {"pod_config": {"spec": spec}}}}


def devices(limit: Any, request: Any, accelerators: str = "H100:8") -> dict[str, Any]:
    resources = {"limits": {EFA: limit}, "requests": {EFA: request}}
    return {"resources": {"accelerators": accelerators}, **pod({"containers": [{"resources": resources}]})}


@pytest.mark.parametrize(
    ("task", "title", "expected"),
    [
        (
            {"num_node": 2},
            "fields",
            "num_node is not a valid task field.",
        ),
        ({"resources": {"acelerators": "H100:8"}}, "fields", "Did you mean accelerators?"),
        (
            {"config": {"kubernets": {}}},
            "config",
            "config.kubernets is not a valid task field.",
        ),
        ({"config": {"kubernetes": {"pod_conf": {}}}}, "config", "Did you mean pod_config?"),
        ({"config": {"kubernetes": {"allowed_contexts": ["a"]}}}, "config", "silently ignores it"),
        ({"config": {"aws": {"use_internal_ips": True}}}, "config", "silently ignores it"),
        ({"config": {"slurm": {"sbatch_option": {}}}}, "config", "Did you mean sbatch_options?"),
        (pod({"container": []}), "pod_config", "no field container (did you mean containers?)"),
        (pod({"containers": [{"resource": {}}]}), "pod_config", "containers[0]: no field resource"),
        (pod({"hostNetwork": "yes"}, "ssh"), "pod_config", "config.ssh.pod_config.spec.hostNetwork: 'yes'"),
        (
            pod({"containers": [{"resources": {"limits": {EFA: "four"}}}]}),
            "pod_config",
            "not a Kubernetes quantity",
        ),
        (pod(["x"]), "pod_config", "['x'] is not a mapping"),
        (devices(32, 16), "devices", f"{EFA}: requests 16, limits 32. Set both to the same number"),
        (devices(4, 4), "devices", f"4 {EFA} with H100:8, and p5.48xlarge has 32"),
        ({"envs": {"FI_PROVIDER": ""}}, "variables", "envs.FI_PROVIDER has no value."),
        ({"run": 'if x; then\n  export FI_PROVIDER=""\nfi\n'}, "run", "does not select a baseline"),
        ({"run": "srun -N 2 \\\n  # where it is\n  ./prog\n"}, "run", "# where it is"),
    ],
)
def test_a_mistake_is_found(task: dict[str, Any], title: str, expected: str) -> None:
    status = {"variables": "warn"}.get(title, "")
    ((name, (seen_status, text)),) = found(task).items()
    assert name == title
    assert seen_status in (status or {"fail", "warn"})
    assert expected in text


@pytest.mark.parametrize(
    "task",
    [
        devices(32, 32),
        devices("32", 32),
        devices(4, 4, "A100:8"),
        {"config": {"kubernetes": {"kueue": {"local_queue_name": "q"}, "provision_timeout": 900}}},
        {"config": {"docker": {"run_options": ["--cap-add=IPC_LOCK"]}, "active_workspace": "x"}},
        {"run": "export FI_PROVIDER=efa\nsrun x \\\n  y # a note\n", "envs": {"FABRIC": "efa"}},
        pod({"tolerations": None, "containers": [{"env": [{"name": "A", "value": "b"}]}]}),
    ],
)
def test_what_is_right_is_not_found_fault_with(task: dict[str, Any]) -> None:
    assert found(task) == {}


def check(tmp_path: Path, text: str) -> Any:
    file = tmp_path / "task.yaml"
    file.write_text(text)
    return runner().invoke(cli, ["check", "--task", str(file), "--format", "json"])


def test_the_command_checks_files(tmp_path: Path) -> None:
    done = check(tmp_path, "num_nodes: 2\nconfig:\n  kubernetes:\n    pod_conf: {}\n")
    assert done.exit_code == 3
    (failed,) = [each for each in json.loads(done.stdout) if each["status"] == "fail"]
    assert (failed["host"], failed["check"]) == ("task.yaml", "config")
    assert check(tmp_path, "num_nodes: 2\nrun: echo\n").exit_code == 0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [", "task.yaml is not valid YAML"),
        ("", "It must be a mapping, but is empty."),
        ("- a\n", "is list"),
    ],
)
def test_files_that_are_no_tasks(tmp_path: Path, text: str, expected: str) -> None:
    done = check(tmp_path, text)
    assert done.exit_code == 3
    assert expected in done.stdout + done.stderr


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    done = runner().invoke(cli, ["check", "--task", str(tmp_path / "x.yaml")])
    assert done.exit_code == 3
    assert "cannot be read" in done.stderr
