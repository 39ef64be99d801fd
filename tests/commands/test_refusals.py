"""What the command line refuses, before anything starts: tests/data/refusals.txt."""

import shlex
from pathlib import Path

import pytest

from fabbench.cli import cli
from tests.support.command_line import runner
from tests.support.paths import DATA, LOGS

TABLE = [
    tuple(each.strip() for each in line.split(" | "))
    for line in (DATA / "refusals.txt").read_text("utf-8").splitlines()
    if not line.startswith("#")
]
LOG_FILES = {
    name: LOGS / "nccl" / file for name, file in (("a", "x-ofi-tcp.txt"), ("b", "x-net-socket.txt"))
}


@pytest.mark.parametrize(
    ("status", "arguments", "named"), TABLE, ids=[arguments for _, arguments, _ in TABLE]
)
def test_it_is_refused(
    status: str, arguments: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(arguments.format(p5="--instance-type p5.48xlarge", **LOG_FILES))
    done = runner({"FABBENCH_STORE": str(tmp_path / "store")}).invoke(cli, words)
    assert (done.exit_code, done.stdout) == (int(status), ""), done.stderr
    assert named in done.stderr
    assert not list(tmp_path.iterdir())
