"""Files that hold logs: plain, compressed, and in archives. Nothing is unpacked to disk.

The first bytes of a file show its type: gzip, bzip2, xz, zstd, tar, zip, and UTF-16. A file, and each file of an
archive, has one layer of compression at most. Whatever it is, it is read as pieces of bytes, so that memory use stays
constant, and a file that expands to more than logs do is refused.
"""

import bz2
import codecs
import lzma
import os
import re
import sys
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Protocol, TypeAlias

from fabbench.logs.signs import UnreadWarning
from fabbench.model.errors import MachineError
from fabbench.runs.folders import REQUEST

MEMBER_SIGN = "!"
"""Separates the name of an archive from that of a file in it."""
MAX_BYTES = 16 << 30
"""Limit of the decompressed bytes of one file."""
_MAX_DOCUMENT = 1 << 30
_MAX_HEADER = 1 << 20
_BLOCK = 1 << 18
_AT_ONCE = 1 << 10
"""Bytes that are decompressed at once, as the result has no limit."""
_WINDOW = 128 << 20
"""Bytes of memory that zstd may use."""
_HEAD = 512
COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".tar", ".zip")
"""Endings of the names of such files that are useful to know before they are opened."""

Pieces: TypeAlias = Iterator[bytes]


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

    def __init__(self, name: str, pieces: Pieces) -> None:
        self.name = name
        """Name of the file; `ARCHIVE!MEMBER` in an archive."""
        self.head = b""
        """The bytes that the first read returned."""
        self._pieces, self._rest = pieces, b""
        self._damage: MachineError | None = None

    def read(self, size: int = -1, /) -> bytes:
        """Return `size` bytes, or all; see `Bytes`. The data before a damage counts: the next read raises the error."""
        wanted, found, length = _MAX_DOCUMENT if size < 0 else size, [self._rest], len(self._rest)
        try:
            while length < wanted and self._damage is None and (piece := next(self._pieces, None)) is not None:
                found.append(piece)
                length += len(piece)
        except _DAMAGE as error:
            self._damage = _unreadable(self.name, error)
        data = b"".join(found)
        data, self._rest = data[:wanted], data[wanted:]
        if size < 0 and len(data) == _MAX_DOCUMENT:
            raise MachineError(f"{self.name} is a document of more than {_MAX_DOCUMENT >> 30} GB.")
        if self._damage is not None and (size < 0 or not data):
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
            if os.path.exists(full) and not os.path.isfile(full):  # noqa: PTH110, PTH113 - raise no error
                warnings.warn(f"{full} is not a regular file: it was skipped.", UnreadWarning, stacklevel=2)
            else:
                yield Source(name=str(full), named=False)


def open_logs(name: str) -> Iterator[LogStream]:
    """Yield the logs of a file: the file itself, or the members of an archive; ``-`` is standard input.

    Read each one before requesting the next. `ARCHIVE!MEMBER` is that member. Raise MachineError if the file
    or that member cannot be read.
    """
    if (standard := name == "-") and sys.stdin is None:
        raise MachineError("Standard input is closed.", hint="Specify a file, or pipe a log into it.")
    path, member = _split(name)
    found = not member
    try:
        with nullcontext(sys.stdin.buffer) if standard else path.open("rb") as file:
            if not (standard or path.is_file() or path.is_fifo() or path.samefile(os.devnull) or file.isatty()):
                raise MachineError(f"{path} is a device, not a log.")
            for log in _opened(str(path), _pieces(file), _Limit(str(path)), None if standard else file):
                if not member or log.name == name:
                    found = True
                    yield log
    except _DAMAGE as error:
        raise _unreadable(str(path), error) from error
    if not found:
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
    return _first_of((*_COMPRESSIONS, *_UTF_16, *_ARCHIVES), head) is None


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


class _Limit:
    """Counts the bytes that a file is unpacked to."""

    def __init__(self, name: str) -> None:
        self._name, self._left = name, MAX_BYTES

    def counted(self, pieces: Pieces) -> Pieces:
        """Yield the pieces. Raise MachineError if there are too many."""
        for piece in pieces:
            self._left -= len(piece)
            if self._left < 0:
                raise MachineError(
                    f"{self._name} decompresses to more than {MAX_BYTES >> 30} GB. "
                    "If you trust it, unpack it and read its files."
                )
            yield piece


def _opened(
    name: str, pieces: Pieces, limit: _Limit, file: BinaryIO | None = None, *, inside: bool = False
) -> Iterator[LogStream]:
    """Yield the logs in a file, which is on disk if it is given, or `inside` an archive."""
    head, pieces = _begun(pieces)
    for known in (_COMPRESSIONS, _UTF_16):
        if (unpacked := _first_of(known, head)) is not None:
            head, pieces = _begun(limit.counted(unpacked(pieces)))
            file = None
    members, refused = _first_of(_ARCHIVES, head), ""
    if _first_of(_COMPRESSIONS, head):
        refused = "it is compressed more than once; unpack it"
    elif members and inside:
        refused = "it is an archive inside an archive; unpack it"
    elif members is _zip and file is None:
        refused = "a zip archive in a pipe or a compressed file; pass the archive itself"
    if members is None or refused:
        yield LogStream(name, _raising(OSError(0, refused)) if refused else pieces)
        return
    for member, inner in members(file, limit) if members is _zip else members(LogStream(name, pieces)):
        if not any(part.startswith(".") and part not in {".", ".."} for part in member.split("/")):
            yield from _opened(f"{name}{MEMBER_SIGN}{member}", inner, limit, inside=True)


def _pieces(file: Any) -> Pieces:
    return iter(partial(file.read, _BLOCK), b"")


def _raising(error: Exception) -> Pieces:
    yield from ()
    raise error


def _begun(pieces: Pieces) -> tuple[bytes, Pieces]:
    """Return the first bytes of pieces, and all of them. An error is raised when what is before it has been read."""
    head = b""
    try:
        while len(head) < _HEAD and (piece := next(pieces, None)) is not None:
            head += piece
    except _DAMAGE as error:
        pieces = _raising(error)
    return head, chain([head], pieces)


def _first_of(known: Sequence[tuple[bytes, Callable[..., Any]]], head: bytes) -> Callable[..., Any] | None:
    return next((opener for sign, opener in known if re.match(sign, head)), None)


class _Member(tarfile.TarInfo):
    """A member that limits the size of headers with names, which are read at once."""

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if not self.isreg() and self.size > _MAX_HEADER and self.type not in tarfile.REGULAR_TYPES:
            raise tarfile.ReadError(f"a header of {self.size} bytes")
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc] # made to be overridden
        return member


def _tar(file: Any) -> Iterator[tuple[str, Pieces]]:
    with tarfile.open(fileobj=file, mode="r|", tarinfo=_Member, bufsize=_BLOCK) as archive:
        for member in archive:
            if member.issparse():
                yield member.name, _raising(OSError(0, "it is a sparse file"))
            elif member.isreg():
                yield member.name.removeprefix("./"), _pieces(archive.extractfile(member))
            archive.members.clear()  # type: ignore[attr-defined] # it would keep them all
    while file.read(_BLOCK):
        pass  # damage shows at the end


def _zip(file: BinaryIO, limit: _Limit) -> Iterator[tuple[str, Pieces]]:
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if not member.is_dir():
                yield member.filename, limit.counted(_unzipped(archive, member))


def _unzipped(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Pieces:
    try:
        with archive.open(member) as inner:
            yield from _pieces(inner)
    except RuntimeError as error:  # it is encrypted, or compressed in another way
        raise OSError(0, str(error)) from error


def _decompressed(new: Callable[[], Any], pieces: Pieces) -> Pieces:
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
        raise EOFError("it ends before its end marker")


def _zstd() -> Any:
    """Return a decompressor of Python's own module (3.14), or of the package zstandard."""
    if sys.version_info >= (3, 14):
        from compression import zstd

        return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW.bit_length() - 1})
    try:
        import zstandard
    except ImportError as error:
        raise MachineError(
            "zstd needs the package zstandard before Python 3.14: pip install 'fabbench[zstd]'"
        ) from error
    return zstandard.ZstdDecompressor(max_window_size=_WINDOW).decompressobj()


def _utf16(pieces: Pieces, ending: str = "") -> Pieces:
    """Convert text to UTF-8. PowerShell's `>` writes it with a byte order mark, others without."""
    return (text.encode() for text in codecs.iterdecode(pieces, f"utf-16{ending}", "replace"))


_COMPRESSIONS: Sequence[tuple[bytes, Callable[..., Any]]] = (
    (rb"\x1f\x8b", partial(_decompressed, partial(zlib.decompressobj, zlib.MAX_WBITS | 16))),
    (b"BZh", partial(_decompressed, bz2.BZ2Decompressor)),
    (rb"\xfd7zXZ\0", partial(_decompressed, partial(lzma.LZMADecompressor, lzma.FORMAT_XZ))),
    (rb"\x28\xb5\x2f\xfd", partial(_decompressed, _zstd)),
)
_UTF_16: Sequence[tuple[bytes, Callable[..., Any]]] = (
    (rb"\xff\xfe|\xfe\xff", _utf16),
    (rb"(?:[^\0]\0){8}", partial(_utf16, ending="-le")),
    (rb"(?:\0[^\0]){8}", partial(_utf16, ending="-be")),
)
_ARCHIVES: Sequence[tuple[bytes, Callable[..., Any]]] = ((rb"(?s).{257}ustar", _tar), (rb"PK\x03\x04", _zip))
