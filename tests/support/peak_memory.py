"""How much memory a fabbench of its own process took: for tests of what must not fill it."""

import re

# Not ru_maxrss of getrusage: that of a new program begins with the size of the process that started
# it.
PROGRAM = (
    "import atexit, pathlib, sys; from fabbench.cli import cli; "
    "atexit.register(lambda: sys.stderr.write(pathlib.Path('/proc/self/status').read_text())); "
    "cli.main(prog_name='fabbench')"
)


def peak_mib(stderr: str) -> int:
    """Return the most memory that `PROGRAM` had, in MiB, from what it printed at its end."""
    (kib,) = re.findall(r"^VmHWM:\s+(\d+) kB", stderr, re.MULTILINE)
    return int(kib) >> 10
