"""Runs on a host: lets other hosts connect to it, and connects to them. check_hosts.py sends it as text.

Usage: contact ADDRESS WORD. Prints ``port NUMBER``, or ``error WHY``. Whoever connects is told WORD.
Reads ``NUMBER ADDRESS PORT WORD`` from standard input, connects to each at once, and prints
``tried NUMBER WHY``, without WHY where that word came back. Ends with its standard input, or after 30 s.

Needs Python 3.6, and nothing of fabbench. connect_probe.pl is the same for hosts without Python.
"""

import errno
import os
import select
import socket
import sys
import time

_LIVES_S, _WAITS_S = 30.0, 3.0
_ENOUGH = 1 << 16


class Try:
    """A connection that is being made."""

    def __init__(self, number: str, address: str, port: str, word: str) -> None:
        self.number = number
        self.deadline = time.monotonic() + _WAITS_S
        self.socket = _socket(address)
        self._word = word.encode() + b"\n"
        error = self.socket.connect_ex((address, int(port)))
        self.failed = os.strerror(error) if error not in {0, errno.EINPROGRESS} else ""

    def outcome(self) -> str:
        """Return why it failed, once something has happened; empty where the other host answered."""
        try:
            return "" if self.socket.recv(_ENOUGH) == self._word else "another program answered"
        except OSError as error:
            return error.strerror or str(error)

    def late(self) -> str:
        """Return how far it came until its time was up."""
        try:
            self.socket.getpeername()
        except OSError:
            return f"no answer in {_WAITS_S:g} s"
        return f"connected, but nothing came back in {_WAITS_S:g} s"


class Contact:
    """One host's side of all connections."""

    def __init__(self, listener: socket.socket, word: str) -> None:
        self._listener = listener
        self._word = word.encode() + b"\n"
        self._text = b""
        self._tries: dict[int, Try] = {}
        self._poll = select.poll()
        for number in (0, listener.fileno()):
            self._poll.register(number, select.POLLIN)

    def step(self, end: float) -> bool:
        """Wait until there is something to do, and do it; False: standard input has ended."""
        soonest = min([end, *(one.deadline for one in self._tries.values())])
        for number, _ in self._poll.poll(max(0, int((soonest - time.monotonic()) * 1000) + 1)):
            if number == 0:
                data = os.read(0, _ENOUGH)
                if not data:
                    return False
                *lines, self._text = (self._text + data).split(b"\n")
                for line in lines:
                    self._begin(*line.decode().split())
            elif number == self._listener.fileno():
                self._greet()
            else:
                self._end(number, self._tries[number].outcome())
        now = time.monotonic()
        for number, one in list(self._tries.items()):
            if one.deadline <= now:
                self._end(number, one.late())
        return True

    def _begin(self, number: str, address: str, port: str, word: str) -> None:
        one = Try(number, address, port, word)
        self._tries[one.socket.fileno()] = one
        self._poll.register(one.socket, select.POLLIN)
        if one.failed:
            self._end(one.socket.fileno(), one.failed)

    def _end(self, number: int, why: str) -> None:
        one = self._tries.pop(number)
        self._poll.unregister(number)
        one.socket.close()
        _say(f"tried {one.number} {why}".rstrip())

    def _greet(self) -> None:
        try:
            while True:
                other, _ = self._listener.accept()
                other.sendall(self._word)
                other.close()
        except OSError:  # nobody else is waiting, or somebody gave up
            return


def _socket(address: str) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    made.setblocking(False)  # noqa: FBT003 - how the socket module has it
    return made


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(address: str, word: str) -> None:
    """Listen, and do what is read, until the end."""
    end = time.monotonic() + _LIVES_S
    listener = _socket(address)
    try:
        listener.bind((address, 0))
        listener.listen(_ENOUGH)
    except OSError as error:
        _say(f"error {error.strerror}")
        return
    _say(f"port {listener.getsockname()[1]}")
    contact = Contact(listener, word)
    while time.monotonic() < end and contact.step(end):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
