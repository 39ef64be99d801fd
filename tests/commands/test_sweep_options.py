"""`fabbench sweep`: options that have no effect together are refused before anything starts."""

import pytest

from fabbench.cli import cli
from tests.support.command_line import runner

REFUSED = {
    (): "a benchmark or --from is missing",
    ("--from", "logs", "nccl"): "--from reads logs, and runs no benchmark",
    ("--format", "json", "nccl"): "--format has no effect before nccl",
    ("--resume", "last", "nccl"): "--resume has no effect before nccl",
    ("--resume", "last", "--format", "json"): "--format has no effect with --resume",
    ("--from", "logs", "--resume", "last"): "--from has no effect with --resume",
    ("--from", "logs", "--store", "runs"): "--store has no effect with --from",
    ("torch",): "No such command 'torch'",
    ("nccl", "--on", "local", "--groups", "/nowhere"): "/nowhere",
    ("nccl", "--on", "local", "--tolerance", "90%"): "a percentage between 0 and 80",
    ("nccl", "--on", "local", "--mode", "single", "--seed", "1"): "--seed has no effect with --mode single",
    ("nccl", "--on", "local", "--mode", "pairs", "--partners", "9"): "--partners has no effect with --mode pairs",
    ("nccl", "--on", "local", "--partners", "0"): "a whole number of 1 or more",
    ("nccl", "--on", "local", "--dry-run", "--format", "svg"): "--format svg has no effect with --dry-run",
    ("nccl", "--on", "local", "--groups", "switch"): "--groups switch has no effect with --on local",
    ("nccl", "--on", "slurm", "--groups", "label:rack"): "--groups label:rack has no effect with --on slurm",
    ("--from", "logs", "--groups", "label:rack"): "--groups label:rack queries a cluster",
    ("nccl", "--on", "mpijob"): "fabbench sweep does not run on mpijob",
}


@pytest.mark.parametrize(("words", "said"), REFUSED.items())
def test_what_has_no_effect_is_refused(words: tuple[str, ...], said: str) -> None:
    done = runner().invoke(cli, ["sweep", *words])
    assert done.exit_code in {2, 3}
    assert said in done.stderr
