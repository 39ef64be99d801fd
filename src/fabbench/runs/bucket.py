"""A store in a bucket, or wherever else fsspec reaches → its copy on this machine, which all else reads.

Runs do not change once they have ended, so what was copied stays: a later call lists the bucket, and copies
what is new or has another size or stamp (ETag, time of change). A file appears in the copy whole, and one
process copies at a time. The copy may be removed at any time. Nothing is written to the bucket.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fabbench.model.errors import FabbenchError, MachineError, RequestError
from fabbench.model.messages import one_line, redacted
from fabbench.runs.folders import BASELINES, RUN_NAME

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

Copying: TypeAlias = Callable[[int], AbstractContextManager[Callable[[], None]]]
"""Is told how many files are copied, and gives what to call after each."""
_STAMPS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "created")
_UNKNOWN = ["None", ""]
"""Of a file system that tells neither sizes nor times: its files are copied each time."""
_COPIED = ".copied.json"
_INCOMING = ".incoming"
_TOGETHER = 256
"""Files that are copied at once: file systems of buckets do it side by side."""
_NOT_READ = frozenset({"rendered"})
"""Parts of a run that no list, comparison or page needs."""


def local_copy(url: str, copying: Copying) -> Path:
    """Bring the copy of a store up to date, and return its directory.

    Raise RequestError where fsspec, or its part for this kind of URL, is not installed, and MachineError for
    a store that cannot be read.
    """
    system, root = _opened(url)
    folder = _folder(url)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder):
            _bring_up_to_date(system, root, folder, copying)
    except FabbenchError:
        raise
    except Exception as error:  # of any file system's own kind
        raise MachineError(
            f"{_shown(url)} cannot be copied: {one_line(str(error)) or type(error).__name__}.",
            hint="Check the URL and your credentials: fsspec takes them from where the provider's tools do.",
        ) from error
    return folder


def _opened(url: str) -> "tuple[AbstractFileSystem, str]":
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise RequestError(
            f"The store {_shown(url)} needs fsspec, which is not installed.",
            hint="Install fabbench[bucket], for S3 fabbench[s3], for Google Cloud Storage fabbench[gs].",
        ) from error
    try:
        system, root = url_to_fs(url)
    except ImportError as error:
        raise RequestError(
            f"The store {_shown(url)} needs a package that is not installed: {one_line(str(error))}.",
            hint="For S3 install fabbench[s3], for Google Cloud Storage fabbench[gs].",
        ) from error
    except Exception as error:
        raise RequestError(
            f"The store {_shown(url)} cannot be opened: {one_line(str(error))}.",
            hint="Pass a directory, or a URL that fsspec knows, such as s3://BUCKET/PATH.",
        ) from error
    return system, str(root).rstrip("/")


def _folder(url: str) -> Path:
    """Return where the copy of a store lies: named so that people know it, and apart from all others."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = re.sub(r"[^A-Za-z0-9.]+", "-", _shown(url)).strip("-.")[:60]
    return Path(caches, "fabbench", "stores", f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:8]}")


def _shown(url: str) -> str:
    return str(redacted(one_line(url)))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _bring_up_to_date(system: "AbstractFileSystem", root: str, folder: Path, copying: Copying) -> None:
    there = dict(_listed(system, root))
    if not there and not system.exists(root):
        raise MachineError(
            f"Nothing is found at {_shown(system.unstrip_protocol(root))}.", hint="Check the URL of --store."
        )
    copied = _copied(folder)
    for name in copied.keys() - there.keys():
        _remove(folder, name)
    kept = {name: copied[name] for name in copied.keys() & there.keys()}
    stale = [name for name, stamp in there.items() if stamp == _UNKNOWN or kept.get(name) != stamp]
    with copying(len(stale)) as done:
        for start in range(0, len(stale), _TOGETHER):
            names = stale[start : start + _TOGETHER]
            _fetch(system, root, folder, names)
            kept.update((name, there[name]) for name in names)
            _note(folder, kept)
            for _ in names:
                done()
    _note(folder, kept)


def _listed(system: "AbstractFileSystem", root: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the files of runs and the names of baselines, from the store on, with what tells a change."""
    system.invalidate_cache()  # of an earlier list
    found: Mapping[str, Mapping[str, Any]] = system.find(root, detail=True)
    for path, about in found.items():
        name = path.removeprefix(root).lstrip("/")
        if path.startswith(root) and _is_read(name.split("/")):
            stamp = next((str(about[key]) for key in _STAMPS if about.get(key)), "")
            yield name, [str(about.get("size")), stamp]


def _is_read(parts: Sequence[str]) -> bool:
    """Return whether a file is part of a run, of this store or of one in it, or names a baseline."""
    if any(part in {"", ".", ".."} or part.startswith(".") for part in parts):
        return False
    if parts[0] == BASELINES:
        return len(parts) == 2
    place = next((place for place, part in enumerate(parts[:2]) if RUN_NAME.fullmatch(part)), None)
    return place is not None and len(parts) > place + 1 and parts[place + 1] not in _NOT_READ


def _fetch(system: "AbstractFileSystem", root: str, folder: Path, names: Sequence[str]) -> None:
    incoming = folder / _INCOMING
    shutil.rmtree(incoming, ignore_errors=True)
    incoming.mkdir()
    files = [str(incoming / str(number)) for number in range(len(names))]
    system.get([f"{root}/{name}" for name in names], files)
    for name, file in zip(names, files, strict=True):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        Path(file).replace(target)
    incoming.rmdir()


def _remove(folder: Path, name: str) -> None:
    """Remove a file, and the directories that are empty without it."""
    path = folder / name
    with suppress(OSError):
        path.unlink()
        for parent in path.parents:
            if parent == folder:
                break
            parent.rmdir()


def _copied(folder: Path) -> dict[str, list[str]]:
    """Return what was copied; whatever cannot be read was not."""
    try:
        found = json.loads((folder / _COPIED).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): stamp for name, stamp in found.items()} if isinstance(found, dict) else {}


def _note(folder: Path, copied: Mapping[str, Sequence[str]]) -> None:
    unfinished = folder / f"{_COPIED}.unfinished"
    unfinished.write_text(json.dumps(copied), "utf-8")
    unfinished.replace(folder / _COPIED)


def nothing_written(url: str) -> RequestError:
    """Return the error for a command that would write to a store in a bucket."""
    return RequestError(
        f"The store {_shown(url)} can be read only.",
        hint="Pass a directory with --store; copy what it holds to the bucket, such as with aws s3 sync.",
    )
