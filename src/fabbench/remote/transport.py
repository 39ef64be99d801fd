"""The transport of the agent to a host: over ssh by either client, and over Kubernetes exec.

The remote login shell gets the command line. It may be any shell: sh, bash and zsh, but also csh and fish,
which treat quotes, ``!``, backslashes and newlines differently. Within single quotes all agree on the other
printable characters. Words of only those are sent as they are; any others are encoded as harmless characters,
which a POSIX shell decodes there.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from fabbench.model.errors import MachineError, RequestError


class LostError(MachineError):
    """The connection to a machine broke, or the machine does not answer."""


class HostGoneError(MachineError):
    """The host no longer exists and will not come back: its pod has ended, or was removed."""


@dataclass(frozen=True, slots=True)
class Done:
    """A program that ran to its end."""

    status: int
    out: list[str]
    err: list[str]  # The last lines, if there are very many


LONGEST_ANSWER = 16 << 20  # Bytes of output of a program that is run to its end: fabbench's own print much less
_LINE_OVERHEAD = 60  # Bytes of memory that a line takes besides its text


class AnswerLines:
    """The lines of a program that answers a question, and ends."""

    def __init__(self, source: str) -> None:
        """Start without lines. `source` is the machine or command, for the error."""
        self.lines: list[str] = []
        self._source = source
        self._size = 0

    def take(self, lines: Sequence[str]) -> None:
        """Add lines. Raise MachineError if they exceed the size of any valid answer."""
        self.lines += lines
        self._size += sum(map(len, lines)) + _LINE_OVERHEAD * len(lines)
        if self._size > LONGEST_ANSWER:
            raise MachineError(
                f"{self._source} printed more than {LONGEST_ANSWER >> 20} MiB as an answer; giving up.",
                hint="Check what its login shell prints: ssh HOST true should print nothing.",
            )


class ProcessStream(Protocol):
    """The streams of a program on another machine. The program keeps running without them."""

    @property
    def status(self) -> int | None:
        """Exit status; -1: ended by a signal. None: unknown (yet)."""

    @property
    def err(self) -> Sequence[str]:
        """The last lines of its standard error."""

    def send(self, data: bytes) -> None:
        """Write to its standard input. Raise LostError."""

    def lines(self) -> Iterator[str]:
        """Yield the lines of standard output as they come, until it ends. Raise LostError."""

    def batches(self) -> Iterator[Sequence[str]]:
        """Yield the same lines in batches as they come: about 100 KB at most, and never empty."""

    def close(self) -> None:
        """Close the streams. The program keeps running if it has not ended."""


class Transport(Protocol):
    """A connection to one host. Its methods may be called from any thread."""

    def connect(self) -> None:
        """Connect unless connected, also after the connection broke. Raise MachineError."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30) -> Done:
        """Run a program to its end. Raise LostError, or MachineError if it takes longer."""

    def open(self, argv: Sequence[str]) -> ProcessStream:
        """Start a program that keeps running. Raise LostError, or MachineError if it cannot be started."""

    def close(self) -> None:
        """Close the connection. Remote programs keep running."""


_BARE = re.compile(r"[A-Za-z0-9_./:,+-][A-Za-z0-9_./:,+=@%-]*")
_QUOTABLE = re.compile(r"[ -~]*")
_AMBIGUOUS = re.compile(r"['!\\]")
_HARMLESS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _./:,+=-")
# tr produces the backslash, the character between [ and ], so that the line needs none.
_DECODE = """exec sh -c 'eval "$(printf "$(printf %s "{}" | tr "#%@" "[-]")")"'"""


def command_line(argv: Sequence[str]) -> str:
    """Quote words for the login shell, which the program replaces.

    Raise RequestError for a word with a NUL character, which cannot be passed to a program.
    """
    if any("\0" in word for word in argv):
        raise RequestError(f"An argument of the command {argv[0]!r} contains a NUL character.", hint="Remove it.")
    words = [_word(word) for word in argv]
    if None not in words:
        return " ".join(("exec", *(word for word in words if word is not None)))
    posix = " ".join(("exec", *(_posix(word) for word in argv)))
    return _DECODE.format("".join(_encoded(byte) for byte in posix.encode("utf-8", "surrogateescape")))


def _word(word: str) -> str | None:
    """Quote a word so that every shell reads it alike; None if that is impossible."""
    if _BARE.fullmatch(word):
        return word
    return f"'{word}'" if _QUOTABLE.fullmatch(word) and not _AMBIGUOUS.search(word) else None


def _posix(word: str) -> str:
    quoted = word.replace("'", "'\"'\"'")
    return f"'{quoted}'"


def _encoded(byte: int) -> str:
    return chr(byte) if byte in _HARMLESS else f"%{byte:03o}"
