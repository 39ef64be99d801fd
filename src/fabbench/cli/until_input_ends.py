"""``python -m fabbench.cli.until_input_ends DIRECTORY WORDS``: fabbench, until its input ends.

Who started it holds the other end, and writes nothing: whatever becomes of that process, fabbench
ends as by a Ctrl-C. So it does when its time is up. It runs in the directory.
"""

import os
import signal
import sys
from select import select
from threading import Thread

from fabbench.cli import cli, failures_of_process


def _end_with_input() -> None:
    select([0], [], [], 3600)
    # A run takes it as a Ctrl-C, which a shell in the background may have it ignore
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    os.chdir(sys.argv.pop(1))
    Thread(target=_end_with_input, daemon=True).start()
    with failures_of_process():
        cli.main(prog_name="fabbench")
