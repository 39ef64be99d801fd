"""A program with the pipes of PyTorch's flight recorder, which dumps recordings of real ranks.

`python -m tests.support.recorder_program FILE…`: one file for each rank. As in
torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (DumpPipe), a rank dumps when it reads anything. A
rank without a file, `-`, is stopped: it reads nothing.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT

PIPES, DUMPS = "TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "TORCH_FR_DUMP_TEMP_FILE"


def main() -> None:
    ranks: dict[int, tuple[int, str]] = {}
    for rank, recording in enumerate(sys.argv[1:]):
        pipe = f"{os.environ[PIPES]}{rank}.pipe"
        os.mkfifo(pipe)
        ranks[rank] = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), recording
    print("ready", flush=True)
    while True:
        for rank, (opened, recording) in ranks.items():
            with contextlib.suppress(BlockingIOError):
                if recording != "-" and os.read(opened, 128):
                    shutil.copyfile(recording, f"{os.environ[DUMPS]}{rank}")
        time.sleep(0.05)


@contextlib.contextmanager
def ranks_that_dump(folder: Path, *recordings: str | Path) -> Iterator[None]:
    """Start it, with its pipes and dumps in a folder; it is ended afterwards."""
    env = {**os.environ, PIPES: f"{folder}/pipe_", DUMPS: f"{folder}/dump_"}
    words = [sys.executable, "-m", "tests.support.recorder_program", *map(str, recordings)]
    with subprocess.Popen(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True) as program:
        try:
            assert program.stdout
            assert program.stdout.readline() == "ready\n"
            yield
        finally:
            program.kill()


if __name__ == "__main__":
    main()
