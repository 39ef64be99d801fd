"""A log that went through the installed mpirun, with its prefixes, reads the same."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needed import need
from tests.support.paths import DATA, EXAMPLES

LOG = EXAMPLES / "logs/x-net-socket.txt"

TIMESTAMPS = DATA / "mpirun/timestamps-4.1.4.txt"
"""What `mpirun --tag-output --timestamp-output` of Open MPI 4.1.4 made of LOG. It reads blocks, and
begins each with a prefix: line 71 has one in the middle of a row."""

pytestmark = pytest.mark.local


def what_rank_0_printed() -> str:
    return "".join(re.findall(r"^\[1,0\]<stdout>: (.*\n)", LOG.read_text(), flags=re.MULTILINE))


def samples(path: Path) -> list[object]:
    done = subprocess.run(
        [sys.executable, "-m", "fabbench", "parse", "--format", "json", str(path)],
        capture_output=True,
        text=True,
        check=True,
    )
    (log,) = json.loads(done.stdout)["logs"]
    assert log["outcome"] == "ok"
    found: list[object] = log["samples"]
    return found


@pytest.mark.parametrize(
    "options",
    [
        *(pytest.param(options, marks=pytest.mark.slow) for options in ([], ["--tag-output"])),
        ["--tag-output", "--timestamp-output"],
    ],
    ids=" ".join,
)
def test_prefixes_of_the_installed_mpirun(options: list[str], tmp_path: Path) -> None:
    need("mpirun")
    plain, through = tmp_path / "plain.txt", tmp_path / "mpirun.txt"
    plain.write_text(what_rank_0_printed())
    rank = (
        'if [ "$OMPI_COMM_WORLD_RANK" = 0 ]; then cat "$0"; else echo "vm:1:1 [1] NCCL INFO '
        'noise"; fi'
    )
    mpirun = ["mpirun", "--allow-run-as-root", "--oversubscribe", *options, "-np", "2"]
    done = subprocess.run(
        [*mpirun, "sh", "-c", rank, str(plain)], capture_output=True, text=True, check=True
    )
    assert options == [] or "[1,0]<stdout>:" in done.stdout
    through.write_text(done.stdout)
    assert len(samples(plain)) > 100
    assert samples(through) == samples(plain)


@pytest.mark.slow
def test_a_prefix_in_the_middle_of_a_row(tmp_path: Path) -> None:
    plain = tmp_path / "plain.txt"
    plain.write_text(what_rank_0_printed())
    assert samples(TIMESTAMPS) == samples(plain)
