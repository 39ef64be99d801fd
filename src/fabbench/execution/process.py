"""What programs on this machine need: their lines, and their end with fabbench."""

import codecs
import ctypes
import os
import signal
import sys
import tempfile

from fabbench.model.errors import MachineError

LONGEST_LINE = 1 << 20  # Characters after which a line without an end is passed on in pieces


class LineDecoder:
    """Bytes in, lines out. Invalid UTF-8 becomes U+FFFD."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._kept = ""

    def feed(self, chunk: bytes) -> list[str]:
        """Decode some bytes and return the lines that are complete now."""
        *lines, self._kept = (self._kept + self._decoder.decode(chunk)).split("\n")
        while len(self._kept) > LONGEST_LINE:
            lines.append(self._kept[:LONGEST_LINE])
            self._kept = self._kept[LONGEST_LINE:]
        return [line.removesuffix("\r") for line in lines]

    def rest(self) -> list[str]:
        """Return the last line if it has no end."""
        rest, self._kept = self._kept + self._decoder.decode(b"", final=True), ""
        return [rest] if rest else []


_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None


def end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent ends; exit now if it has ended. Linux only."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)


def unwritable_folder(error: OSError) -> MachineError:
    """Return the error for a temporary directory that is not writable."""
    return MachineError(
        f"Cannot write to {tempfile.gettempdir()}: {error.strerror}.",
        hint="Free some space, or set TMPDIR to another directory.",
    )
