"""Log files → judged logs. Memory is bounded by one execution, not by the file."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from fabbench.benchmarks import benchmarks
from fabbench.evidence.judge import judge
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.logs.parser import LONGEST_LINE, LogParser, logs
from fabbench.logs.signs import NO_KNOWN_OUTPUT, Unread, unread_reason
from fabbench.model.errors import FabbenchError, MachineError
from fabbench.model.log import MARKER_SIGN, MPI_DEBUG, Ending, Log, Proof
from fabbench.model.patterns import lazy
from fabbench.runs.log_files import Bytes, Source, open_log
from fabbench.runs.result_tables import is_table, table_logs

BLOCK = 1 << 18
_MAY_BE_LOG = lazy(r"(?:^|/)[^./]*$|\.(?:txt|log|out|err|std\w+|[oe]?\d+)(?:\.(?:gz|bz2|xz|zst))?$")
_MAX_DOCUMENT = 1 << 27  # Limit in bytes of a document, which is read whole; a larger file is not a document
_CONFIGURATION = lazy(rf"{MARKER_SIGN}(?:begin|nics) \d+-(\S+)-r\d+[/ ]")


def parse_file(path: str | Path, *, proof: Proof | None = None, ending: Ending | None = None) -> Iterator[Log]:
    """Read a log file, a document such as nccl-tests' JSON, or fabbench's own `output.log`.

    It may be compressed. Raise MachineError if the file cannot be read; a file without any known output yields no log.
    """
    with open_log(str(path)) as file:
        yield from parse_stream(file, str(path), proof=proof, ending=ending)


def within(log: Log, sizes: range | None) -> Log:
    """Return a log with the rows of some sizes; None: of all. What the log shows besides stays as it is."""
    return log if sizes is None else replace(log, points=[point for point in log.points if point.size in sizes])


def parse_source(source: Source, *, proof: Proof | None = None, tables: bool = False) -> Iterator[Log | Unread]:
    """Read a file as named by the user: yield its logs or, if it has no result, the reason.

    With `tables`, a file that was named may be fabbench's own JSON or CSV. A file in a directory that is unrelated to
    any benchmark is left out.
    """
    name, empty = source.name, True
    try:
        with open_log(name) as file:
            for log in parse_stream(file, name, proof=proof, tables=tables and source.named):
                empty = False
                if source.named or log.case != MPI_DEBUG:  # else it may be another rank, or a server
                    yield log
    except FabbenchError as error:
        yield Unread(name, str(error), damaged=True)
        return
    reason, remark = unread_reason(file.head.decode("utf-8", "replace")) if empty else ("", False)
    if empty and source.named:
        yield Unread(name, reason or NO_KNOWN_OUTPUT)
    elif reason and (not remark or _MAY_BE_LOG.search(name)):
        yield Unread(name, reason, remark=remark)


def parse_configurations(path: str, *, proof: Proof | None = None, tables: bool = True) -> dict[str, tuple[Log, ...]]:
    """Read a log file, or with `tables` one of results: configuration → its logs, in the order that they begin.

    The output of a fabbench script names them, and tables their columns; any other file is entirely of
    configuration ``""``. Raise MachineError if the file cannot be read.
    """
    found: dict[str, tuple[Log, ...]] = {}
    with open_log(path) as file:
        pieces = list(_labeled(file, path, proof, tables=tables))
    if tables and not any(read for _, read in pieces):
        pieces = list(table_logs(file.head.decode("utf-8", "replace"), path, proof).items())
    for label, read in pieces:
        if label or read:
            found[label] = (*found.get(label, ()), *read)
    return found


def parse_together(names: Sequence[str], *, proof: Proof | None = None) -> list[Log]:
    """Read the files that the processes of a job wrote (NCCL_DEBUG_FILE) as one text.

    Raise MachineError if a file cannot be read.
    """
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    parser = LogParser(f"{names[0]}{more}", proof=proof, live=False)
    read = list[Log]()
    for name in names:
        with open_log(name) as file:
            blocks = _blocks(file.read(BLOCK), file)
            read += logs(parser.feed_lines(line for text in blocks for line in text.split("\n")))
    return [*read, *logs(parser.close(None))]


def parse_stream(  # noqa: PLR0913 - what is known about a log
    file: Bytes,
    source: str,
    *,
    proof: Proof | None = None,
    ending: Ending | None = None,
    tables: bool = False,
    prefixes: Prefixes | None = None,
    line: int = 0,
) -> Iterator[Log]:
    """Read an open binary stream; with `tables`, also fabbench's own JSON and CSV.

    `prefixes` and `line`: the known prefixes of its lines, and the number of the line before the first.
    """
    labeled = _labeled(file, source, proof, ending, tables=tables, prefixes=prefixes, line=line)
    return (log for _, read in labeled for log in read)


def _labeled(  # noqa: PLR0913 - as above
    file: Bytes,
    source: str,
    proof: Proof | None,
    ending: Ending | None = None,
    *,
    tables: bool = False,
    prefixes: Prefixes | None = None,
    line: int = 0,
) -> Iterator[tuple[str, Sequence[Log]]]:
    """Yield configurations as they begin, each with some of its logs; or the columns of a table."""
    block = file.read(BLOCK)
    if candidates := [benchmark for benchmark in benchmarks().values() if benchmark.is_document(block)]:
        text = _whole(block, file)
        record = next(filter(None, (benchmark.document(text) for benchmark in candidates)), None)
        if record is not None:
            yield "", (judge(record, source=source, proof=proof, ending=ending),)
            return
        block = text.encode()
    if tables and is_table(block.decode("utf-8", "replace")):
        yield from table_logs(_whole(block, file), source, proof).items()
        return
    sample, marked = () if prefixes else lines_to_learn_from(block), MARKER_SIGN.encode() in block
    # Each part has its own parser: what one configuration, or repeat, has printed is no evidence about another.
    make = partial(LogParser, source, proof=proof, live=False, line=line)
    parser, current, preamble, damage = make(prefixes=prefixes or Prefixes(sample)), "", list[str](), None
    try:
        for configuration, lines in _by_configuration(_blocks(block, file)):
            if current and configuration != current:
                yield current, list(logs(parser.close(None)))
                parser = make(prefixes=Prefixes(sample))
                parser.feed_lines(preamble)
            current = configuration
            if not current and marked:
                preamble += lines
            yield current, list(logs(parser.feed_lines(lines)))
    except MachineError as error:
        damage, ending = error, Ending(stopped="The file could not be read to its end.")
    yield current, list(logs(parser.close(ending)))
    if damage is not None:
        raise damage


def _by_configuration(blocks: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield lines with their configuration: that of the last marker; empty before the first marker."""
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
    whole = bytearray(block)
    while more := file.read(BLOCK):
        whole += more
        if len(whole) > _MAX_DOCUMENT:
            raise MachineError(
                f"It starts like a document, such as JSON, but is larger than {_MAX_DOCUMENT >> 20} MiB.",
                hint="Pass the text output of the program instead.",
            )
    return whole.decode("utf-8", "replace")


def lines_to_learn_from(block: bytes) -> list[str]:
    """Return the lines that prefixes are learned from; none if fabbench itself wrote the first one."""
    text = block.decode("utf-8", "replace")
    return [] if text.startswith(MARKER_SIGN) else text.replace("\r\n", "\n").split("\n")


def _blocks(block: bytes, file: Bytes) -> Iterator[str]:
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
