"""Files of logs → judged logs. Memory is bound by one execution, not by the file."""

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from fabbench.benchmarks import benchmarks
from fabbench.evidence.judge import judge
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.logs.learned_prefixes import NOTHING, Unread, UnreadWarning, why
from fabbench.logs.parser import LONGEST_LINE, LogParser, logs
from fabbench.model.errors import FabbenchError, MachineError
from fabbench.model.log import MARKER_SIGN, Ending, Log, Proof, Record
from fabbench.model.patterns import lazy
from fabbench.runs.log_files import (
    Bytes,
    LogStream,
    Source,
    expand,
    open_all,
    open_logs,
)

BLOCK = 1 << 18
_MAY_BE_LOG = lazy(r"(?:^|[/!])[^./]*$|\.(?:txt|log|out|err|std\w+|[oe]?\d+)(?:\.(?:gz|bz2|xz|zst))?$")
_LARGEST_DOCUMENT = 1 << 27
"""Bytes of a document that is read whole; a file that is larger is none."""
_LONGEST_PREAMBLE = 100_000
"""Lines before the first marker that are kept for configurations which begin later."""
_ARM = lazy(rf"{MARKER_SIGN}(?:begin|nics) \d+-(\S+)-r\d+[/ ]")


def parse_file(
    path: str | Path, *, proof: Proof | None = None, ending: Ending | None = None
) -> Iterator[Log]:
    """Read a log file, a document such as nccl-tests' JSON, or an `output.log` of fabbench's own.

    It may be compressed, or an archive of such files. Raise MachineError where the file cannot be read; a
    file with nothing in it that is known gives no log.
    """
    for log in open_logs(str(path)):
        yield from parse_stream(log, log.name, proof=proof, ending=ending)


def parse_source(source: Source, *, proof: Proof | None = None) -> Iterator[Log | Unread]:
    """Read a file as a user named it: its logs, and for each log file without a result why it has none.

    A file in a directory or an archive that has nothing to do with a benchmark is left out.
    """
    found = False
    try:
        for file in open_logs(source.name):
            for entry in _read_whole(file, proof, named=source.named and file.name == source.name):
                found = True
                yield entry
    except FabbenchError as error:
        found = True
        yield Unread(source.name, str(error), damaged=True)
    if not found and source.named:
        yield Unread(source.name, NOTHING)


def _read_whole(file: LogStream, proof: Proof | None, *, named: bool) -> Iterator[Log | Unread]:
    empty = True
    try:
        for log in parse_stream(file, file.name, proof=proof):
            empty = False
            yield log
    except FabbenchError as error:
        yield Unread(file.name, str(error), damaged=True)
        return
    if not empty:
        return
    reason, remark = why(file.head.decode("utf-8", "replace"))
    if named and (remark or not reason):
        yield Unread(file.name, NOTHING)
    elif reason and (not remark or _MAY_BE_LOG.search(file.name)):
        yield Unread(file.name, reason, remark=remark)


def parse_configurations(path: str | Path, *, proof: Proof | None = None) -> dict[str, tuple[Log, ...]]:
    """Read a log file once: configuration → its logs, in the order in which configurations begin.

    The output of a script of fabbench's names them; all of another file is of configuration ``""``. What
    stands before the first marker belongs to each. Raise MachineError where the file cannot be read.
    """
    found: dict[str, tuple[Log, ...]] = {}
    for file in open_logs(str(path)):
        for configuration, read in _configurations(file, proof).items():
            found[configuration] = (*found.get(configuration, ()), *read)
    if len(found) > 1 and not found.get("", ("",)):
        del found[""]
    return found


def _configurations(file: LogStream, proof: Proof | None) -> dict[str, tuple[Log, ...]]:
    source, before, kept = file.name, list[str](), 0
    block = file.read(BLOCK)
    record, block = _document(block, file)
    if record is not None:
        return {"": (judge(record, source=source, proof=proof),)}
    sample = lines_to_learn_from(block)
    found: dict[str, tuple[LogParser, list[Log]]] = {
        "": (LogParser(source, proof=proof, prefixes=Prefixes(sample), live=False), [])
    }
    for configuration, text in _by_configuration(blocks(block, file)):
        if configuration and "" in found:
            found = {configuration: found[""]}
        elif configuration not in found:
            parser = LogParser(source, proof=proof, prefixes=Prefixes(sample), live=False)
            found[configuration] = parser, [log for each in before for log in logs(parser.feed_text(each))]
        if not configuration and kept < _LONGEST_PREAMBLE:
            before.append(text)
            kept += text.count("\n") + 1
        parser, read = found[configuration]
        read += logs(parser.feed_text(text))
    return {
        configuration: (*read, *logs(parser.close(None))) for configuration, (parser, read) in found.items()
    }


def parse_together(names: Sequence[str], *, proof: Proof | None = None) -> list[Log]:
    """Read files as one text: those that the processes of a job wrote (NCCL_DEBUG_FILE).

    Raise MachineError where a file cannot be read.
    """
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    parser = LogParser(f"{names[0]}{more}", proof=proof, live=False)
    found: list[Log] = []
    for file in open_all(names):
        for text in blocks(file.read(BLOCK), file):
            found += logs(parser.feed_text(text))
    return [*found, *logs(parser.close(None))]


def parse_stream(
    file: Bytes, source: str, *, proof: Proof | None = None, ending: Ending | None = None
) -> Iterator[Log]:
    """Read an open binary stream."""
    record, block = _document(file.read(BLOCK), file)
    if record is not None:
        yield judge(record, source=source, proof=proof, ending=ending)
        return
    parser = LogParser(source, proof=proof, prefixes=Prefixes(lines_to_learn_from(block)), live=False)
    try:
        for text in blocks(block, file):
            yield from logs(parser.feed_text(text))
    except MachineError:
        yield from logs(parser.close(Ending(stopped="The file could not be read to its end.")))
        raise
    yield from logs(parser.close(ending))


def _document(block: bytes, file: Bytes) -> tuple[Record | None, bytes]:
    """Read a document such as JSON; else return None, and what was read of the file until now."""
    writers = [benchmark for benchmark in benchmarks().values() if benchmark.is_document(block)]
    if not writers:
        return None, block
    whole = bytearray(block)
    while more := file.read(BLOCK):
        whole += more
        if len(whole) > _LARGEST_DOCUMENT:
            raise MachineError(
                f"It begins as a benchmark's JSON does, but is larger than {_LARGEST_DOCUMENT >> 20} MiB.",
                hint="Give the text that the program printed instead.",
            )
    text = whole.decode("utf-8", "replace")
    record = next(filter(None, (benchmark.document(text) for benchmark in writers)), None)
    return record, text.encode()


def lines_to_learn_from(block: bytes) -> list[str]:
    """Return the lines that prefixes are learned from; none where fabbench itself wrote the first one."""
    text = block.decode("utf-8", "replace")
    return [] if text.startswith(MARKER_SIGN) else text.replace("\r\n", "\n").split("\n")


def _by_configuration(blocks: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield text with its configuration: that of the last marker; empty before the first one."""
    configuration = ""
    for text in blocks:
        begin, lines = 0, text.split("\n") if MARKER_SIGN in text else [text]
        for number, line in enumerate(lines):
            match = _ARM.search(line) if MARKER_SIGN in line else None
            if match and match[1] != configuration:
                if number > begin:
                    yield configuration, "\n".join(lines[begin:number])
                configuration, begin = match[1], number
        yield configuration, "\n".join(lines[begin:])


def blocks(block: bytes, file: Bytes) -> Iterator[str]:
    """Yield the text in blocks of whole lines; a carriage return before a newline belongs to it."""
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


def parse(*sources: str | Path, fabric: str | None = None) -> list[Log]:
    """Read and judge logs, as `fabbench parse` does: of files, archives, and all files in directories.

    `fabric` judges them as measured on it. Raise MachineError where a file cannot be read. A file with
    nothing in it that is known gives no log, and UnreadWarning where it is still a benchmark's output.
    """
    return list(parse_all(sources, fabric=fabric))


def parse_all(sources: Iterable[str | Path], *, fabric: str | None = None) -> Iterator[Log]:
    """Read and judge logs one by one; see `parse`."""
    proof = Proof(fabric=fabric) if fabric is not None else None
    for source in expand(map(str, sources)):
        for entry in parse_source(source, proof=proof):
            if isinstance(entry, Log):
                yield entry
            elif entry.damaged:
                raise MachineError(entry.reason)
            elif not entry.remark and entry.reason != NOTHING:
                warnings.warn(f"{entry.source}: {entry.reason}", UnreadWarning, stacklevel=3)
