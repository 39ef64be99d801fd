"""What an MCP server may do: read files below some directories, none too large.

Python tells of each file that it opens and each program that it starts, whatever code does it: so
nothing that a command reads has to be known here.
"""

import os
import site
import sysconfig
from collections.abc import Sequence
from errno import EACCES
from pathlib import Path
from typing import Any

import fabbench

# What may be read with all below it, without links; the first is --root. One process, one server
READABLE: list[Path] = []
STARTABLE: list[str] = []  # The first seven words of what may be started; empty: nothing may
MOST_READ = 1 << 27  # Bytes of a file, compressed or not
_TOO_LARGE = "a tool reads 128 MiB at most: run fabbench itself"
# Of what the system is asked for, all that only looks at a path
_LOOKING = frozenset({"open", "os.listdir", "os.scandir"})
_ACTING = ("os.", "subprocess.", "shutil.", "socket.connect", "socket.send", "socket.get")
"""How the names of others begin, which change something, start a program, or reach a network."""
_HARMLESS = frozenset({"os.putenv", "os.unsetenv", "os.walk"})
"""What changes this process alone, as numpy does; and what asks again for each directory."""
_OWN = (
    os.devnull,
    str(Path(fabbench.__file__).parent),
    sysconfig.get_path("stdlib"),
    *site.getsitepackages(),
)
"""What fabbench itself consists of, which Python loads as needed."""


def hook(event: str, arguments: Sequence[Any]) -> None:
    """Raise PermissionError for anything but reading what is `READABLE`, for `sys.addaudithook`.

    What begins as `STARTABLE` does may be started.
    """
    why = ""
    if event in _LOOKING:
        why = _refusal(*arguments)
    elif event == "subprocess.Popen" and arguments[1][:7] == STARTABLE:
        return
    elif event.startswith(_ACTING) and event not in _HARMLESS:
        why = f"a tool only reads: no {event}"
    if why:
        raise PermissionError(EACCES, why, *arguments[:1])


def _refusal(path: Any, _: object = "", flags: int = os.O_RDONLY) -> str:
    """Return why a path must not be opened; empty: it may be."""
    if isinstance(path, int | None):  # This directory, or what is open already
        return ""
    if flags & os.O_ACCMODE:
        return "a tool writes no file"
    named = Path(os.path.abspath(os.fsdecode(path)))  # noqa: PTH100 - with its links
    if any(map(named.is_relative_to, _OWN)):
        return ""
    real = Path(os.path.realpath(named))  # Links may go round in circles
    if not any(map(real.is_relative_to, READABLE)):
        return f"it is outside of {READABLE[0]} (--root)"
    if real.is_file():
        return _TOO_LARGE if real.stat().st_size > MOST_READ else ""
    # A pipe may wait for ever. What is not there is said by opening it
    return "it is no regular file" if real.exists() and not real.is_dir() else ""
