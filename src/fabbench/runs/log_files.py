"""Files that hold logs: plain, compressed, and in archives. Nothing is unpacked to disk.

The first bytes of a file show its type: gzip, bzip2, xz, zstd, tar, zip, and UTF-16. A file, and each file of an
archive, has one layer of compression at most. Memory use stays constant, and a file that expands more than logs do is
refused.
"""

import bz2
import codecs
import gzip
import io
import lzma
import os
import re
import stat
import sys
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

from fabbench.logs.learned_prefixes import UnreadWarning
from fabbench.model.errors import MachineError
from fabbench.runs.folders import REQUEST

MEMBER_SIGN = "!"
"""Separates the name of an archive from that of a file in it."""
MAX_BYTES = 16 << 30
"""Limit of the decompressed bytes of one file."""
MAX_RATIO = 500
"""Limit of the decompressed bytes per compressed byte, from `_SMALL` decompressed bytes on."""
_SMALL = 64 << 20
_MAX_DOCUMENT = 1 << 30
_MAX_HEADER = 1 << 20
_BLOCK = 1 << 18
_WINDOW = 128 << 20
"""Bytes of memory that zstd may use."""
_HEAD = 512
_TAR_SIGN = slice(257, 262)
_ZIP_SIGN = b"PK\x03\x04"
COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".tar", ".zip")
"""Endings of the names of such files that are useful to know before they are opened."""


class Bytes(Protocol):
    """A stream that can be read in pieces."""

    def read(self, size: int = -1, /) -> bytes:
        """Return `size` bytes, or fewer at the end; without a size, all that are left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a command reads: a log file, or a run of a store."""

    name: str
    """The file, or the directory of the run."""
    named: bool = True
    """Whether the user named it, so that it must contain a log."""
    run: bool = False
    configuration: str = ""
    """The only one of a run that was named; empty: all."""


_DAMAGE = (MachineError, OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile)


class LogStream:
    """One log, decompressed. Reading raises MachineError if the file is damaged or too large."""

    def __init__(self, name: str, file: Bytes, damage: Exception | None = None) -> None:
        self.name = name
        """Name of the file; `ARCHIVE!MEMBER` in an archive."""
        self.head = b""
        """The bytes that the first read returned."""
        self._file, self._damage = file, damage

    def read(self, size: int = -1, /) -> bytes:
        """Return `size` bytes, or all; see `Bytes`. The data before a damage counts: the next read raises the error.

        The first read returns fewer only if the file has no more: prefixes are learned from these bytes.
        """
        data, wanted = bytearray(), _MAX_DOCUMENT if size < 0 else size
        while self._damage is None and len(data) < (wanted if size < 0 or not self.head else 1):
            try:
                piece = self._file.read(min(wanted - len(data), _BLOCK))
            except _DAMAGE as error:
                self._damage = _unreadable(self.name, error)
            else:
                data += piece
                if not piece:
                    break
        if size < 0 and len(data) == _MAX_DOCUMENT:
            raise MachineError(f"{self.name} is a document of more than {_MAX_DOCUMENT >> 30} GB.")
        if self._damage is not None and (size < 0 or not data):
            raise self._damage
        self.head = self.head or bytes(data)
        return bytes(data)


def listed(name: str) -> list[str]:
    """Return the parts of a comma-separated list of files and directories; of any other name only itself."""
    parts = [part for part in name.split(",") if part]
    several = len(parts) > 1 and not _exists(name) and any(map(_exists, parts))
    return parts if several else [name]


def _exists(name: str) -> bool:
    return is_log_file(name) or Path(name).is_dir()


def expand(names: Iterable[str]) -> list[Source]:
    """List the files: a directory stands for all files and runs in and below it, except hidden ones.

    A comma-separated list stands for its parts. For skipped pipes, sockets and devices, UnreadWarning is
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
            kind = None
            with suppress(OSError):
                kind = _SPECIAL.get(stat.S_IFMT(full.stat().st_mode))
            if kind is not None:
                warnings.warn(f"{full} is {kind}: it was skipped.", UnreadWarning, stacklevel=2)
            else:
                yield Source(name=str(full), named=False)


_SPECIAL = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_NULL = os.makedev(1, 3)


def _refuse_device(path: Path, descriptor: int) -> None:
    """Raise MachineError for an open file that is a device such as /dev/zero, but not a terminal."""
    status = os.fstat(descriptor)
    device = stat.S_ISCHR(status.st_mode) or stat.S_ISBLK(status.st_mode)
    if device and status.st_rdev != _NULL and not os.isatty(descriptor):
        raise MachineError(f"{path} is a device, not a log.")


def open_logs(name: str) -> Iterator[LogStream]:
    """Yield the logs of a file: the file itself, or the members of an archive; ``-`` is standard input.

    Read each one before requesting the next. `ARCHIVE!MEMBER` is that member. Raise MachineError if the file
    or that member cannot be read.
    """
    if name == "-":
        if sys.stdin is None:
            raise MachineError("Standard input is closed.", hint="Specify a file, or pipe a log into it.")
        yield from _opened(source := _File("-", sys.stdin.buffer), "-", source)
        return
    path, member = _split(name)
    try:
        with path.open("rb") as file:
            _refuse_device(path, file.fileno())
            found = False
            for log in _opened(source := _File(str(path), file), str(path), source):
                if not member or log.name == name:
                    found = True
                    yield log
    except _DAMAGE as error:
        raise _unreadable(str(path), error) from error
    if member and not found:
        raise MachineError(f"{member} not found in {path}.")


def open_all(names: Sequence[str]) -> Iterator[LogStream]:
    """Yield the logs of files and members, in order; an archive is read once for consecutive members."""
    for path, group in groupby(names, key=lambda name: _split(name)[0]):
        requested = set(group)
        if str(path) in requested:
            yield from open_logs(str(path))
        else:
            yield from (log for log in open_logs(str(path)) if log.name in requested)


def is_plain(name: str) -> bool:
    """Return whether a file is neither compressed nor an archive. Raise OSError if it cannot be read."""
    with Path(name).open("rb") as file:
        head = file.read(_HEAD)
    packed = _first_of(_COMPRESSIONS, head) or _first_of(_UTF_16, head)
    return not (packed or head[_TAR_SIGN] == b"ustar" or head.startswith(_ZIP_SIGN))


def is_log_file(name: str) -> bool:
    """Return whether a name is that of a file or a pipe, or of a member of an archive."""
    path, _ = _split(name)
    return path.is_file() or path.is_fifo() or path.is_char_device()


def stem(name: str) -> str:
    """Return a file's name without directory, archive, and the suffixes of logs and compression."""
    if name == "-":
        return "stdin"
    path = PurePosixPath(name.rpartition(MEMBER_SIGN)[2] or name)
    while path.suffix in COMPRESSED:
        path = path.with_suffix("")
    return path.stem


def _split(name: str) -> tuple[Path, str]:
    path, sign, member = name.partition(MEMBER_SIGN)
    while sign and not Path(path).is_file():
        more, sign, member = member.partition(MEMBER_SIGN)
        path = f"{path}{MEMBER_SIGN}{more}"
    whole = Path(name)
    return (Path(path), member) if sign and not whole.is_file() else (whole, "")


def _unreadable(name: str, error: Exception) -> MachineError:
    if isinstance(error, MachineError):
        return error
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return MachineError(f"{name} cannot be read: {reason or type(error).__name__}")


# ---------------------------------------------------------------- compression and archives


class _File:
    """The file on disk, with counts of the bytes read from it and of those that were unpacked."""

    def __init__(self, name: str, file: Any) -> None:
        self.name, self.file, self.size, self._out = name, file, 0, 0

    def read(self, size: int = -1, /) -> bytes:
        data: bytes = self.file.read(size)
        self.size += len(data)
        return data

    def count(self, length: int) -> None:
        """Count bytes that were unpacked. Raise MachineError if there are too many."""
        self._out += length
        limit = f"{MAX_BYTES >> 30} GB" if self._out > MAX_BYTES else ""
        if self._out > _SMALL and self._out > MAX_RATIO * self.size:
            limit = f"{MAX_RATIO} times its size"
        if limit:
            raise MachineError(
                f"{self.name} decompresses to more than {limit}. If you trust it, unpack it and read its files."
            )


class _Stream:
    """A stream whose first bytes are known. If it is unpacked, its bytes count."""

    def __init__(self, file: Bytes, unpacked_of: _File | None = None) -> None:
        self._file, self.unpacked_of, self.head = file, unpacked_of, b""
        while len(self.head) < _HEAD and (more := self._next(_HEAD - len(self.head))):
            self.head += more
        self._left = self.head

    def read(self, size: int = -1, /) -> bytes:
        if not self._left:
            return self._next(size)
        data, self._left = (self._left[:size], self._left[size:]) if size >= 0 else (self._left, b"")
        return data

    def _next(self, size: int) -> bytes:
        data = self._file.read(size)
        if self.unpacked_of is not None:
            self.unpacked_of.count(len(data))
        return data


def _opened(file: Bytes, name: str, source: _File, *, inside: bool = False) -> Iterator[LogStream]:
    try:
        stream = _unpacked(file, source)
    except _DAMAGE as error:
        yield _refused(name, error)
        return
    members = _tar if stream.head[_TAR_SIGN] == b"ustar" else _zip if stream.head.startswith(_ZIP_SIGN) else None
    if members is None:
        yield LogStream(name, stream)
    elif inside:
        yield _refused(name, OSError(0, "it is an archive inside an archive; unpack it"))
    else:
        try:
            for shown, member, failed in members(stream, name, source):
                yield from [_refused(shown, failed)] if failed else _opened(member, shown, source, inside=True)
        except _DAMAGE as error:
            raise _unreadable(name, error) from error


def _unpacked(file: Bytes, source: _File) -> _Stream:
    """Return a stream without its compression, in UTF-8. One layer is unpacked, and a second one refused."""
    stream = _Stream(file)
    for known, unpacked_of in ((_COMPRESSIONS, source), (_UTF_16, None)):
        if opener := _first_of(known, stream.head):
            stream = _Stream(opener(stream), unpacked_of)
    if _first_of(_COMPRESSIONS, stream.head):
        raise OSError(0, "it is compressed more than once; unpack it")
    return stream


def _refused(name: str, error: Exception) -> LogStream:
    return LogStream(name, io.BytesIO(), _unreadable(name, error))


def _first_of(known: Sequence[tuple[bytes, Callable[[Any], Bytes]]], head: bytes) -> Callable[[Any], Bytes] | None:
    return next((opener for sign, opener in known if re.match(sign, head)), None)


class _Member(tarfile.TarInfo):
    """A member that limits the size of headers with names, which are read at once."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if not self.isreg() and self.size > _MAX_HEADER and self.type not in tarfile.REGULAR_TYPES:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc] # made to be overridden
        return member


def _tar(file: Any, name: str, source: _File) -> Iterator[tuple[str, Bytes, Exception | None]]:
    del source
    with tarfile.open(fileobj=file, mode="r|", tarinfo=_Member, bufsize=_BLOCK) as archive:
        for member in archive:
            shown = f"{name}{MEMBER_SIGN}{member.name.removeprefix('./')}"
            if _is_hidden(member.name):
                continue
            if member.issparse():
                yield shown, file, OSError(0, "it is a sparse file")
            elif member.isreg() and (inner := archive.extractfile(member)) is not None:
                yield shown, inner, None
            archive.members.clear()  # type: ignore[attr-defined] # it would keep them all
    while file.read(_BLOCK):
        pass  # damage shows at the end


def _zip(file: Any, name: str, source: _File) -> Iterator[tuple[str, Bytes, Exception | None]]:
    if file.unpacked_of or not source.file.seekable():
        yield name, file, OSError(0, "a zip archive in a pipe or a compressed file; pass the archive itself")
        return
    source.file.seek(0)
    with zipfile.ZipFile(source.file) as archive:
        source.size = source.file.seek(0, os.SEEK_END)
        for member in archive.infolist():
            if _is_hidden(member.filename) or member.is_dir():
                continue
            shown = f"{name}{MEMBER_SIGN}{member.filename}"
            try:
                with archive.open(member) as inner:
                    yield shown, _Stream(inner, source), None
            except (RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
                yield shown, file, error


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") and part not in {".", ".."} for part in name.split("/"))


def _zstd(file: Any) -> Bytes:
    """Decompress with Python's own module (3.14), or with the package zstandard."""
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.ZstdFile(file, options={zstd.DecompressionParameter.window_log_max: _WINDOW.bit_length() - 1})
    try:
        import zstandard
    except ImportError as error:
        raise MachineError(
            "zstd needs the package zstandard before Python 3.14: pip install 'fabbench[zstd]'"
        ) from error
    return _Zstandard(file, zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj, zstandard.ZstdError)


class _Zstandard:
    """Consecutive frames. The package's own reader takes a truncated one for the end."""

    def __init__(self, file: Bytes, new: Callable[[], Any], error: type[Exception]) -> None:
        self._file, self._new, self._error = file, new, error
        self._decoder, self._ready = new(), b""

    def read(self, size: int = -1, /) -> bytes:
        while not self._ready:
            ended = self._decoder.eof
            data = (self._decoder.unused_data if ended else b"") or self._file.read(1024)  # output has no limit
            if not data and not ended:
                raise EOFError("it ends before its end marker")
            if not data:
                return b""
            self._decoder = self._new() if ended else self._decoder
            try:
                self._ready = self._decoder.decompress(data)
            except self._error as error:
                raise OSError(0, str(error)) from error
        data, self._ready = (self._ready[:size], self._ready[size:]) if size >= 0 else (self._ready, b"")
        return data


def _utf16(file: Any, ending: str = "") -> Bytes:
    """Convert text to UTF-8. PowerShell's `>` writes it with a byte order mark, others without."""
    return codecs.EncodedFile(file, "utf-8", f"utf-16{ending}", "replace")


_COMPRESSIONS: Sequence[tuple[bytes, Callable[[Any], Bytes]]] = (
    (rb"\x1f\x8b", lambda file: gzip.GzipFile(fileobj=file, mode="rb")),
    (b"BZh", bz2.BZ2File),
    (rb"\xfd7zXZ\0", partial(lzma.LZMAFile, format=lzma.FORMAT_XZ)),
    (rb"\x28\xb5\x2f\xfd", _zstd),
)
_UTF_16 = (
    (rb"\xff\xfe|\xfe\xff", _utf16),
    (rb"(?:[^\0]\0){8}", partial(_utf16, ending="-le")),
    (rb"(?:\0[^\0]){8}", partial(_utf16, ending="-be")),
)
