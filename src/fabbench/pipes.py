"""Reading what comes a piece at a time: pipes of programs, and files that grow. Bytes in, whole lines out."""

import codecs
import contextlib
import os
from pathlib import Path
from typing import IO

from fabbench.session import Program

LONGEST_LINE = 1 << 20
"""Characters after which a line without an end is passed on in pieces."""

_CHUNK = 1 << 16
_MOST_CHUNKS_AT_ONCE = 64


class Lines:
    """Bytes in, lines out. What is no UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = ""

    def feed(self, chunk: bytes) -> list[str]:
        """Take in some bytes: the lines that are whole now."""
        *lines, self._kept = (self._kept + self._decoder.decode(chunk)).split("\n")
        while len(self._kept) > LONGEST_LINE:
            lines.append(self._kept[:LONGEST_LINE])
            self._kept = self._kept[LONGEST_LINE:]
        return [line.removesuffix("\r") for line in lines]

    def rest(self) -> list[str]:
        """Give the last line if it has no end."""
        rest, self._kept = self._kept + self._decoder.decode(b"", final=True), ""
        return [rest] if rest else []


class Pipe:
    """One output of a program."""

    def __init__(self, program: Program, file: IO[bytes]) -> None:
        self.program = program
        self.file = file
        self.closed = False
        self.more = False
        """Whether the last reading found anything."""
        self._lines = Lines()
        os.set_blocking(file.fileno(), False)

    def read(self) -> list[str]:
        """Read what is there, up to a chunk: the lines that are whole now."""
        try:
            chunk = os.read(self.file.fileno(), _CHUNK)
        except BlockingIOError:
            self.more = False
            return []
        self.more, self.closed = bool(chunk), not chunk
        return self._lines.feed(chunk) if chunk else self.rest()

    def rest(self) -> list[str]:
        """Give the last line if it has no end."""
        return self._lines.rest()


class Tail:
    """The lines of the files in a folder whose names begin with `prefix`, as they come; of new ones too."""

    def __init__(self, folder: Path, prefix: str) -> None:
        self._folder = folder
        self._prefix = prefix
        self._files: dict[str, tuple[int, Lines]] = {}

    def read(self) -> list[str]:
        """Read what has come since: the lines that are whole now."""
        with contextlib.suppress(FileNotFoundError):
            for name in sorted(os.listdir(self._folder)):  # noqa: PTH208 - names, many times a minute
                if name.startswith(self._prefix) and name not in self._files:
                    opened = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
                    self._files[name] = (opened, Lines())
        return [line for opened, lines in self._files.values() for line in self._grown(opened, lines)]

    def close(self) -> list[str]:
        """Read the rest, lines without an end too."""
        last = self.read()
        for opened, lines in self._files.values():
            last += lines.rest()
            os.close(opened)
        self._files.clear()
        return last

    def _grown(self, opened: int, lines: Lines) -> list[str]:
        found: list[str] = []
        for _ in range(_MOST_CHUNKS_AT_ONCE):
            chunk = os.read(opened, _CHUNK)
            if not chunk:
                break
            found += lines.feed(chunk)
        return found
