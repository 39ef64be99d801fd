"""``python -m fabbench.cli.until_input_ends DIRECTORY SECONDS WORDS``: fabbench with an end.

Who started it holds the other end, and writes nothing: whatever becomes of that process, fabbench
ends as by a Ctrl-C. So it does when its time is up. It runs in the directory.
"""

import os
import signal
import sys
from select import select
from threading import Thread

from fabbench.cli import cli, failures_of_process
from fabbench.cli.terminal import say


def _end_with_input(seconds: float) -> None:
    has_ended, _, _ = select([0], [], [], seconds)
    if not has_ended:
        limit = format(seconds, "g")
        say(f"The run took longer than {limit} s, the --max-time of fabbench mcp.")
    # A run takes it as a Ctrl-C, which a shell in the background may have it ignore
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    os.chdir(sys.argv.pop(1))
    seconds = float(sys.argv.pop(1))
    Thread(target=_end_with_input, args=[seconds], daemon=True).start()
    with failures_of_process():
        cli.main(prog_name="fabbench")
