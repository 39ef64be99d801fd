"""What can go wrong, in words and as an exit status. `cli` translates them, once."""

from enum import IntEnum


class Exit(IntEnum):
    """Exit statuses of the command line; when several apply, the earliest of `PRECEDENCE`."""

    FINE = 0
    BAD_ANSWER = 1
    """The measurement is good and the answer is bad: a gate was breached."""
    BAD_REQUEST = 2
    REFUSED = 3
    """The machines or a file said no: unreachable, no such fabric there, unreadable."""
    UNTRUSTED = 4
    """The benchmark cannot be trusted: any outcome but ok."""
    INTERRUPTED = 130


PRECEDENCE = (Exit.INTERRUPTED, Exit.BAD_REQUEST, Exit.UNTRUSTED, Exit.REFUSED, Exit.BAD_ANSWER, Exit.FINE)


def worst(*statuses: Exit) -> Exit:
    """Of several exit statuses, the one to end with (none at all is fine)."""
    return min(statuses, key=PRECEDENCE.index, default=Exit.FINE)


class FabbenchError(Exception):
    """Says what was seen and what was wanted; `hint` says what to do next."""

    exit: Exit = Exit.REFUSED

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


class RequestError(FabbenchError):
    """The request makes no sense."""

    exit = Exit.BAD_REQUEST


class MachineError(FabbenchError):
    """A machine, a program or a file said no."""

    exit = Exit.REFUSED
