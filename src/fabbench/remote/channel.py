"""A program on another machine, and its streams. Both outputs are always read: else one blocks the other."""

import math
import select
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import TYPE_CHECKING

from fabbench.execution.process import LineDecoder
from fabbench.model.errors import MachineError
from fabbench.remote.paramiko_library import uninterrupted
from fabbench.remote.ssh_config import SshSettings

if TYPE_CHECKING:
    from paramiko import Channel

    from fabbench.remote.mux import MuxChannel

_CHUNK = 1 << 16
_MAX_CHUNKS = 2
"""Limit per batch: several batches are queued, and two-character lines take 25 times their size in memory."""
_MAX_ERR_LINES = 1000
_POLL_S = 0.5
_STATUS_S = 2.0
_SEND_S = 30.0


class LostError(MachineError):
    """The connection to a machine broke, or the machine does not answer."""


def lost(settings: SshSettings, why: object) -> LostError:
    """Return the error of a connection that broke."""
    text = "the other side closed it" if isinstance(why, EOFError) else str(why) or type(why).__name__
    return LostError(
        f"The connection to {settings} broke: {text}.",
        hint="The machine or the network may be down; check whether you can still reach it.",
    )


class SshStream:
    """A program on another machine, without a terminal. Closing the stream does not end the program."""

    def __init__(self, channel: "Channel | MuxChannel", settings: SshSettings, answers: Callable[[], bool]) -> None:
        """Wrap a channel on which the program was started; `answers` checks whether the machine responds."""
        self.status: int | None = None
        """Exit status; -1: ended by a signal, which neither client names. None: unknown (yet)."""
        self.err: deque[str] = deque(maxlen=_MAX_ERR_LINES)
        """The last lines of its standard error."""
        self.closed = False
        """Whether both outputs have ended, and all their lines were returned."""
        self._channel = channel
        self._settings = settings
        self._answers = answers
        self._out = LineDecoder()
        self._err = LineDecoder()
        self._last_output = time.monotonic()
        self._poll = select.poll()
        self._poll.register(channel.fileno(), select.POLLIN)
        channel.settimeout(_SEND_S)

    def fileno(self) -> int:
        """Return a descriptor to select on: readable when `read` has something to do."""
        return self._channel.fileno()

    @uninterrupted()
    def send(self, data: bytes) -> None:
        """Write to its standard input. Raise LostError, also if it accepts nothing for 30 s."""
        try:
            self._channel.sendall(data)
        except TimeoutError as error:
            raise lost(self._settings, f"it accepted no input for {_SEND_S:g} s") from error
        except OSError as error:
            raise self._lost() or lost(self._settings, "the program there has exited") from error

    @uninterrupted()
    def send_some(self, data: bytes) -> int:
        """Write what fits without waiting, and return the number of bytes written."""
        try:
            return self._channel.send(data[:_CHUNK]) if self._channel.send_ready() else 0
        except OSError as error:  # the program ended, or closed its input, before all was sent
            broken = self._lost()
            if broken is not None:
                raise broken from error
            return len(data)

    @uninterrupted()
    def end_input(self) -> None:
        """Close its standard input."""
        try:
            self._channel.shutdown_write()
        except (OSError, EOFError) as error:
            raise self._lost() or lost(self._settings, error) from error

    @uninterrupted()
    def read(self) -> list[str]:
        """Return the complete lines of standard output so far, without waiting. Raise LostError."""
        lines: list[str] = []
        for _ in range(_MAX_CHUNKS):
            more = False
            if self._channel.recv_stderr_ready():
                self.err += self._err.feed(self._channel.recv_stderr(_CHUNK))
                more = True
            if self._channel.recv_ready():
                lines += self._out.feed(self._channel.recv(_CHUNK))
                more = True
            if not more:
                if self._ended():
                    self._finish(lines)
                break
            self._last_output = time.monotonic()
        return lines

    def lines(self) -> Iterator[str]:
        """Yield the lines of standard output as they come, until it ends. Raise LostError."""
        return chain.from_iterable(self.batches())

    def batches(self) -> Iterator[list[str]]:
        """Yield the lines of standard output in batches as they come, until it ends."""
        while True:
            if batch := self.read():
                yield batch
            if self.closed:
                return
            self.wait(_POLL_S)
            if time.monotonic() - self._last_output > self._settings.limits.silence_s:
                self.ask()

    def wait(self, timeout_s: float) -> None:
        """Wait until there is something to read, at most `timeout_s`."""
        self._poll.poll(math.ceil(timeout_s * 1000))

    def ask(self) -> None:
        """Check that the machine still answers. Raise LostError."""
        broken = self._lost()
        if broken is None and not self._answers():
            broken = lost(self._settings, "it does not answer")
        if broken is not None:
            raise broken
        self._last_output = time.monotonic()

    def has_status(self) -> bool:
        """Return whether the program is known to have ended; others may still hold its outputs open."""
        return self._channel.exit_status_ready()

    @uninterrupted()
    def close(self) -> None:
        """Close the streams. The program keeps running if it has not ended."""
        from fabbench.remote.mux import MuxChannel

        if self._channel.exit_status_ready() and self.status is None:
            self.status = self._channel.recv_exit_status()
        self.closed = True
        if not isinstance(self._channel, MuxChannel):
            # paramiko's reader signals late output through the pipe that `fileno` made. Writing to that pipe
            # once it is closed would end the reader, and with it the whole connection.
            for buffer in (self._channel.in_buffer, self._channel.in_stderr_buffer):
                buffer.set_event(threading.Event())
        try:
            self._channel.close()
        except (OSError, EOFError):
            return

    def _ended(self) -> bool:
        """Return whether both outputs have ended."""
        return bool(self._channel.eof_received or self._channel.closed) and not (
            self._channel.recv_ready() or self._channel.recv_stderr_ready()
        )

    def _finish(self, lines: list[str]) -> None:
        broken = None if self._has_clean_status() else self._lost()
        lines += self._out.rest()
        self.err += self._err.rest()
        self.closed = True
        if broken is not None:
            raise broken

    def _has_clean_status(self) -> bool:
        """Read the exit status, which follows the end of the outputs. False: a signal, or no status."""
        deadline = time.monotonic() + _STATUS_S
        while not self._channel.exit_status_ready() and time.monotonic() < deadline:
            time.sleep(0.005)
        if self._channel.exit_status_ready():
            self.status = self._channel.recv_exit_status()
        return self.status is not None and self.status >= 0

    def _lost(self) -> LostError | None:
        """Return why the connection broke, if it did."""
        transport = self._channel.get_transport()
        if transport.is_active():
            return None
        self.status = None
        return lost(self._settings, transport.get_exception() or "the other side closed it")
