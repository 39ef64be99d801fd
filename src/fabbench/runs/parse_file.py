"""A file → judged logs.

Memory is bounded by one execution, not by the file, and nothing is unpacked to disk.

The first bytes of a file show its type: gzip, bzip2, xz, zstd, and UTF-16. A file has one layer of
compression at most. A file that expands to more than logs do is refused; so are archives.
"""

import bz2
import codecs
import lzma
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from fabbench.benchmarks import benchmarks
from fabbench.evidence.flight_recorder import Dump, is_dump, read_dump, record_of
from fabbench.evidence.inspector import SIGN as INSPECTOR_SIGN
from fabbench.evidence.inspector import records
from fabbench.evidence.judge import judge
from fabbench.evidence.ras import SIGN as RAS_SIGN
from fabbench.evidence.ras import read_ras
from fabbench.logs.copied import unwrapped, without_margin
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.logs.parser import LONGEST_ENTRY, LogParser, Result, logs
from fabbench.logs.signs import is_binary, made_by_fabbench
from fabbench.model.errors import MachineError
from fabbench.model.log import MARKER_SIGN, Ending, Log, Proof, Record
from fabbench.model.patterns import lazy, with_usual_numbers
from fabbench.model.units import Sizes, format_size
from fabbench.model.values import T

Pieces: TypeAlias = Iterator[bytes]
Bytes: TypeAlias = "LogStream | BinaryIO"
LabeledLogs: TypeAlias = Iterator[tuple[str, Log]]
"""Logs, each after its configuration, or its column of a comparison; empty: it has none."""


BLOCK = 1 << 18
MAX_BYTES = 16 << 30  # Limit of the decompressed bytes of one file
_AT_ONCE = 1 << 10  # Bytes that are decompressed at once, as the result has no limit
_NO_ERRNO = 0  # Of an OSError for a file whose content is at fault, not the system
_HEAD = 512
"""Bytes that show what a file is: the sign of a tar archive ends at 262."""
_MAX_DOCUMENT = 1 << 27
"""Limit in bytes of a document, which is read whole; a larger file is not a document."""
_COPIED: Mapping[int, str | None] = {
    **dict.fromkeys((0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F), " "),
    **dict.fromkeys((0x200B, 0x2060, 0xFEFF), None),
    0x3000: "  ",
    0x2212: "-",
}
"""Blanks that keep a line together or are narrow or wide, signs without a width, and the minus."""
_UNUSUAL = lazy(f"[{''.join(map(chr, _COPIED))}]")  # translating takes ten times as long
_TICKET = r"\{(?:code|noformat)\b[^{}\s]*\}"  # around a text in Jira
_HTML = lazy(
    rf"{_TICKET}|&(?:nbsp|[lg]t|amp|quot|#\d+|#x[\da-fA-F]+);|<(?:br|pre|p|div|code|span|html)\b[^<>]*>"
)
_LINE_END = lazy(r"(?:<br ?/?>|</(?:p|div|li|tr)>)(?!\n|\Z)")
_TAG = lazy(rf"{_TICKET}|</?(?:br|pre|p|div|li|tr|td|code|span|samp|b|strong|html|body)\b[^<>]*>")
_MOST_LINES_AHEAD = 50_000
"""Of those before the first marker, about as many are kept for the configurations below."""
_MARKDOWN_ESCAPE = lazy(r"\\([#*_[\]])")
_LONGEST_COPY = 1 << 17
"""Characters that people copy from a terminal's window; a larger text is a file."""
_LOST = lazy(r"\0+")  # data that never came to the disk, or were cut off in place
_COLOR_WORD = lazy(r"(?:\^\[\[[\d;]*|\x1b?\[\d{1,2}(?:;\d{1,3}){0,4})[mK]")
_CONFIGURATION = lazy(rf"{MARKER_SIGN}(?:begin|nics) \d+-(\S+)-r\d+[/ ]")


def parse_file(
    path: str | Path, *, proof: Proof | None = None, ending: Ending | None = None
) -> Iterator[Log]:
    """Read a log file, a document such as nccl-tests' JSON, or fabbench's own `output.log`.

    It may be compressed. Raise MachineError if the file cannot be read; a file without any known
    output yields no log.
    """
    name = str(path)
    with open_log(name) as file:
        for _, log in parse_stream(file, name, proof=proof, ending=ending):
            yield log


def parse_together(names: Sequence[str], *, proof: Proof | None = None) -> list[Log]:
    """Read the files that the processes of a job wrote (NCCL_DEBUG_FILE, inspector) as one text.

    If some are dumps of the flight recorder, these are one log, and the others are left out.
    Raise MachineError if a file cannot be read.
    """
    others = len(names) - 1
    more = f" and {others} more" if others else ""
    source = f"{names[0]}{more}"
    dumps = list(_dumps(names))
    if dumps:
        return [judge(record_of(dumps), source=source, proof=proof)]
    whole = LogStream(source, _pieces(names))
    return [log for _, log in parse_stream(whole, source, proof=proof)]


def _pieces(names: Sequence[str]) -> Pieces:
    """Yield the bytes of files, of which each ends a line."""
    for name in names:
        with open_log(name) as file:
            yield from iter(file.read, b"")
            yield b"\n"


def _dumps(names: Sequence[str]) -> Iterator[Dump]:
    """Yield the dumps of PyTorch's flight recorder among files."""
    for name in names:
        with open_log(name) as file:
            block = file.read(BLOCK)
            if is_dump(block):
                yield read_dump(_whole_bytes(block, file), name)


def within(log: Log, sizes: Sizes | None) -> Log:
    """Return a log with the rows of some sizes; None: of all.

    What the log shows besides stays as it is.
    """
    if sizes is None:
        return log
    return replace(log, points=[point for point in log.points if point.size in sizes])


def parse_stream(  # noqa: PLR0913 - what is known about a log
    file: Bytes,
    source: str,
    *,
    proof: Proof | None = None,
    ending: Ending | None = None,
    tables: bool = False,
    line: int = 0,
) -> LabeledLogs:
    """Read an open binary stream; with `tables`, also fabbench's own JSON.

    Tried in this order: a dump of PyTorch's flight recorder, lines of NCCL's inspector, a document
    of a benchmark, one of fabbench's own, which quotes lines of logs and is none, and last a plain
    log; binary data are none. `line` is the number of the line before. Each log comes with its
    configuration, which the output of a fabbench script names, or its column of a comparison;
    empty: it has none.
    """
    block = file.read(BLOCK)
    if is_dump(block):
        dump = read_dump(_whole_bytes(block, file), source)
        recorded = record_of([dump])
        yield "", judge(recorded, source=source, proof=proof, ending=ending)
        return
    if INSPECTOR_SIGN in block[:_HEAD]:
        texts = _blocks(block, file)
        lines = chain.from_iterable(text.split("\n") for text in texts)
        for calls in records(lines):
            yield "", judge(calls, source=source, proof=proof, ending=ending)
        return
    readers = list(_document_readers(block))
    if readers:
        text = _whole_text(block, file)
        record = next(filter(None, (read(text) for read in readers)), None)
        if record is not None:
            yield "", judge(record, source=source, proof=proof, ending=ending)
            return
        block = text.encode()  # no document after all: a log
    beginning = block.decode("utf-8", "replace")
    own = made_by_fabbench(beginning)
    if own:
        if tables and own["json"]:
            from fabbench.runs.result_tables import logs_of_document

            yield from logs_of_document(_whole_text(block, file), source, proof)
        return
    # What fabbench itself started is a log, and so is what follows the text of one.
    if ending is None and not line and is_binary(beginning):
        return
    # Not live: it returns whole logs, and no rows before.
    new_parser = partial(LogParser, source, proof=proof, live=False, line=line)
    yield from _ConfigurationLogs(new_parser, ending).read(block, file)


def _document_readers(block: bytes) -> Iterator[Callable[[str], Record | None]]:
    """Yield readers of the documents that a file may be, by its beginning."""
    if RAS_SIGN in block:  # a dump of NCCL's RAS
        yield read_ras
    for benchmark in benchmarks().values():
        if benchmark.is_document(block):
            yield benchmark.document


@dataclass
class _ConfigurationLogs:
    """The logs of each configuration, or repeat, in a text.

    Each has its own parser: what one has printed is no evidence about another.
    """

    new_parser: Callable[..., LogParser]
    ending: Ending | None  # How the last one ended; None: nothing but the text says it

    def read(self, block: bytes, file: Bytes) -> LabeledLogs:
        """Yield logs with their configurations, from a block and what follows it.

        Raise MachineError for a damaged file, in the end.
        """
        blocks = _blocks(block, file)
        first = next(blocks, "")
        prefixes = _sample_of_prefixes(block.decode("utf-8", "replace"), first)
        preamble: list[str] = []  # Lines before the first marker, which each parser reads first
        parser = self.new_parser(prefixes=Prefixes(prefixes))
        current = ""  # Before the first marker; its configuration goes on with this parser
        ending = self.ending
        damage: MachineError | None = None
        try:
            for configuration, lines in _by_configuration(chain([first], blocks)):
                if current and configuration != current:
                    # Only of the last one it is known how it ended.
                    yield from _with_configuration(current, parser.close(ending=None))
                    parser = self.new_parser(prefixes=Prefixes(prefixes))
                    parser.feed_lines(preamble)
                current = configuration
                # Without a marker it would be the whole of a long text.
                if not current and len(preamble) < _MOST_LINES_AHEAD:
                    preamble += lines
                yield from _with_configuration(current, parser.feed_lines(lines))
        except MachineError as error:
            damage = error
            ending = Ending(stopped="The file could not be read to its end.")
        yield from _with_configuration(current, parser.close(ending))
        if damage is not None:
            raise damage


def _with_configuration(configuration: str, results: Iterable[Result]) -> LabeledLogs:
    for log in logs(results):
        yield configuration, log


def _sample_of_prefixes(beginning: str, whole_lines: str) -> list[str]:
    """Return lines to learn prefixes from; none if fabbench's own first line stands without any.

    The last of them is what follows the `whole_lines`, and may be cut.
    """
    if beginning.startswith(MARKER_SIGN):
        return []
    cut_line = beginning.rpartition("\n")[2]
    return [*whole_lines.replace("\r", "\n").split("\n"), cut_line]


def _by_configuration(blocks: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield lines with their configuration: that of the last marker.

    Empty before the first marker.
    """
    configuration = ""
    for text in blocks:
        lines = text.split("\n")
        begin = 0
        for number, name in _markers(lines) if MARKER_SIGN in text else []:
            if name == configuration:
                continue
            if number > begin:
                yield configuration, lines[begin:number]
            configuration = name
            begin = number
        yield configuration, lines[begin:]


def _markers(lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield the places of markers that name a configuration, and the names."""
    for number, line in enumerate(lines):
        match = _CONFIGURATION.search(line) if MARKER_SIGN in line else None
        if match:
            yield number, match[1]


def _whole_text(block: bytes, file: Bytes) -> str:
    """Read the rest of a document. Raise MachineError if it is too large for one."""
    return _whole_bytes(block, file).decode("utf-8", "replace")


def _whole_bytes(block: bytes, file: Bytes) -> bytes:
    whole = block + file.read(_MAX_DOCUMENT)
    if len(whole) > _MAX_DOCUMENT:
        limit = _MAX_DOCUMENT >> 20
        raise MachineError(
            f"It starts like a document, such as JSON, but is larger than {limit} MiB.",
            hint="Pass the text output of the program instead.",
        )
    return whole


def _blocks(block: bytes, file: Bytes) -> Iterator[str]:
    """Yield the text in blocks of whole lines.

    A carriage return before a newline is part of the newline.
    """
    rest = b""  # The line that the last block cut
    while block:
        whole, newline, tail = block.rpartition(b"\n")
        if newline:
            text = (rest + whole).decode("utf-8", "replace")
            if "\r" in text:
                text = text.replace("\r\n", "\n").removesuffix("\r")
            yield as_printed(text)
            rest = tail
        elif len(rest) < 8 * LONGEST_ENTRY:  # of a longer line the middle is left out
            rest += block
        block = file.read(BLOCK)
    if rest:
        text = rest.decode("utf-8", "replace")
        yield as_printed(text.rstrip("\r"))


def as_printed(text: str) -> str:
    """Undo what pages, tickets, editors and windows do to a text.

    HTML, escapes, unusual blanks, colors that lost their ESC, lines that were cut; and numbers of a
    damaged text.
    """
    text = with_usual_numbers(text)
    # A rare character is found far more quickly than a pattern; tickets write {noformat}.
    may_be_html = "&" in text or "{" in text or _may_be_page(text)
    if may_be_html and _HTML.search(text):
        import html  # most logs have none

        lines = _LINE_END.sub("\n", text)
        text = html.unescape(_TAG.sub("", lines))
    if "\0" in text:  # a gap of any length, which ends the line before it
        text = _LOST.sub("\n", text)
    if "\\" in text:
        text = _MARKDOWN_ESCAPE.sub(r"\1", text)
    if "[0m" in text or ("^" in text and "^[[" in text):
        text = _COLOR_WORD.sub("", text)
    if not text.isascii() and _UNUSUAL.search(text):
        text = text.translate(_COPIED)
    return unwrapped(without_margin(text)) if len(text) < _LONGEST_COPY else text


def _may_be_page(text: str) -> bool:  # of HTML
    if "<" not in text:
        return False
    return "</" in text or "<br" in text or "<pre" in text


# ---------------------------------------------------------------- opened


class LogStream:
    """One log, decompressed. Reading raises MachineError if the file is damaged or too large."""

    def __init__(self, name: str, pieces: Pieces) -> None:
        self.head = b""
        """The bytes that the first read returned, at most `BLOCK` of them."""
        self._name = name
        self._pieces = pieces
        self._rest = b""  # Decompressed, but not returned yet
        self._damage: MachineError | None = None

    def read(self, size: int = BLOCK, /) -> bytes:
        """Return `size` bytes, or fewer at the end.

        The data before a damage counts: the next read raises the error.
        """
        pieces = [self._rest]
        length = len(self._rest)
        while length < size:
            piece = self._next_piece()
            if piece is None:
                break
            pieces.append(piece)
            length += len(piece)
        data = b"".join(pieces)
        self._rest = data[size:]
        data = data[:size]
        if self._damage is not None and not data:
            raise self._damage
        self.head = self.head or data[:BLOCK]
        return data

    def _next_piece(self) -> bytes | None:
        """Return what follows; None at the end, or from a damage on, which is kept."""
        if self._damage is None:
            try:
                return next(self._pieces, None)
            except MachineError as error:
                self._damage = error
            except OSError as error:
                self._damage = _unreadable(self._name, error)
        return None

    def put_back(self, data: bytes) -> None:
        """Let the next read begin with data that has been read."""
        self._rest = data + self._rest


@contextmanager
def open_log(name: str) -> Iterator[LogStream]:
    """Open a file; ``-`` is standard input. Raise MachineError if it cannot be read."""
    path = Path(name)
    standard = name == "-"
    if standard and sys.stdin is None:
        raise MachineError(
            "Standard input is closed.", hint="Specify a file, or pipe a log into it."
        )
    try:
        with nullcontext(sys.stdin.buffer) if standard else path.open("rb") as file:
            if not standard:
                _require_log(path, file)
            blocks = iter(partial(file.read, BLOCK), b"")
            yield LogStream(name, _decompressed(name, blocks))
    except OSError as error:
        raise _unreadable(name, error) from error


def _require_log(path: Path, file: BinaryIO) -> None:
    """Raise MachineError for a device; terminals and the null device are read like files."""
    if path.is_file() or path.is_fifo():
        return
    if not path.samefile(os.devnull) and not file.isatty():
        raise MachineError(f"{path} is a device, not a log.")


def _unreadable(name: str, error: OSError) -> MachineError:
    why = error.strerror or str(error) or type(error).__name__
    return MachineError(f"{name} cannot be read: {why}")


def _decompressed(name: str, pieces: Pieces) -> Pieces:
    """Yield what a file holds, as UTF-8. Raise MachineError if it is too large, or an archive.

    One compression is undone, and then one encoding, each if the first bytes show it.
    """
    head, pieces = _with_head(pieces)
    # No first bytes fit two signatures: each loop runs once at most.
    for new_decompressor in _matching_signature(_COMPRESSIONS, head):
        head, pieces = _with_head(_unpacked(new_decompressor, pieces))
    for encoding in _matching_signature(_ENCODINGS, head):
        decoded = codecs.iterdecode(pieces, encoding, "replace")
        head, pieces = _with_head(text.encode() for text in decoded)
    if _matching_signature(_COMPRESSIONS, head):
        raise MachineError(f"{name} is compressed more than once: unpack it.")
    if re.match(rb"(?s).{257}ustar|PK\x03\x04", head):  # tar, zip
        raise MachineError(f"{name} is an archive: unpack it, and pass its folder.")
    yield from pieces


def _matching_signature(kinds: Mapping[bytes, T], head: bytes) -> list[T]:
    """Return the kinds whose signature, a pattern, fits the first bytes of a file."""
    return [kind for signature, kind in kinds.items() if re.match(signature, head)]


def _with_head(pieces: Pieces) -> tuple[bytes, Pieces]:
    """Return the first `_HEAD` bytes, or more, and pieces that still begin with them."""
    head = b""
    for piece in pieces:
        head += piece
        if len(head) >= _HEAD:
            break
    return head, chain([head], pieces)


def _unpacked(new_decompressor: Callable[[], Any], pieces: Pieces) -> Pieces:
    """Yield what a compressed file holds.

    Raise OSError if it is damaged, or holds more than `MAX_BYTES`.
    """
    bytes_left = MAX_BYTES
    for piece in _contents_of_frames(new_decompressor, pieces):
        bytes_left -= len(piece)
        if bytes_left < 0:
            limit = format_size(MAX_BYTES)
            why = f"it decompresses to more than {limit}. If you trust it, unpack it."
            raise OSError(_NO_ERRNO, why)
        yield piece


def _contents_of_frames(new_decompressor: Callable[[], Any], pieces: Pieces) -> Pieces:
    """Yield what consecutive frames hold: each has its decompressor, and zeros may pad it."""
    frame = new_decompressor()
    for piece in _cut(pieces):
        rest = piece.lstrip(b"\0") if frame.eof else piece
        while rest:
            if frame.eof:
                frame = new_decompressor()
            yield _decompress(frame, rest)
            rest = frame.unused_data.lstrip(b"\0") if frame.eof else b""
    if not frame.eof:
        raise OSError(_NO_ERRNO, "it ends before its end marker")


def _cut(pieces: Pieces) -> Pieces:
    """Yield pieces so small that what each decompresses to fits in memory."""
    for piece in pieces:
        for at in range(0, len(piece), _AT_ONCE):
            yield piece[at : at + _AT_ONCE]


def _decompress(frame: Any, data: bytes) -> bytes:
    try:
        content: bytes = frame.decompress(data)
    except Exception as error:
        # Each library has its own; `_unreadable` makes a sentence of this one.
        raise OSError(_NO_ERRNO, str(error)) from error
    return content


def _zstd() -> Any:
    """Return a decompressor of Python's own module (3.14), or of the package zstandard.

    Both need 128 MB of memory at most.
    """
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


_COMPRESSIONS: Mapping[bytes, Callable[[], Any]] = {
    rb"\x1f\x8b": partial(zlib.decompressobj, zlib.MAX_WBITS | 16),
    b"BZh": bz2.BZ2Decompressor,
    rb"\xfd7zXZ\0": partial(lzma.LZMADecompressor, lzma.FORMAT_XZ),
    rb"\x28\xb5\x2f\xfd": _zstd,
}
_ENCODINGS = {rb"\xef\xbb\xbf": "utf-8-sig", rb"\xff\xfe|\xfe\xff": "utf-16"}
_ENCODINGS |= {rb"(?:[^\0]\0){8}": "utf-16-le", rb"(?:\0[^\0]){8}": "utf-16-be"}
"""PowerShell's `>` writes UTF-16 with a byte order mark, others without."""
