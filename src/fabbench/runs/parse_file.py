"""A file → judged logs. Memory is bounded by one execution, not by the file, and nothing is unpacked to disk.

The first bytes of a file show its type: gzip, bzip2, xz, zstd, and UTF-16. A file has one layer of compression at
most. A file that expands to more than logs do is refused; so are archives.
"""

import bz2
import codecs
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fabbench.benchmarks import benchmarks
from fabbench.evidence.judge import judge
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.logs.parser import LONGEST_LINE, LogParser, logs
from fabbench.model.errors import MachineError
from fabbench.model.log import MARKER_SIGN, Ending, Log, Proof
from fabbench.model.patterns import lazy
from fabbench.runs.result_tables import is_table, table_logs

if TYPE_CHECKING:
    from _typeshed import SupportsRead

Pieces: TypeAlias = Iterator[bytes]

BLOCK = 1 << 18
MAX_BYTES = 16 << 30  # Limit of the decompressed bytes of one file
_AT_ONCE = 1 << 10  # Bytes that are decompressed at once, as the result has no limit
_HEAD = 512
_MAX_DOCUMENT = 1 << 27  # Limit in bytes of a document, which is read whole; a larger file is not a document
_CONFIGURATION = lazy(rf"{MARKER_SIGN}(?:begin|nics) \d+-(\S+)-r\d+[/ ]")


def parse_file(path: str | Path, *, proof: Proof | None = None, ending: Ending | None = None) -> Iterator[Log]:
    """Read a log file, a document such as nccl-tests' JSON, or fabbench's own `output.log`.

    It may be compressed. Raise MachineError if the file cannot be read; a file without any known output yields no log.
    """
    with open_log(str(path)) as file:
        yield from (log for _, log in parse_stream(file, str(path), proof=proof, ending=ending))


def parse_together(names: Sequence[str], *, proof: Proof | None = None) -> list[Log]:
    """Read the files that the processes of a job wrote (NCCL_DEBUG_FILE) as one text.

    Raise MachineError if a file cannot be read.
    """
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    parser = LogParser(f"{names[0]}{more}", proof=proof, live=False)
    read = list[Log]()
    for name in names:
        with open_log(name) as file:
            read += (log for text in _blocks(file.read(BLOCK), file) for log in logs(parser.feed_text(text)))
    return [*read, *logs(parser.close(None))]


def within(log: Log, sizes: range | None) -> Log:
    """Return a log with the rows of some sizes; None: of all. What the log shows besides stays as it is."""
    return log if sizes is None else replace(log, points=[point for point in log.points if point.size in sizes])


def parse_stream(  # noqa: PLR0913 - what is known about a log
    file: "SupportsRead[bytes]",
    source: str,
    *,
    proof: Proof | None = None,
    ending: Ending | None = None,
    tables: bool = False,
    line: int = 0,
) -> Iterator[tuple[str, Log]]:
    """Read an open binary stream; with `tables`, also fabbench's own JSON and CSV. `line`: the number of that before.

    Each log comes with its configuration, which the output of a fabbench script names, and tables as columns.
    """
    block = file.read(BLOCK)
    if candidates := [benchmark for benchmark in benchmarks().values() if benchmark.is_document(block)]:
        text = _whole(block, file)
        record = next(filter(None, (benchmark.document(text) for benchmark in candidates)), None)
        if record is not None:
            yield "", judge(record, source=source, proof=proof, ending=ending)
            return
        block = text.encode()
    begin, marked = block.decode("utf-8", "replace"), MARKER_SIGN.encode() in block
    if tables and is_table(begin):
        yield from table_logs(_whole(block, file), source, proof)
        return
    # No prefix is learned if fabbench itself wrote the first line.
    sample = [] if begin.startswith(MARKER_SIGN) else begin.replace("\r\n", "\n").split("\n")
    # Each part has its own parser: what one configuration, or repeat, has printed is no evidence about another.
    make = partial(LogParser, source, proof=proof, live=False, line=line)
    parser, current, preamble, damage = make(prefixes=Prefixes(sample)), "", list[str](), None
    try:
        for configuration, text in _by_configuration(_blocks(block, file)):
            if current and configuration != current:
                yield from ((current, log) for log in logs(parser.close(None)))
                parser = make(prefixes=Prefixes(sample))
                for each in preamble:
                    parser.feed_text(each)
            current = configuration
            if not current and marked:
                preamble.append(text)
            yield from ((current, log) for log in logs(parser.feed_text(text)))
    except MachineError as error:
        damage, ending = error, Ending(stopped="The file could not be read to its end.")
    yield from ((current, log) for log in logs(parser.close(ending)))
    if damage is not None:
        raise damage


def _by_configuration(blocks: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield text with its configuration: that of the last marker; empty before the first marker."""
    configuration = ""
    for text in blocks:
        begin, lines = 0, text.split("\n") if MARKER_SIGN in text else [text]
        for number, line in enumerate(lines):
            match = _CONFIGURATION.search(line) if MARKER_SIGN in line else None
            if match and match[1] != configuration:
                if number > begin:
                    yield configuration, "\n".join(lines[begin:number])
                configuration, begin = match[1], number
        yield configuration, "\n".join(lines[begin:])


def _whole(block: bytes, file: "SupportsRead[bytes]") -> str:
    """Read the rest of a document. Raise MachineError if it is too large for one."""
    whole = bytearray(block)
    while more := file.read(BLOCK):
        whole += more
        if len(whole) > _MAX_DOCUMENT:
            raise MachineError(
                f"It starts like a document, such as JSON, but is larger than {_MAX_DOCUMENT >> 20} MiB.",
                hint="Pass the text output of the program instead.",
            )
    return whole.decode("utf-8", "replace")


def _blocks(block: bytes, file: "SupportsRead[bytes]") -> Iterator[str]:
    """Yield the text in blocks of whole lines; a carriage return before a newline is part of the newline."""
    rest = b""
    while block:
        whole, newline, tail = block.rpartition(b"\n")
        if newline:
            text = (rest + whole).decode("utf-8", "replace")
            yield text.replace("\r\n", "\n").removesuffix("\r") if "\r" in text else text
            rest = tail
        elif len(rest) < 8 * LONGEST_LINE:
            rest += block
        block = file.read(BLOCK)
    if rest:
        yield rest.decode("utf-8", "replace").rstrip("\r")


# ---------------------------------------------------------------- opened


class LogStream:
    """One log, decompressed. Reading raises MachineError if the file is damaged or too large."""

    def __init__(self, name: str, pieces: Pieces) -> None:
        self.head = b""
        """The bytes that the first read returned, and of a large one the first."""
        self._name, self._pieces, self._rest = name, pieces, b""
        self._damage: MachineError | None = None

    def read(self, size: int = BLOCK, /) -> bytes:
        """Return `size` bytes, or fewer at the end. The data before a damage counts: the next read raises the error."""
        found, length = [self._rest], len(self._rest)
        try:
            while length < size and self._damage is None and (piece := next(self._pieces, None)) is not None:
                found.append(piece)
                length += len(piece)
        except MachineError as error:
            self._damage = error
        except OSError as error:
            self._damage = _unreadable(self._name, error)
        data = b"".join(found)
        data, self._rest = data[:size], data[size:]
        if self._damage is not None and not data:
            raise self._damage
        self.head = self.head or data[:BLOCK]
        return data

    def put_back(self, data: bytes) -> None:
        """Let the next read begin with what others have returned."""
        self._rest = data + self._rest


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
            yield LogStream(name, _decompressed(name, iter(partial(file.read, BLOCK), b"")))
    except OSError as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: OSError) -> MachineError:
    return MachineError(f"{name} cannot be read: {error.strerror or str(error) or type(error).__name__}")


def _decompressed(name: str, pieces: Pieces) -> Pieces:
    """Yield what a file holds, as UTF-8. Raise MachineError if it is too large, or an archive."""
    head, pieces = _begun(pieces)
    for known in (_COMPRESSIONS, _UTF_16):
        for unpack in [unpack for sign, unpack in known if re.match(sign, head)]:
            head, pieces = _begun(_limited(name, unpack(pieces)))
    if any(re.match(sign, head) for sign, _ in _COMPRESSIONS):
        raise MachineError(f"{name} is compressed more than once: unpack it.")
    if re.match(rb"(?s).{257}ustar|PK\x03\x04", head):
        raise MachineError(f"{name} is an archive: unpack it, and pass its folder.")
    yield from pieces


def _begun(pieces: Pieces) -> tuple[bytes, Pieces]:
    """Return the first bytes of pieces, and all of them."""
    head = b""
    while len(head) < _HEAD and (piece := next(pieces, None)) is not None:
        head += piece
    return head, chain([head], pieces)


def _limited(name: str, pieces: Pieces) -> Pieces:
    left = MAX_BYTES
    for piece in pieces:
        left -= len(piece)
        if left < 0:
            raise MachineError(f"{name} decompresses to more than {MAX_BYTES >> 30} GB. If you trust it, unpack it.")
        yield piece


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
