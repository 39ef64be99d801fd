"""Standard streams as inherited: closed, or on a full disk; and too few file descriptors."""

import errno
import io
import os
import resource
import sys

from fabbench.model.compat import override
from fabbench.model.errors import Exit

_MIN_FILES = 32
"""What a run of two programs needs, besides what Python does."""
_ENOUGH_FILES = 256


def prepare_streams() -> None:
    """Make it safe to open files, and to write to standard error.

    The descriptor of a closed stream would be reused by the next file that is opened, and output would go
    there. What cannot be written to standard error is lost, and changes nothing. Exit if standard output is
    closed, or if too few files may be open at a time.
    """
    closed = [descriptor for descriptor in range(3) if _is_closed(descriptor)]
    for descriptor in closed:
        _open_null(descriptor)
    if sys.stderr is None:
        sys.stderr = io.TextIOWrapper(io.BufferedWriter(_StandardError()), write_through=True)
    elif isinstance(sys.stderr, io.TextIOWrapper):
        sys.stderr = io.TextIOWrapper(
            io.BufferedWriter(_StandardError()),
            encoding=sys.stderr.encoding,
            errors=sys.stderr.errors,
            line_buffering=True,
            write_through=True,
        )
    if 1 in closed:
        _exit("Standard output is closed. Redirect it, for example >/dev/null.")
    files = _allowed_files()
    if files < _MIN_FILES:
        _exit(f"Only {files} files may be open at a time (ulimit -n), but fabbench needs {_MIN_FILES}.")


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


def _is_closed(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError as error:
        return error.errno == errno.EBADF
    return False


def _open_null(descriptor: int) -> None:
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
    os.set_inheritable(descriptor, True)  # noqa: FBT003 - it takes no keyword


def _allowed_files() -> int:
    """Return how many files may be open, after raising the limit if possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(_ENOUGH_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= limit:
        return max(soft, _MIN_FILES) if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return limit


def _exit(sentence: str) -> None:
    sys.stderr.write(f"Error: {sentence}\n")
    sys.exit(Exit.REFUSED)
