"""Files that hold logs, plain or compressed. Nothing is unpacked to disk.

The first bytes of a file show its type: gzip, bzip2, xz, zstd, and UTF-16. A file has one layer of compression at
most. Whatever it is, it is read in pieces, so that memory use stays constant, and a file that expands to more than
logs do is refused; so are archives.
"""

import bz2
import codecs
import lzma
import os
import re
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, Protocol, TypeAlias

from fabbench.logs.signs import UnreadWarning
from fabbench.model.errors import MachineError
from fabbench.runs.document import REQUEST

MAX_BYTES = 16 << 30  # Limit of the decompressed bytes of one file
_BLOCK = 1 << 18
_AT_ONCE = 1 << 10  # Bytes that are decompressed at once, as the result has no limit
_HEAD = 512
COMPRESSED = (".gz", ".bz2", ".xz", ".zst")
"""Endings of the names of such files that are useful to know before they are opened."""
_ARCHIVES = (".tar", ".tgz", ".zip", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")

Pieces: TypeAlias = Iterator[bytes]


class Bytes(Protocol):
    """A stream that can be read in pieces."""

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, or fewer at the end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a command reads: a log file, or a run of a store."""

    name: str  # The file, or the directory of the run
    named: bool = True  # Whether the user named it, so that it must contain a log
    run: bool = False
    configuration: str = ""  # The only one of a run that was named; empty: all


class LogStream:
    """One log, decompressed. Reading raises MachineError if the file is damaged or too large."""

    def __init__(self, name: str, pieces: Pieces) -> None:
        self.name = name
        self.head = b""
        """The bytes that the first read returned."""
        self._pieces, self._rest = pieces, b""
        self._damage: MachineError | None = None

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, or fewer at the end. The data before a damage counts: the next read raises the error."""
        found, length = [self._rest], len(self._rest)
        try:
            while length < size and self._damage is None and (piece := next(self._pieces, None)) is not None:
                found.append(piece)
                length += len(piece)
        except (MachineError, OSError) as error:
            self._damage = _unreadable(self.name, error)
        data = b"".join(found)
        data, self._rest = data[:size], data[size:]
        if self._damage is not None and not data:
            raise self._damage
        self.head = self.head or data
        return data


def listed(name: str) -> list[str]:
    """Return the parts of a comma-separated list of files and directories; of any other name only itself."""
    parts = [part for part in name.split(",") if part]
    several = len(parts) > 1 and not _exists(name) and any(map(_exists, parts))
    return parts if several else [name]


def _exists(name: str) -> bool:
    return is_log_file(name) or Path(name).is_dir()


def expand(names: Iterable[str]) -> list[Source]:
    """List the files: a directory stands for all files and runs in and below it, except hidden ones.

    A comma-separated list stands for its parts. For skipped archives, pipes, sockets and devices, UnreadWarning is
    issued. Raise MachineError if a directory cannot be listed.
    """
    return [source for name in names for part in listed(name) for source in _expanded(part)]


def _expanded(name: str) -> Iterator[Source]:
    path = Path(name)
    if name == "-" or not path.is_dir():
        yield Source(name=name)
        return

    def refuse(error: OSError) -> None:
        raise MachineError(f"{error.filename} cannot be listed: {error.strerror}") from error

    for folder, folders, files in os.walk(path, onerror=refuse):
        if REQUEST in files:
            yield Source(name=folder, named=folder == str(path), run=True)
            folders.clear()
            continue
        folders[:] = sorted(entry for entry in folders if not entry.startswith("."))
        for file in sorted(entry for entry in files if not entry.startswith(".")):
            full = Path(folder, file)
            if file.endswith(_ARCHIVES):
                warnings.warn(f"{full} is an archive: it was skipped. Unpack it.", UnreadWarning, stacklevel=2)
            elif os.path.exists(full) and not os.path.isfile(full):  # noqa: PTH110, PTH113 - raise no error
                warnings.warn(f"{full} is not a regular file: it was skipped.", UnreadWarning, stacklevel=2)
            else:
                yield Source(name=str(full), named=False)


@contextmanager
def open_log(name: str) -> Iterator[LogStream]:
    """Open a file; ``-`` is standard input. Raise MachineError if it cannot be read."""
    path, standard = Path(name), name == "-"
    if standard and sys.stdin is None:
        raise MachineError("Standard input is closed.", hint="Specify a file, or pipe a log into it.")
    try:
        with nullcontext(sys.stdin.buffer) if standard else path.open("rb") as file:
            if not (standard or path.is_file() or path.is_fifo() or path.samefile(os.devnull) or file.isatty()):
                raise MachineError(f"{path} is a device, not a log.")
            yield LogStream(name, _decompressed(name, iter(partial(file.read, _BLOCK), b"")))
    except OSError as error:
        raise _unreadable(name, error) from error


def is_log_file(name: str) -> bool:
    """Return whether a name is that of a file or a pipe."""
    path = Path(name)
    return path.is_file() or path.is_fifo() or path.is_char_device()


def stem(name: str) -> str:
    """Return a file's name without directory, and the suffixes of logs and compression."""
    path = PurePath("stdin" if name == "-" else name)
    while path.suffix in COMPRESSED:
        path = path.with_suffix("")
    return path.stem


def _unreadable(name: str, error: Exception) -> MachineError:
    if isinstance(error, MachineError):
        return error
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return MachineError(f"{name} cannot be read: {reason or type(error).__name__}")


# ---------------------------------------------------------------- compression


def _decompressed(name: str, pieces: Pieces) -> Pieces:
    """Yield what a file holds, as UTF-8. Raise MachineError if it is too large, or an archive."""
    head, pieces = _begun(pieces)
    for known in (_COMPRESSIONS, _UTF_16):
        if (unpack := _first_of(known, head)) is not None:
            head, pieces = _begun(_limited(name, unpack(pieces)))
    if _first_of(_COMPRESSIONS, head) is not None:
        raise MachineError(f"{name} is compressed more than once: unpack it.")
    if re.match(rb"(?s).{257}ustar|PK\x03\x04", head):
        raise MachineError(f"{name} is an archive: unpack it, and pass its folder.")
    yield from pieces


def _limited(name: str, pieces: Pieces) -> Pieces:
    left = MAX_BYTES
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise MachineError(f"{name} decompresses to more than {MAX_BYTES >> 30} GB. If you trust it, unpack it.")
        yield piece


def _begun(pieces: Pieces) -> tuple[bytes, Pieces]:
    """Return the first bytes of pieces, and all of them. An error is raised when what is before it has been read."""

    def fail(error: Exception) -> Pieces:
        yield from ()
        raise error

    head = b""
    try:
        while len(head) < _HEAD and (piece := next(pieces, None)) is not None:
            head += piece
    except (MachineError, OSError) as error:
        pieces = fail(error)
    return head, chain([head], pieces)


def _first_of(known: Sequence[tuple[bytes, Callable[..., Any]]], head: bytes) -> Callable[..., Any] | None:
    return next((opener for sign, opener in known if re.match(sign, head)), None)


def _unpacked(new: Callable[[], Any], pieces: Pieces) -> Pieces:
    """Yield what consecutive frames hold, with zeros between them; `new` makes the decompressor of each."""
    frame = new()
    for piece in pieces:
        for at in range(0, len(piece), _AT_ONCE):
            data = piece[at : at + _AT_ONCE]
            while data := data.lstrip(b"\0") if frame.eof else data:
                frame = new() if frame.eof else frame
                try:
                    yield frame.decompress(data)
                except Exception as error:
                    raise OSError(0, str(error)) from error  # each library has its own
                data = frame.unused_data if frame.eof else b""
    if not frame.eof:
        raise OSError(0, "it ends before its end marker")


def _zstd() -> Any:
    """Return a decompressor of Python's own module (3.14), or of the package zstandard; both need 128 MB at most."""
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.ZstdDecompressor()
    try:
        import zstandard
    except ImportError as error:
        raise MachineError(
            "zstd needs the package zstandard before Python 3.14: pip install 'fabbench[zstd]'"
        ) from error
    return zstandard.ZstdDecompressor().decompressobj()


def _utf16(pieces: Pieces, ending: str = "") -> Pieces:
    """Convert text to UTF-8. PowerShell's `>` writes it with a byte order mark, others without."""
    return (text.encode() for text in codecs.iterdecode(pieces, f"utf-16{ending}", "replace"))


_COMPRESSIONS: Sequence[tuple[bytes, Callable[..., Any]]] = (
    (rb"\x1f\x8b", partial(_unpacked, partial(zlib.decompressobj, zlib.MAX_WBITS | 16))),
    (b"BZh", partial(_unpacked, bz2.BZ2Decompressor)),
    (rb"\xfd7zXZ\0", partial(_unpacked, partial(lzma.LZMADecompressor, lzma.FORMAT_XZ))),
    (rb"\x28\xb5\x2f\xfd", partial(_unpacked, _zstd)),
)
_UTF_16: Sequence[tuple[bytes, Callable[..., Any]]] = (
    (rb"\xff\xfe|\xfe\xff", _utf16),
    (rb"(?:[^\0]\0){8}", partial(_utf16, ending="-le")),
    (rb"(?:\0[^\0]){8}", partial(_utf16, ending="-be")),
)
