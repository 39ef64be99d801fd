"""A file → judged logs.

Memory is bounded by one execution, not by the file, and nothing is unpacked to disk.

The first bytes of a file show its type: gzip, bzip2, xz, zstd, and UTF-16. A file has one layer of
compression at most. A file that expands to more than logs do is refused; so are archives.

Tables of results are logs, too: fabbench's own JSON and CSV, and comparisons in Markdown. Whatever
the form, a table becomes records: size, metric and value in base units, labels, and conditions. No
run: nothing is proven.
"""

import bz2
import codecs
import csv
import html
import json
import lzma
import math
import os
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from fabbench.benchmarks import benchmark_named, benchmarks
from fabbench.evidence.judge import judge
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.logs.parser import LONGEST_LINE, LogParser, logs
from fabbench.model.errors import MachineError
from fabbench.model.log import MARKER_SIGN, METRICS, Ending, Log, Outcome, Point, Proof
from fabbench.model.patterns import lazy
from fabbench.model.units import RATE_UNITS, TIME_UNITS, parse_size
from fabbench.report.log_report import LABELS

Pieces: TypeAlias = Iterator[bytes]
Bytes: TypeAlias = "LogStream | BinaryIO"

BLOCK = 1 << 18
MAX_BYTES = 16 << 30  # Limit of the decompressed bytes of one file
_AT_ONCE = 1 << 10  # Bytes that are decompressed at once, as the result has no limit
_HEAD = 512
_MAX_DOCUMENT = (
    1 << 27
)  # Limit in bytes of a document, which is read whole; a larger file is not a document
_COPIED: Mapping[int, str | None] = {
    **dict.fromkeys((0xA0, *range(0x2000, 0x200B), 0x202F, 0x205F), " "),
    **dict.fromkeys((0x200B, 0x2060, 0xFEFF), None),
    0x3000: "  ",
    0x2212: "-",
}
"""Blanks that keep a line together or are narrow or wide, signs without a width, and the minus of word processors."""
_UNUSUAL = lazy(f"[{''.join(map(chr, _COPIED))}]")  # translating takes ten times as long
_TICKET = r"\{(?:code|noformat)\b[^{}\s]*\}"  # around a text in Jira
_HTML = lazy(
    rf"{_TICKET}|&(?:nbsp|[lg]t|amp|quot|#\d+|#x[\da-fA-F]+);|<(?:br|pre|p|div|code|span|html)\b[^<>]*>"
)
_LINE_END = lazy(r"(?:<br ?/?>|</(?:p|div|li|tr)>)(?!\n|\Z)")
_TAG = lazy(rf"{_TICKET}|</?(?:br|pre|p|div|li|tr|td|code|span|samp|b|strong|html|body)\b[^<>]*>")
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
            blocks = _blocks(file.read(), file)
            read += logs(parser.feed_lines(line for text in blocks for line in text.split("\n")))
    return [*read, *logs(parser.close(None))]


def within(log: Log, sizes: range | None) -> Log:
    """Return a log with the rows of some sizes; None: of all.

    What the log shows besides stays as it is.
    """
    return (
        log
        if sizes is None
        else replace(log, points=[point for point in log.points if point.size in sizes])
    )


def parse_stream(  # noqa: PLR0913 - what is known about a log
    file: Bytes,
    source: str,
    *,
    proof: Proof | None = None,
    ending: Ending | None = None,
    tables: bool = False,
    line: int = 0,
) -> Iterator[tuple[str, Log]]:
    """Read an open binary stream; with `tables`, also fabbench's own JSON and CSV. `line`.

    The number of that before.

    Each log comes with its configuration, which the output of a fabbench script names, and tables
    as columns.
    """
    block = file.read(BLOCK)
    if candidates := [
        benchmark for benchmark in benchmarks().values() if benchmark.is_document(block)
    ]:
        text = _whole(block, file)
        record = next(filter(None, (benchmark.document(text) for benchmark in candidates)), None)
        if record is not None:
            yield "", judge(record, source=source, proof=proof, ending=ending)
            return
        block = text.encode()
    elif block.lstrip()[:1] == b"{" and b'"results"' in block:
        text = _whole(block, file)
        block = (_results(text) or text).encode()
    begin, marked = block.decode("utf-8", "replace"), MARKER_SIGN.encode() in block
    if tables and is_table(begin):
        yield from table_logs(_whole(block, file), source, proof)
        return
    # No prefix is learned if fabbench itself wrote the first line.
    first = next(blocks := _blocks(block, file), "")
    sample = [*first.replace("\r", "\n").split("\n"), begin.rpartition("\n")[2]]
    sample = [] if begin.startswith(MARKER_SIGN) else sample
    # Each part has its own parser: what one configuration, or repeat, has printed is no evidence
    # about another.
    make = partial(LogParser, source, proof=proof, live=False, line=line)
    parser, current, preamble, damage = make(prefixes=Prefixes(sample)), "", list[str](), None
    try:
        for configuration, lines in _by_configuration(chain([first], blocks)):
            if current and configuration != current:
                yield from ((current, log) for log in logs(parser.close(None)))
                parser = make(prefixes=Prefixes(sample))
                parser.feed_lines(preamble)
            current = configuration
            if not current and marked:
                preamble += lines
            yield from ((current, log) for log in logs(parser.feed_lines(lines)))
    except MachineError as error:
        damage, ending = error, Ending(stopped="The file could not be read to its end.")
    yield from ((current, log) for log in logs(parser.close(ending)))
    if damage is not None:
        raise damage


def _by_configuration(blocks: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield lines with their configuration: that of the last marker.

    Empty before the first marker.
    """
    configuration = ""
    for text in blocks:
        begin, lines = 0, text.split("\n")
        for number, line in enumerate(lines if MARKER_SIGN in text else ()):
            match = _CONFIGURATION.search(line) if MARKER_SIGN in line else None
            if match and match[1] != configuration:
                if number > begin:
                    yield configuration, lines[begin:number]
                configuration, begin = match[1], number
        yield configuration, lines[begin:]


def _whole(block: bytes, file: Bytes) -> str:
    """Read the rest of a document. Raise MachineError if it is too large for one."""
    whole = block + file.read(_MAX_DOCUMENT)
    if len(whole) > _MAX_DOCUMENT:
        raise MachineError(
            (
                "It starts like a document, such as JSON, but is larger than "
                f"{_MAX_DOCUMENT >> 20} "
                "MiB."
            ),
            hint="Pass the text output of the program instead.",
        )
    return whole.decode("utf-8", "replace")


def _results(text: str) -> str:
    """Return the results in a JSON document as a table, below a line of their names.

    Empty if they are no flat rows.
    """
    try:
        rows = json.loads(text)["results"]
        table = [[*rows[0]], *([row[name] for name in rows[0]] for row in rows)]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError):
        return ""
    if not all(isinstance(cell, str | int | float) for row in table for cell in row):
        return ""
    cells = (
        [f"{cell:.12f}" if isinstance(cell, float) else str(cell) for cell in row] for row in table
    )
    return "".join(f"{'    '.join(row)}\n" for row in cells)


def _blocks(block: bytes, file: Bytes) -> Iterator[str]:
    """Yield the text in blocks of whole lines.

    A carriage return before a newline is part of the newline.
    """
    rest = b""
    while block:
        whole, newline, tail = block.rpartition(b"\n")
        if newline:
            text = (rest + whole).decode("utf-8", "replace")
            yield as_printed(
                text.replace("\r\n", "\n").removesuffix("\r") if "\r" in text else text
            )
            rest = tail
        elif len(rest) < 8 * LONGEST_LINE:
            rest += block
        block = file.read(BLOCK)
    if rest:
        yield as_printed(rest.decode("utf-8", "replace").rstrip("\r"))


def as_printed(text: str) -> str:
    """Undo what pages, tickets and editors do to a text.

    HTML, escapes, unusual blanks, colors that lost their ESC.
    """
    page = "<" in text and ("</" in text or "<br" in text or "<pre" in text)
    if (page or "&" in text or "{" in text) and _HTML.search(text):
        text = html.unescape(_TAG.sub("", _LINE_END.sub("\n", text)))
    text = _LOST.sub("\n", text) if "\0" in text else text
    text = re.sub(r"\\([#*_[\]])", r"\1", text) if "\\" in text else text  # Markdown
    if "[0m" in text or (
        "^" in text and "^[[" in text
    ):  # a rare character is found far more quickly
        text = _COLOR_WORD.sub("", text)
    return text if text.isascii() or not _UNUSUAL.search(text) else text.translate(_COPIED)


# ---------------------------------------------------------------- opened


class LogStream:
    """One log, decompressed. Reading raises MachineError if the file is damaged or too large."""

    def __init__(self, name: str, pieces: Pieces) -> None:
        self.head = b""
        """The bytes that the first read returned, and of a large one the first."""
        self._name, self._pieces, self._rest = name, pieces, b""
        self._damage: MachineError | None = None

    def read(self, size: int = BLOCK, /) -> bytes:
        """Return `size` bytes, or fewer at the end. The data before a damage counts.

        The next read raises the error.
        """
        found, length = [self._rest], len(self._rest)
        try:
            while (
                length < size
                and self._damage is None
                and (piece := next(self._pieces, None)) is not None
            ):
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
        raise MachineError(
            "Standard input is closed.", hint="Specify a file, or pipe a log into it."
        )
    try:
        with nullcontext(sys.stdin.buffer) if standard else path.open("rb") as file:
            if not (
                standard
                or path.is_file()
                or path.is_fifo()
                or path.samefile(os.devnull)
                or file.isatty()
            ):
                raise MachineError(f"{path} is a device, not a log.")
            yield LogStream(name, _decompressed(name, iter(partial(file.read, BLOCK), b"")))
    except OSError as error:
        raise _unreadable(name, error) from error


def _unreadable(name: str, error: OSError) -> MachineError:
    return MachineError(
        f"{name} cannot be read: {error.strerror or str(error) or type(error).__name__}"
    )


def _decompressed(name: str, pieces: Pieces) -> Pieces:
    """Yield what a file holds, as UTF-8. Raise MachineError if it is too large, or an archive."""
    head, pieces = _begun(pieces)
    for new in [new for sign, new in _COMPRESSIONS.items() if re.match(sign, head)]:
        head, pieces = _begun(_unpacked(new, pieces))
    for encoding in [encoding for sign, encoding in _ENCODINGS.items() if re.match(sign, head)]:
        head, pieces = _begun(
            text.encode() for text in codecs.iterdecode(pieces, encoding, "replace")
        )
    if any(re.match(sign, head) for sign in _COMPRESSIONS):
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


def _unpacked(new: Callable[[], Any], pieces: Pieces) -> Pieces:
    """Yield what consecutive frames hold, with zeros between them.

    `new` makes the decompressor of each.
    """
    frame, left = new(), MAX_BYTES
    for piece in pieces:
        for at in range(0, len(piece), _AT_ONCE):
            data = piece[at : at + _AT_ONCE]
            while data := data.lstrip(b"\0") if frame.eof else data:
                frame = new() if frame.eof else frame
                try:
                    found = frame.decompress(data)
                except Exception as error:
                    raise OSError(0, str(error)) from error  # each library has its own
                if (left := left - len(found)) < 0:
                    raise OSError(
                        0,
                        (
                            f"it decompresses to more than {MAX_BYTES >> 30} GB. If you trust it, "
                            "unpack it."
                        ),
                    )
                yield found
                data = frame.unused_data if frame.eof else b""
    if not frame.eof:
        raise OSError(0, "it ends before its end marker")


def _zstd() -> Any:
    """Return a decompressor of Python's own module (3.14), or of the package zstandard.

    Both need 128 MB at most.
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


# ---------------------------------------------------------------- tables of results


_COUNTS = ("ranks", "hosts", "gpus_per_host")
_ABOUT = (
    "source",
    "log",
    "run",
    "execution",
    "outcome",
    "benchmark",
    "case",
    *_COUNTS,
    "versions",
)  # of logs
_UNITS = {**RATE_UNITS, **TIME_UNITS, "M/s": 1e6}
_JSON = lazy(r'\s*\{\s*"(?:format":\s*1\s*,\s*"(?:logs"|metric":[^{[]*"lower_is_better")|run":)')
_CELL_END = lazy(r"(?<!\\)\|")
_SIZE = "Message Size"
_FIGURE = lazy(rf"({'|'.join(METRICS)})(?: (.+))? \(([^()]+)\)(?:, ([a-z-]+))?")
_SAME = lazy(
    r"(?m)^- (?:C[a-z ]+|\w+ column): (?P<benchmark>\w+), (?P<case>[\w.-]+)(?=, "
    r"|\.$)(?P<more>.*)\.$"
)
_CONDITION = lazy(r"(?:^|, )([a-z_]+) ([^,]+)(?=,|$)")
_HEADLINE = lazy(r"([\w.-]+): .* vs .* at .*")

_Rows: TypeAlias = dict[
    tuple[int, tuple[tuple[str, str], ...]], dict[str, float]
]  # size and labels → metric → value


def is_table(text: str) -> bool:
    """Return whether a text begins like fabbench's own JSON or CSV."""
    return _JSON.match(text) is not None or {"size", "metric", "value"} <= {
        *text.partition("\n")[0].split(",")
    }


def table_logs(text: str, source: str, proof: Proof | None = None) -> list[tuple[str, Log]]:
    """Return the logs of a table, each with the name of its column.

    ``""`` for a column without a name.

    A text that is no table has none. Raise MachineError for a damaged one, and for Markdown with
    two rows of one size.
    """
    own, columns = is_table(text), dict[str, dict[tuple[str, ...], list[_Rows]]]()
    rows = csv.DictReader(text.splitlines(keepends=True))
    try:
        for record in _markdown(text) if not own else _json(text) if _JSON.match(text) else rows:
            label = record.get("column") or ":".join(
                filter(None, (record.get("run"), record.get("configuration")))
            )
            about = tuple(str(record.get(name) or "") for name in _ABOUT)
            _add(record, columns.setdefault(label, {}).setdefault(about, [{}]), once=not own)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, csv.Error) as error:
        raise MachineError(f"{source} is a table of results, and damaged: {error}.") from error
    return [
        (label, _log(about, rows, source, proof))
        for label, logs in columns.items()
        for about, tables in logs.items()
        for rows in tables
    ]


def _add(record: Mapping[str, Any], tables: list[_Rows], *, once: bool) -> None:
    """Add a figure to the last table.

    One that it has begins a repeat, unless a text has only one of each.
    """
    labels = tuple(
        (name, str(record[name])) for name in LABELS if record.get(name) not in {None, ""}
    )
    row, metric, value = (
        (int(record["size"]), labels),
        METRICS[record["metric"]].name,
        record["value"],
    )
    if isinstance(record["size"], str) and None in record.values():
        raise ValueError(f"a row of {row[0]} bytes was cut")
    if metric in tables[-1].get(row, {}):
        if once:
            raise ValueError(f"{row[0]} bytes are there twice; keep one table of them")
        tables.append({})
    if value not in {None, ""}:
        number = tables[-1].setdefault(row, {})[metric] = float(value)
        if not 0 <= number < math.inf or row[0] < 0:
            raise ValueError(f"{value} at {row[0]} bytes is no figure")


def _log(about: tuple[str, ...], rows: _Rows, source: str, proof: Proof | None) -> Log:
    known = dict(zip(_ABOUT, about, strict=True))
    bad = known["outcome"] in {*Outcome} - {Outcome.OK, Outcome.UNPROVEN}  # it is not better here
    versions = (each.partition(" ") for each in known["versions"].split(", ") if each)
    counts = {name: int(known[name]) for name in _COUNTS if known[name].isdecimal()}
    return Log(
        source=source,
        benchmark=known["benchmark"] or None,
        case=known["case"] or None,
        outcome=Outcome(known["outcome"]) if bad else Outcome.UNPROVEN,
        reason=(
            "From a table, nothing "
            f"proven{', not even that it is ' + known['outcome'] if bad else ''}."
        ),
        facts={**counts, **{name: version for name, _, version in versions}},
        points=[
            Point(size, dict(labels), (*row,), (*row.values(),))
            for (size, labels), row in rows.items()
        ],
        proof=proof,
    )


def _json(text: str) -> Iterator[Mapping[str, Any]]:
    lines = text.splitlines() if '"run"' in text[:10] else ()  # of export
    document: Any = {"rows": map(json.loads, lines)} if lines else json.loads(text)
    yield from document.get("rows", ())
    for number, log in enumerate(document.get("logs", ())):
        facts = log["facts"]
        versions = [
            f"{name} {facts[name]}"
            for name in benchmark_named(log["benchmark"]).versions
            if name in facts
        ]
        about = {name: log[name] for name in ("source", "benchmark", "case", "outcome")}
        about |= {
            "log": str(number),
            "versions": ", ".join(versions),
            **{name: facts.get(name) for name in _COUNTS},
        }
        for sample in log["samples"] or [
            {"labels": {}, "size": 0, "metric": "time", "value": None}
        ]:
            yield {**sample["labels"], **sample, **about}


def _markdown(text: str) -> Iterator[Mapping[str, Any]]:
    """Yield the figures of tables with the headers of a comparison, such as those that fabbench publishes."""
    same, header, section = list(_SAME.finditer(text)), list[str](), dict[str, str]()
    shared = (
        {**same[0].groupdict(), **dict(_CONDITION.findall(same[0]["more"]))}
        if len(same) == 1
        else {}
    )
    for line in map(str.strip, text.splitlines()):
        if not line.startswith("|"):
            header = header if line else []
            if (match := _HEADLINE.fullmatch(line)) is not None:
                section |= {"case": match[1]}
            elif line.startswith("### "):
                section = dict(_CONDITION.findall(line[4:]))
            continue
        cells = [
            cell.strip().replace("\\", "") for cell in _CELL_END.split(line[1:].removesuffix("|"))
        ]
        if _SIZE in header and (len(cells) != len(header) or line[-1] != "|"):
            raise ValueError(f"a row was cut: {line}")
        row = dict(zip(header, cells, strict=False))
        header = header or cells
        for name, cell in row.items() if row.get(_SIZE, "")[:1].isdecimal() else ():
            if (match := _FIGURE.fullmatch(name)) is not None:
                metric, label, unit, mark = match.groups()
                value = (
                    float(cell) * _UNITS[unit] if cell[:1].isdecimal() and " " not in cell else None
                )
                figure = {"column": label, "outcome": mark, "metric": metric, "value": value}
                device = row.get("Device", "").strip("-")
                yield {
                    **shared,
                    **section,
                    **figure,
                    "size": parse_size(row[_SIZE]),
                    "device": device,
                }
