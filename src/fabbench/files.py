"""Files of logs → judged logs, block by block: memory is bound by one execution, not by the file."""

import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from fabbench.benchmarks import nccl_json
from fabbench.errors import MachineError
from fabbench.judge import judge
from fabbench.markers import SIGN
from fabbench.model import Ending, Log, Proof
from fabbench.parse import LONGEST_LINE, Session, logs
from fabbench.prefixes import sniff

_BLOCK = 1 << 18
_SNIFFED_LINES = 2000
_ARM = re.compile(rf"{SIGN}(?:begin|nics) \d+-(\S+)-r\d+[/ ]")


def parse_file(
    path: Path, *, proof: Proof | None = None, ending: Ending | None = None, arm: str = ""
) -> Iterator[Log]:
    """Read a log file, an nccl-tests JSON file, or an `output.log` of fabbench's own.

    With `arm` only what one arm printed is read. Raises MachineError where the file cannot be read; a file
    with nothing in it that is known gives no log.
    """
    try:
        with path.open("rb") as file:
            yield from parse_stream(file, str(path), proof=proof, ending=ending, arm=arm)
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror or error}") from error


def arms(path: Path) -> tuple[str, ...]:
    """Name the arms of a script of fabbench's whose output a file has, in the order in which they begin."""
    found: dict[str, None] = {}
    try:
        with path.open("rb") as file:
            for lines in _blocks(file.read(_BLOCK), file):
                found |= {match[1]: None for line in lines if SIGN in line and (match := _ARM.search(line))}
    except OSError as error:
        raise MachineError(f"{path} cannot be read: {error.strerror or error}") from error
    return tuple(found)


def parse_stdin(*, proof: Proof | None = None) -> Iterator[Log]:
    """Read standard input."""
    return parse_stream(sys.stdin.buffer, "-", proof=proof)


def parse_stream(
    file: BinaryIO,
    source: str,
    *,
    proof: Proof | None = None,
    ending: Ending | None = None,
    arm: str = "",
) -> Iterator[Log]:
    """Read an open binary stream; with `arm` only what one arm printed."""
    block = file.read(_BLOCK)
    if block.lstrip()[:1] == b"{" and nccl_json.SIGN in block:
        text = (block + file.read()).decode("utf-8", "replace")
        record = nccl_json.read(text)
        if record is not None:
            yield judge(record, source=source, proof=proof, ending=ending)
            return
        block = text.encode()
    sample = block.decode("utf-8", "replace").split("\n")[:_SNIFFED_LINES]
    risky = () if sample[0].startswith(SIGN) else sniff(sample)
    session = Session(source, proof=proof, risky=risky, live=False)
    blocks = _blocks(block, file)
    for lines in _of_arm(blocks, arm) if arm else blocks:
        yield from logs(session.feed_lines(lines))
    yield from logs(session.close(ending))


def _of_arm(blocks: Iterable[list[str]], arm: str) -> Iterator[list[str]]:
    """Leave out what stands between the first marker of another arm and the next of this one."""
    whose = arm
    for lines in blocks:
        kept = []
        for line in lines:
            if SIGN in line and (match := _ARM.search(line)):
                whose = match[1]
            if whose == arm:
                kept.append(line)
        yield kept


def _blocks(block: bytes, file: BinaryIO) -> Iterator[list[str]]:
    """Split into lines; a carriage return before a newline belongs to it."""
    rest = b""
    while block:
        whole, newline, tail = block.rpartition(b"\n")
        if newline:
            text = (rest + whole).decode("utf-8", "replace")
            if "\r" in text:
                text = text.replace("\r\n", "\n")
            yield text.split("\n")
            rest = tail
        elif len(rest) < 8 * LONGEST_LINE:
            rest += block
        block = file.read(_BLOCK)
    if rest:
        yield [rest.decode("utf-8", "replace").rstrip("\r")]
