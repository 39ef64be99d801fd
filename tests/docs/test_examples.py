"""The example scripts do what they say."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import EXAMPLES

pytestmark = pytest.mark.local


def gate(new: str, base: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return subprocess.run(
        ["bash", str(EXAMPLES / "gate.sh"), new, base],
        cwd=EXAMPLES / "logs",
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_gate_lets_a_good_log_pass() -> None:
    done = gate("x-net-socket.txt", "x-ofi-tcp.txt")
    assert done.returncode == 0, done.stderr
    assert "| 64 MB " in done.stdout


def test_the_gate_stops_a_slower_log(tmp_path: Path) -> None:
    good = (EXAMPLES / "logs/x-net-socket.txt").read_text()
    row = "14118.4    4.75    4.75"
    assert good.count(row) == 1
    slow = tmp_path / "slow.txt"
    average = f"{1.59895 - (4.75 - 2.78) / 48:g}"
    slow.write_text(good.replace(row, "24118.4    2.78    2.78").replace("1.59895", average))
    done = gate(str(slow), "x-net-socket.txt")
    assert done.returncode == 1, done.stderr
    assert "64 MB" in done.stdout + done.stderr


def test_the_gate_does_not_judge_what_cannot_be_compared() -> None:
    assert gate("allreduce-mpi-nvlink.txt", "x-net-socket.txt").returncode == 2
