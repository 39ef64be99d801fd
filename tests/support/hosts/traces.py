"""What a program leaves behind on hosts: processes, files, keys. Compare two looks."""

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

WHERE = ("/tmp", "/dev/shm", "/var/tmp", "/run")


def files(root: Path, folder: str) -> dict[str, str]:
    """Everything below a directory of a host whose file system is seen at `root`.

    Path → what it is.
    """
    found: dict[str, str] = {}
    top = f"{root}{folder}"
    for path, folders, names in os.walk(top):
        inner = path.removeprefix(str(root))
        found |= {f"{inner}/{name}/": "" for name in folders}
        found |= {f"{inner}/{name}": _content(Path(path, name)) for name in names}
    return found


def _content(path: Path) -> str:
    """Tell a file's content apart from another's."""
    try:
        if path.is_symlink() or not path.is_file():
            return "special"
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return "gone"


def difference(before: Iterable[str], after: Iterable[str]) -> list[str]:
    """Say what is new (+) and what is missing (-)."""
    first, second = set(before), set(after)
    return [
        *(f"+ {line}" for line in sorted(second - first)),
        *(f"- {line}" for line in sorted(first - second)),
    ]
