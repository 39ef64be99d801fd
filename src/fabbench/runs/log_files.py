"""Files that hold logs: plain, compressed, and in archives. Nothing is unpacked to disk.

The first bytes of a file show its type: gzip, bzip2, xz, zstd, tar, zip, possibly nested, and UTF-16. Memory
use stays constant, and a file that expands more than logs do is refused.
"""

import codecs
import io
import os
import re
import stat
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Protocol

from fabbench.logs.learned_prefixes import UnreadWarning
from fabbench.model.errors import MachineError
from fabbench.runs.folders import REQUEST

if TYPE_CHECKING:
    from tarfile import TarInfo

MEMBER_SIGN = "!"
"""Separates the name of an archive from that of a file in it."""
MAX_BYTES = 16 << 30
"""Limit of the decompressed bytes of one file."""
MAX_RATIO = 500
"""Limit of the decompressed bytes per compressed byte, from `_SMALL` decompressed bytes on."""
_SMALL = 64 << 20
_MAX_LAYERS = 4
_MAX_DOCUMENT = 1 << 30
_MAX_HEADER = 1 << 20
_BLOCK = 1 << 18
_MEMORY = 256 << 20
"""Bytes of memory that a decompressor may use."""
_WINDOW = 128 << 20
_TAR_SIGN = slice(257, 262)
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


_ERRORS = {"zlib": "error", "lzma": "LZMAError", "tarfile": "TarError", "zipfile": "BadZipFile"}


def _damage() -> tuple[type[Exception], ...]:
    """Return the exceptions that reading a damaged file raises, of modules that are loaded."""
    used = ((sys.modules.get(module), error) for module, error in _ERRORS.items())
    return OSError, EOFError, *(getattr(module, error) for module, error in used if module)


class LogStream:
    """One log, decompressed. Reading raises MachineError if the file is damaged or too large."""

    def __init__(self, name: str, file: Bytes) -> None:
        self.name = name
        """Name of the file; `ARCHIVE!MEMBER` in an archive."""
        self.head = b""
        """The bytes that the first read returned."""
        self._file = file
        self._damage: Exception | None = None
        """The error that the next read raises."""

    def read(self, size: int = -1, /) -> bytes:
        """Return `size` bytes; see `Bytes`.

        The first read returns fewer only if the file has no more: prefixes are learned from these bytes.
        """
        if self._damage is not None:
            raise self._damage
        try:
            data = self._rest() if size < 0 else self._file.read(size) if self.head else self._first(size)
        except _damage() as error:
            raise _unreadable(self.name, error) from error
        self.head = self.head or data
        return data

    def _first(self, size: int) -> bytes:
        data = bytearray()
        try:
            while len(data) < size and (piece := self._file.read(size - len(data))):
                data += piece
        except Exception as error:
            if not data or not isinstance(error, (MachineError, *_damage())):
                raise
            # The data before the damage counts.
            self._damage = error if isinstance(error, MachineError) else _unreadable(self.name, error)
        return bytes(data)

    def _rest(self) -> bytes:
        pieces, length = [], 0
        while piece := self._file.read(_BLOCK):
            pieces.append(piece)
            length += len(piece)
            if length > _MAX_DOCUMENT:
                raise MachineError(f"{self.name} is a document of more than {_MAX_DOCUMENT >> 30} GB.")
        return b"".join(pieces)


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
            if kind := _special(full):
                warnings.warn(f"{full} is {kind}: it was skipped.", UnreadWarning, stacklevel=2)
            else:
                yield Source(name=str(full), named=False)


_SPECIAL = {stat.S_IFIFO: "a named pipe", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device"}
_NULL = os.makedev(1, 3)


def _special(path: Path) -> str:
    """Return what a special file is, such as a socket; empty for any other path."""
    try:
        return _SPECIAL.get(stat.S_IFMT(path.stat().st_mode), "")
    except OSError:
        return ""


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
        yield from _layers(_CountedFile("-", sys.stdin.buffer))
        return
    path, member = _split(name)
    try:
        with path.open("rb") as file:
            _refuse_device(path, file.fileno())
            found = False
            for log in _layers(_CountedFile(str(path), file)):
                if not member or log.name == name:
                    found = True
                    yield log
    except _damage() as error:
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
        head = file.read(512)
    return not (re.match(_SIGNS, head) or head[_TAR_SIGN] == b"ustar")


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
    """Return the file, and the requested member if it is an archive."""
    path, sign, member = name.partition(MEMBER_SIGN)
    while sign and not Path(path).is_file():
        more, sign, member = member.partition(MEMBER_SIGN)
        path = f"{path}{MEMBER_SIGN}{more}"
    whole = Path(name)
    return (Path(path), member) if sign and not whole.is_file() else (whole, "")


def _unreadable(name: str, error: Exception) -> MachineError:
    reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return MachineError(f"{name} cannot be read: {reason or type(error).__name__}")


# ---------------------------------------------------------------- layers


class _CountedFile:
    """The file on disk, with counts of the bytes read from it and of the bytes decompressed."""

    def __init__(self, name: str, file: Any) -> None:
        self.name = name
        self.file = file
        self.size = 0
        self._out = 0

    def read(self, size: int = -1, /) -> bytes:
        data: bytes = self.file.read(size)
        self.size += len(data)
        return data

    def count(self, length: int) -> None:
        """Count bytes that a layer produced. Raise MachineError if there are too many."""
        self._out += length
        limit = f"{MAX_BYTES >> 30} GB" if self._out > MAX_BYTES else ""
        if self._out > _SMALL and self._out > MAX_RATIO * self.size:
            limit = f"{MAX_RATIO} times its size"
        if limit:
            raise MachineError(
                f"{self.name} decompresses to more than {limit}. If you trust it, unpack it and read its files."
            )


class _Layer:
    """The output of one decompressor, or a stream after its first bytes were examined."""

    def __init__(self, file: Bytes, source: _CountedFile | None = None, head: bytes = b"") -> None:
        self._file, self._source, self._head = file, source, head

    def read(self, size: int = -1, /) -> bytes:
        if self._head:
            data, self._head = (self._head[:size], self._head[size:]) if size >= 0 else (self._head, b"")
            return data
        data = self._file.read(size)
        if self._source is not None:
            self._source.count(len(data))
        return data


class _Refusal:
    """Replaces a file that is not read: reading raises an error with the reason."""

    def __init__(self, why: str) -> None:
        self._why = why

    def read(self, size: int = -1, /) -> bytes:
        del size
        raise OSError(0, self._why)


def _layers(source: _CountedFile) -> Iterator[LogStream]:
    try:
        yield from _opened(source, source.name, source, 0)
    except _damage() as error:
        raise _unreadable(source.name, error) from error


def _opened(file: Bytes, name: str, source: _CountedFile, depth: int, *, inside: bool = False) -> Iterator[LogStream]:
    head = b""
    while len(head) < 512 and (more := file.read(512 - len(head))):
        head += more
    whole = _Layer(file, head=head)
    decompressor = next((each for sign, each in _DECOMPRESSORS if re.match(sign, head)), None)
    archive = head.startswith(b"PK\x03\x04") or head[_TAR_SIGN] == b"ustar"
    if (decompressor is not None or archive) and depth == _MAX_LAYERS:
        yield LogStream(name, _Refusal("it is compressed too many times"))
    elif decompressor is not None:
        try:
            inner = _Layer(decompressor(whole), source)
        except MachineError as error:
            inner = _Layer(_Refusal(str(error)))
        yield from _opened(inner, name, source, depth + 1, inside=inside)
    elif archive and inside:
        yield LogStream(name, _Refusal("it is an archive inside an archive; unpack it"))
    elif archive:
        yield from _tar(whole, name, source, depth) if head[_TAR_SIGN] == b"ustar" else _zip(name, source, depth)
    else:
        yield LogStream(name, whole)


@cache
def _tar_member() -> type["TarInfo"]:
    import tarfile

    class Member(tarfile.TarInfo):
        """A member that limits the size of headers with names, which are read at once."""

        def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
            if not self.isreg() and self.size > _MAX_HEADER and self.type not in tarfile.REGULAR_TYPES:
                raise tarfile.ReadError(f"a header of {self.size} bytes")
            member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc] # made to be overridden
            return member

    return Member


def _tar(file: Any, name: str, source: _CountedFile, depth: int) -> Iterator[LogStream]:
    import tarfile

    with tarfile.open(fileobj=file, mode="r|", tarinfo=_tar_member(), bufsize=_BLOCK) as archive:
        for member in archive:
            if _is_hidden(member.name) or member.isdir():
                continue
            inner = archive.extractfile(member) if member.isreg() and not member.issparse() else None
            shown = f"{name}{MEMBER_SIGN}{member.name.removeprefix('./')}"
            if inner is not None:
                yield from _opened(inner, shown, source, depth + 1, inside=True)
            elif member.issparse():
                yield LogStream(shown, _Refusal("it is a sparse file"))
            archive.members.clear()  # type: ignore[attr-defined] # it would keep them all
    while file.read(_BLOCK):
        pass  # damage shows at the end


def _zip(name: str, source: _CountedFile, depth: int) -> Iterator[LogStream]:
    if not source.file.seekable() or depth:
        yield LogStream(name, _Refusal("a zip archive in a pipe or a compressed file; pass the archive itself"))
        return
    import zipfile

    source.file.seek(0)
    with zipfile.ZipFile(source.file) as archive:
        source.size = source.file.seek(0, os.SEEK_END)
        for member in archive.infolist():
            if _is_hidden(member.filename) or member.is_dir():
                continue
            shown = f"{name}{MEMBER_SIGN}{member.filename}"
            try:
                inner = archive.open(member)
            except (RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
                yield LogStream(shown, _Refusal(str(error)))
                continue
            with inner:
                yield from _opened(_Layer(inner, source), shown, source, depth + 1, inside=True)


def _is_hidden(name: str) -> bool:
    return any(part.startswith(".") and part not in {".", ".."} for part in name.split("/"))


# ---------------------------------------------------------------- decompressors


class _Frames:
    """Consecutive compressed frames, with limits on memory. A truncated last frame is an error."""

    def __init__(self, file: Bytes, new: Callable[[], Any], error: type[Exception], step: int = _BLOCK) -> None:
        self._file, self._new, self._error, self._step = file, new, error, step
        self._decoder = new()
        self._ready = io.BytesIO()

    def read(self, size: int = -1, /) -> bytes:
        while not (chunk := self._ready.read(size)):
            data = b""
            if self._decoder.eof:
                data = self._decoder.unused_data.lstrip(b"\0") or self._file.read(self._step).lstrip(b"\0")
                if not data:
                    return b""
                self._decoder = self._new()
            elif getattr(self._decoder, "needs_input", True) and not (data := self._file.read(self._step)):
                raise EOFError("it ends before its end marker")
            self._ready = io.BytesIO(self._decode(data))
        return chunk

    def _decode(self, data: bytes) -> bytes:
        bounded = (_BLOCK,) if hasattr(self._decoder, "needs_input") else ()
        try:
            decoded: bytes = self._decoder.decompress(data, *bounded)
        except self._error as error:
            raise OSError(0, str(error)) from error
        return decoded


def _xz(file: Bytes) -> Bytes:
    import lzma

    new = partial(lzma.LZMADecompressor, format=lzma.FORMAT_XZ, memlimit=_MEMORY)
    return _Frames(file, new, lzma.LZMAError)


def _zstd(file: Bytes) -> Bytes:
    """Decompress with Python's own module (3.14), or with the package zstandard."""
    if sys.version_info >= (3, 14):
        from compression import zstd

        options = {zstd.DecompressionParameter.window_log_max: _WINDOW.bit_length() - 1}
        return _Frames(file, partial(zstd.ZstdDecompressor, options=options), zstd.ZstdError)
    try:
        import zstandard
    except ImportError as error:
        raise MachineError(
            "zstd needs the package zstandard before Python 3.14: pip install 'fabbench[zstd]'"
        ) from error
    decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    # Its output per call is unbounded, so limit it with few input bytes.
    return _Frames(file, decompressor.decompressobj, zstandard.ZstdError, step=1024)


def _gzip(file: Any) -> Bytes:
    import gzip

    return gzip.GzipFile(fileobj=file, mode="rb")


def _bzip2(file: Any) -> Bytes:
    import bz2

    return bz2.BZ2File(file)


def _utf16(file: Any, ending: str = "") -> Bytes:
    """Convert text to UTF-8. PowerShell's `>` writes it with a byte order mark, others without."""
    return codecs.EncodedFile(file, "utf-8", f"utf-16{ending}", "replace")


_DECOMPRESSORS = (
    (rb"\xff\xfe|\xfe\xff", _utf16),
    (rb"(?:[^\0]\0){8}", partial(_utf16, ending="-le")),
    (rb"(?:\0[^\0]){8}", partial(_utf16, ending="-be")),
    (rb"\x1f\x8b", _gzip),
    (b"BZh", _bzip2),
    (rb"\xfd7zXZ\0", _xz),
    (rb"\x28\xb5\x2f\xfd", _zstd),
)
_SIGNS = b"|".join((*(sign for sign, _ in _DECOMPRESSORS), rb"PK\x03\x04"))
