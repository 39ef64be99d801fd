"""`--env NAME`.

The variable is passed on by name, and its value is in nothing that is made or kept.
"""

import ast
from pathlib import Path

import pytest
from click.testing import Result

from fabbench.cli import cli
from fabbench.launchers import launchers, renderings
from tests.support.command_line import runner
from tests.support.secrets_watch import VALUE

NAME = "MY_TOKEN"
QUEUES = {"flux", "lsf", "pbs"}
TYPE = ("--fabric", "tcp", "--instance-type", "p5.48xlarge", "-b", "8", "-e", "64")


def fabbench(*words: str, env: dict[str, str] | None = None) -> Result:
    return runner({NAME: VALUE} if env is None else env).invoke(cli, words)


@pytest.mark.parametrize("form", sorted(renderings()))
def test_documents_have_the_name_alone(form: str) -> None:
    done = fabbench("render", "nccl", "--as", form, *TYPE, "--env", NAME)
    assert "s3cr" not in done.stdout + done.stderr
    if form in QUEUES:
        assert (done.exit_code, f"{form} cannot pass on {NAME}" in done.stderr) == (2, True)
        return
    assert done.exit_code == 0
    assert f'export {NAME}="${{{NAME}:?is not set}}"\n' in done.stdout
    assert (f"-x {NAME})" in done.stdout) == (form != "slurm")  # srun passes on its environment
    if form == "modal":
        assert f'INHERITED = ("{NAME}",)' in done.stdout
        ast.parse(done.stdout)
    if form in {"kubernetes", "jobset", "trainjob", "mpijob"}:
        assert f"secretKeyRef: {{name: fabbench-rendered, key: {NAME}}}" in done.stdout
        assert f'secret generic fabbench-rendered --from-literal {NAME}="${NAME}"' in done.stdout
    if form == "skypilot":
        assert f"--secret {NAME}" in done.stdout


@pytest.mark.parametrize("word", [f"{NAME}=s3cr", "DB_URL=postgres://me:s3cr@host/x"])
@pytest.mark.parametrize("form", ["kubernetes", "script"])
def test_no_document_has_a_value_that_is_secret(form: str, word: str) -> None:
    for words in (("--env", word), ("--variant", f"a={word}")):
        done = fabbench("render", "nccl", "--as", form, *TYPE, *words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert "s3cr" not in done.stderr
        assert "--env NAME, without the value" in done.stderr


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("script", ("--", "--api-token=s3cr")),
        ("kubernetes", ("--", "--report=https://me:s3cr@host/x")),
        ("kubernetes", ("--image", "https://me:s3cr@host/x")),
        ("slurm", ("--sbatch-option", "extra=https://me:s3cr@host/x")),
        ("skypilot", ("--image", "https://me:s3cr@host/x")),
    ],
)
def test_no_document_has_a_secret_of_another_option(form: str, words: tuple[str, ...]) -> None:
    done = fabbench("render", "nccl", "--as", form, *TYPE, *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert "s3cr" not in done.stderr
    assert "would show a secret" in done.stderr


def test_the_port_of_a_registry_is_no_secret() -> None:
    image = "private-registry:5000/nccl:1"
    done = fabbench("render", "nccl", "--as", "kubernetes", *TYPE, "--image", image)
    assert (done.exit_code, done.stdout.count(image)) == (0, 2), done.stderr


def test_what_does_not_go_together() -> None:
    done = fabbench(
        "render", "nccl", "--as", "script", *TYPE, "--env", NAME, "--variant", f"a={NAME}=x"
    )
    assert (done.exit_code, "but --env also sets it" in done.stderr) == (2, True), done.stderr


def test_a_run_needs_the_variable_and_a_launcher_hides_or_refuses_it() -> None:
    words = ("run", "pingpong", "--fabric", "tcp", "--env", NAME, "--on")
    unset = fabbench(*words, "local", env={})
    assert (unset.exit_code, f"--env {NAME} takes the variable" in unset.stderr) == (2, True)
    assert {name for name in launchers() if not launchers()[name].inherits} == QUEUES


@pytest.mark.local
def test_a_run_here_keeps_the_value_to_itself(tmp_path: Path) -> None:
    words = (
        "run",
        "pingpong",
        "--fabric",
        "tcp",
        "--size",
        "64",
        "--iterations",
        "10",
        "--on",
        "local",
        "--env",
        NAME,
    )
    done = fabbench(*words, "--env", "DB_URL=postgres://me:s3cr@host/x", "--store", str(tmp_path))
    assert done.exit_code == 0, done.stderr
    kept = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert not any(b"s3cr" in data for data in kept)
    assert any(NAME.encode() in data for data in kept)
    assert any(b"postgres://(redacted)@host/x" in data for data in kept)


def test_what_chooses_no_network_may_be_set() -> None:
    words = ("render", "nccl", "--as", "script", *TYPE)
    done = fabbench(*words, "--env", "NCCL_TUNER_PLUGIN=/opt/tuner.so")
    assert (done.exit_code, "NCCL_TUNER_PLUGIN=none" in done.stdout) == (0, False)
    assert "NCCL_TUNER_PLUGIN=/opt/tuner.so" in done.stdout
    assert "NCCL_TUNER_PLUGIN=none" in fabbench(*words).stdout
    refused = fabbench(*words, "--env", "NCCL_NET=IB")
    assert (refused.exit_code, "needs NCCL_NET=Socket" in refused.stderr) == (2, True)
