"""The current context of the kubeconfig."""

import subprocess
import sys
from pathlib import Path

import pytest

from fabbench.launchers.kubernetes import current_context
from fabbench.model.errors import MachineError

MODULES = (
    "import sys; from fabbench.launchers.kubernetes import current_context as c; c(%r); "
    "print(*sys.modules)"
)


def config(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return str(path)


def test_the_users_own_file_or_the_first_of_a_list_that_says_it(tmp_path: Path) -> None:
    config(tmp_path, ".kube/config", "current-context: home\n")
    silent = config(tmp_path, "silent", "apiVersion: v1\n")
    named = config(tmp_path, "named", 'current-context: "named"\n')
    other = config(tmp_path, "other", "current-context: other\n")
    home = {"HOME": str(tmp_path)}
    assert current_context(home) == "home"
    several = {**home, "KUBECONFIG": f"{tmp_path}/none::{silent}:{named}:{other}"}
    assert current_context(several) == "named"
    assert current_context(several, file=Path(other)) == "other"
    assert current_context(several, context="given") == "given"


@pytest.mark.parametrize("text", ["", "[]", "current-context: ''", "current-context: null", "a: b"])
def test_a_file_without_one_has_none(tmp_path: Path, text: str) -> None:
    assert current_context({"KUBECONFIG": config(tmp_path, "config", text)}) is None


def test_no_home_and_no_file_have_none(tmp_path: Path) -> None:
    assert current_context({}) is None
    assert current_context({"HOME": str(tmp_path)}) is None


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    for file in (
        config(tmp_path, "torn", "a: [b"),
        config(tmp_path, "dated", "a: 2026-99-99"),
        config(tmp_path, "long", f"a: {'9' * 5000}"),
        str(tmp_path),
    ):
        with pytest.raises(MachineError, match=file) as raised:
            current_context({"KUBECONFIG": file})
        assert "--on" in (raised.value.hint or "")


def test_it_does_not_load_the_kubernetes_library(tmp_path: Path) -> None:
    program = MODULES % {"KUBECONFIG": config(tmp_path, "config", "current-context: a\n")}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert "yaml" in done.stdout.split()
    assert "kubernetes" not in done.stdout.split()
