"""Where a secret is seen while something runs: on command lines, in environments, and in files."""

import contextlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

VALUE = "s3cr'et $HOME `id`\n\\two"
"""Has what shells would read otherwise, and a line break."""
_SIGN = b"s3cr"
_LOOKS = 20
"""At what each process runs, which may change (exec)."""
_PAUSE_S = 0.05


@dataclass
class Seen:
    """What was seen."""

    on_command_lines: set[str] = field(default_factory=set)
    in_environments: dict[str, set[bytes]] = field(default_factory=dict)
    """Program → values of the variable."""
    in_files: dict[str, int] = field(default_factory=dict)
    """Path → its mode."""


@contextmanager
def watched(name: str, *folders: Path) -> Iterator[Seen]:
    """Look all the time at the new processes of this machine, and at files in directories."""
    seen, over = Seen(), threading.Event()
    before, looks = set(Path("/proc").glob("[0-9]*")), Counter[tuple[Path, bytes]]()

    def look_on() -> None:
        while not over.wait(_PAUSE_S):
            for process in set(Path("/proc").glob("[0-9]*")) - before:
                _look(seen, name.encode(), process, looks)
            for path in (
                path for folder in folders for path in folder.glob("fabbench-*/environment")
            ):
                with contextlib.suppress(OSError):
                    seen.in_files[str(path)] = path.stat().st_mode & 0o777

    thread = threading.Thread(target=look_on)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def kept(*folders: Path) -> list[str]:
    """Return the files that hold the secret."""
    return sorted(str(path) for folder in folders for path in folder.rglob("*") if _holds(path))


def _look(seen: Seen, name: bytes, process: Path, looks: Counter[tuple[Path, bytes]]) -> None:
    with contextlib.suppress(OSError):
        words = (process / "cmdline").read_bytes()
        looks[process, words] += 1
        if looks[process, words] > _LOOKS:
            return
        if _SIGN in words:
            seen.on_command_lines.add(words.replace(b"\0", b" ").decode("utf-8", "replace"))
        program = words.partition(b"\0")[0].rpartition(b"/")[2].decode("utf-8", "replace")
        for setting in (process / "environ").read_bytes().split(b"\0"):
            if setting.startswith(name + b"="):
                seen.in_environments.setdefault(program, set()).add(setting.partition(b"=")[2])


def _holds(path: Path) -> bool:
    try:
        return path.is_file() and _SIGN in path.read_bytes()
    except OSError:
        return False
