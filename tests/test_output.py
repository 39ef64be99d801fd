"""Standard output that cannot be written: a message and a status, never a traceback or a verdict."""

import subprocess
import sys
from pathlib import Path

import pytest

from fabbench.errors import Exit

LOG = Path(__file__).parent / "logs/nccl/x-net-socket.txt"
COMMANDS = [["parse", "--format", "json"], ["parse"], ["explain"], ["compare"]]

pytestmark = pytest.mark.local


@pytest.mark.parametrize("command", COMMANDS)
def test_a_full_disk_is_said(command: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fabbench", *command, str(LOG)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == Exit.REFUSED
    assert done.stderr == "Error: the output could not be written or read: No space left on device.\n"


@pytest.mark.parametrize("command", COMMANDS)
def test_a_reader_that_goes_away_is_no_breached_gate(command: list[str]) -> None:
    """`fabbench … | head -1`: status 1 would say that a gate was breached."""
    with subprocess.Popen(
        [sys.executable, "-m", "fabbench", *command, *[str(LOG)] * 40],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        assert process.stderr
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == Exit.REFUSED
