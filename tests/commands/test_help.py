"""Help in sections, suggestions for what is nearly right, completion."""

from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from fabbench.cli import cli
from tests.support.command_line import runner


def fabbench(*words: str) -> str:
    done = runner().invoke(cli, words)
    return done.stdout + done.stderr


def sections(text: str) -> list[str]:
    return [line.rstrip(":") for line in text.splitlines() if line[:1].isalpha() and line.endswith(":")]


def test_help_has_sections() -> None:
    found = sections(fabbench("run", "nccl", "--help"))
    assert found[:3] == ["Benchmark", "What to compare", "Where"]
    assert {"Kubernetes", "Slurm", "SkyPilot"} < set(found)
    assert found[-2:] == ["Results", "Output"]


def test_short_help_has_the_chosen_launcher() -> None:
    short, full = fabbench("run", "nccl", "-h"), fabbench("run", "nccl", "--help")
    assert len(short) < len(full) / 2
    assert "--ab " in short
    assert "Slurm" not in sections(short)
    assert "fabbench run nccl --help shows all options" in short.replace("cli run", "fabbench run")
    for words in (("--on", "slurm"), ("--on=slurm",)):
        own = fabbench("run", "nccl", *words, "-h")
        assert "Slurm" in sections(own)
        assert "--partition" in own
        assert "--namespace" not in own
    assert "--namespace" in fabbench("check", "--on", "k8s", "-h")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (("prase",), "parse"),
        (("run", "ncll"), "nccl"),
        (("render", "nccl", "--as", "slrum"), "slurm"),
        (("parse", "x", "--format", "jsn"), "json"),
        (("run", "nccl", "--dtype", "flaot"), "float"),
    ],
)
def test_what_is_nearly_right_is_suggested(words: tuple[str, ...], meant: str) -> None:
    assert f"Did you mean {meant}?" in fabbench(*words)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell: str) -> None:
    assert "_FABBENCH_COMPLETE" in fabbench("completion", shell)


def completed(*words: str) -> list[str]:
    *before, last = words
    made = ShellComplete(cli, {}, "fabbench", "_FABBENCH_COMPLETE")
    return [item.value for item in made.get_completions(before, last)]


def test_values_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "fabbench.yaml").write_text("targets: {prod: {launcher: local}}\n")
    (tmp_path / ".git").mkdir()
    run = tmp_path / "fabbench-runs/20260101T000000Z-nccl-abc123"
    run.mkdir(parents=True)
    (run / "request.json").write_text("{}")
    assert completed("run", "nccl", "--on", "p") == ["prod"]
    assert completed("run", "nccl", "--on", "k") == ["kubernetes", "k8s"]
    assert completed("render", "nccl", "--fabric", "ef") == ["efa"]
    assert completed("render", "nccl", "--instance-type", "p4d.") == ["p4d.24xlarge"]
    assert completed("instances", "p4de") == ["p4de.24xlarge"]
    assert completed("show", "a") == completed("rerun", "a") == completed("compare", "a") == ["abc123"]
    assert completed("run", "ncc") == ["nccl"]
    (tmp_path / "fabbench.yaml").write_text("nonsense: [")
    assert completed("run", "nccl", "--on", "p") == []
