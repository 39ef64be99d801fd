"""Errors, each with a message and an exit status. Only `cli` turns them into output."""

from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum

from fabbench.model.compat import override
from fabbench.model.values import T


class Exit(IntEnum):
    """Exit statuses of the command line; when several apply, the first in this order."""

    INTERRUPTED = 130
    INTERNAL = 70  # fabbench itself, or a plug-in, is at fault (EX_SOFTWARE of sysexits.h)
    BAD_REQUEST = 2
    # The benchmark cannot be trusted: any outcome but ok that REFUSED does not explain
    UNTRUSTED = 4
    # Environment error: a host is unreachable, is lost or lacks the fabric, a file is unreadable
    REFUSED = 3
    BAD_ANSWER = 1  # The measurement is good and its result is bad: a gate was breached
    FINE = 0


class Fault(StrEnum):
    """What has to be mended after a failure, the gravest first: for schedulers."""

    HARDWARE = "hardware"
    INFRASTRUCTURE = "infrastructure"
    """A host that is lost or cannot be written to, or the network between hosts."""
    SOFTWARE = "software"
    """What is installed, or how it is called: no reboot mends it."""


def gravest(faults: Iterable[Fault | None]) -> Fault | None:
    """Return the gravest of faults; None: there are none."""
    order = [*Fault]
    return min(filter(None, faults), key=order.index, default=None)


def worst(*statuses: Exit) -> Exit:
    """Return the exit status to end with, of several; `FINE` for none."""
    order = [*Exit]  # the gravest first
    return min(statuses, key=order.index, default=Exit.FINE)


class FabbenchError(Exception):
    """The message states what was seen and what was expected; `hint` says what to do next.

    It is one line, and has more only as `more`: no name in it can begin one.
    """

    exit: Exit = Exit.REFUSED

    def __init__(self, message: str, *more: str, hint: str | None = None) -> None:
        super().__init__(message, *more)
        self.hint = hint

    @override
    def __str__(self) -> str:
        return "\n".join(map(str, self.args))

    @property
    def with_hint(self) -> str:
        """The message, and what to do next behind it."""
        return f"{self} {self.hint}" if self.hint else str(self)


class RequestError(FabbenchError):
    """A usage error."""

    exit = Exit.BAD_REQUEST


class MachineError(FabbenchError):
    """A machine, a program or a file failed, or refused a request."""


def lacks_memory(error: BaseException) -> bool:
    """Return whether an error comes from too little memory.

    The loader has messages of its own for it.
    """
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, ImportError):
        return False
    return "map segment" in str(error) or "allocate memory" in str(error)


def one_named(what: str, name: str, known: Mapping[str, T]) -> T:
    """Return the one of a name. Raise RequestError, with the known names, if there is none."""
    if name not in known:
        names = ", ".join(sorted(known))
        raise RequestError(f"Unknown {what} {name}.", hint=f"One of {names}.")
    return known[name]
