"""Standard error on a full disk, or with nobody at its other end."""

import io
import os
import sys
from contextlib import suppress

from fabbench.model.compat import override
from fabbench.model.errors import Exit


def prepare_streams() -> None:
    """Let what cannot be written to standard error be lost: a run goes on, and cleans up.

    Exit if a standard stream is closed: the next file to be opened would take its place.
    """
    if sys.stdin is None or sys.stdout is None or sys.stderr is None:
        with suppress(OSError):
            os.write(2, b"Error: A standard stream is closed. Redirect it: </dev/null >/dev/null\n")
        os._exit(Exit.REFUSED)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(_StandardError()),
        encoding=sys.stderr.encoding,
        errors=sys.stderr.errors,
        line_buffering=True,
        write_through=True,
    )


class _StandardError(io.RawIOBase):
    """Standard error, on which writing always succeeds."""

    @override
    def writable(self) -> bool:
        return True

    @override
    def fileno(self) -> int:
        return 2

    @override
    def isatty(self) -> bool:
        return os.isatty(2)

    @override
    def write(self, data: object, /) -> int:
        piece = bytes(data)  # type: ignore[call-overload] # any bytes-like object
        try:
            return os.write(2, piece)
        except OSError:
            return len(piece)
