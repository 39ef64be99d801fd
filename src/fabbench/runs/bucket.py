"""A store in a bucket, or anywhere else that fsspec reaches → its local copy, which all other code reads.

Runs do not change once they have ended, so copied files stay: a later call lists the bucket, and copies files
that are new or have a different size or stamp (ETag, modification time). Files appear in the copy atomically,
and one process copies at a time. The copy may be removed at any time. Nothing is written to the bucket.
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
"""Called with the number of files to copy; yields the function to call after each."""
_STAMPS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "created")
_UNKNOWN = ["None", ""]
"""From a file system that reports neither sizes nor times: its files are copied each time."""
_COPIED = ".copied.json"
_INCOMING = ".incoming"
_BATCH = 256
"""Files that are copied at once: file systems of buckets do it in parallel."""
_NOT_READ = frozenset({"rendered"})
"""Parts of a run that no list, comparison or report needs."""


def local_copy(url: str, copying: Copying) -> Path:
    """Update the copy of a store, and return its directory.

    Raise RequestError if fsspec, or its package for this kind of URL, is not installed, and MachineError if
    the store cannot be read.
    """
    system, root = _opened(url)
    folder = _folder(url)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _locked(folder):
            _update(system, root, folder, copying)
    except FabbenchError:
        raise
    except Exception as error:  # file systems raise their own types
        raise MachineError(
            f"{_shown(url)} cannot be copied: {one_line(str(error)) or type(error).__name__}.",
            hint="Check the URL and your credentials: fsspec reads them where the provider's tools do.",
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
    """Return where the copy of a store is: recognizable by name, and separate from all others."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    name = re.sub(r"[^A-Za-z0-9.]+", "-", _shown(url)).strip("-.")[:60]
    return Path(caches, "fabbench", "stores", f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:8]}")


def _shown(url: str) -> str:
    return str(redacted(one_line(url)))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _update(system: "AbstractFileSystem", root: str, folder: Path, copying: Copying) -> None:
    remote = dict(_listed(system, root))
    if not remote and not system.exists(root):
        raise MachineError(
            f"Nothing found at {_shown(system.unstrip_protocol(root))}.", hint="Check the URL of --store."
        )
    copied = _copied(folder)
    for name in copied.keys() - remote.keys():
        _remove(folder, name)
    current = {name: copied[name] for name in copied.keys() & remote.keys()}
    stale = [name for name, stamp in remote.items() if stamp == _UNKNOWN or current.get(name) != stamp]
    with copying(len(stale)) as done:
        for start in range(0, len(stale), _BATCH):
            names = stale[start : start + _BATCH]
            _fetch(system, root, folder, names)
            current.update((name, remote[name]) for name in names)
            _record(folder, current)
            for _ in names:
                done()
    _record(folder, current)


def _listed(system: "AbstractFileSystem", root: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the files of runs and baselines, relative to the store, each with its size and stamp."""
    system.invalidate_cache()  # of an earlier list
    files: Mapping[str, Mapping[str, Any]] = system.find(root, detail=True)
    for path, info in files.items():
        name = path.removeprefix(root).lstrip("/")
        if path.startswith(root) and _is_read(name.split("/")):
            stamp = next((str(info[key]) for key in _STAMPS if info.get(key)), "")
            yield name, [str(info.get("size")), stamp]


def _is_read(parts: Sequence[str]) -> bool:
    """Return whether a file is part of a run, in this store or in a store within it, or names a baseline."""
    if any(part in {"", ".", ".."} or part.startswith(".") for part in parts):
        return False
    if parts[0] == BASELINES:
        return len(parts) == 2
    depth = next((depth for depth, part in enumerate(parts[:2]) if RUN_NAME.fullmatch(part)), None)
    return depth is not None and len(parts) > depth + 1 and parts[depth + 1] not in _NOT_READ


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
    """Return the files that were copied: name → size and stamp; empty if the record cannot be read."""
    try:
        record = json.loads((folder / _COPIED).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return {str(name): stamp for name, stamp in record.items()} if isinstance(record, dict) else {}


def _record(folder: Path, copied: Mapping[str, Sequence[str]]) -> None:
    unfinished = folder / f"{_COPIED}.unfinished"
    unfinished.write_text(json.dumps(copied), "utf-8")
    unfinished.replace(folder / _COPIED)


def nothing_written(url: str) -> RequestError:
    """Return the error for a command that would write to a store in a bucket."""
    return RequestError(
        f"The store {_shown(url)} is read-only.",
        hint="Pass a directory with --store; copy what it holds to the bucket, such as with aws s3 sync.",
    )
