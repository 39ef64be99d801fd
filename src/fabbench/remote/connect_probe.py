"""Runs on a host: accepts connections from others, and connects to them. check_hosts.py sends it as text.

Usage: contact ADDRESS TOKEN. Prints ``port NUMBER``, or ``error WHY``. Sends TOKEN to each client.
Reads ``NUMBER ADDRESS PORT TOKEN`` from standard input, connects to each at once, and prints
``tried NUMBER WHY``, without WHY if that token came back. Ends with its standard input, or after 30 s.

Needs Python 3.6, and nothing of fabbench.
"""

import errno
import os
import select
import socket
import sys
import time

_LIFETIME_S, _TIMEOUT_S = 30.0, 3.0
_CHUNK = 1 << 16
_BACKLOG = 1 << 16


class Attempt:
    """A connection in progress."""

    def __init__(self, number: str, address: str, port: str, token: str) -> None:
        self.number = number
        self.deadline = time.monotonic() + _TIMEOUT_S
        self.socket = _socket(address)
        self._token = token.encode() + b"\n"
        error = self.socket.connect_ex((address, int(port)))
        self.failed = os.strerror(error) if error not in {0, errno.EINPROGRESS} else ""

    def outcome(self) -> str:
        """Return why it failed, once something happened; empty if the other host answered."""
        try:
            return "" if self.socket.recv(_CHUNK) == self._token else "another program answered"
        except OSError as error:
            return error.strerror or str(error)

    def timeout_reason(self) -> str:
        """Return how far it got before it timed out."""
        try:
            self.socket.getpeername()
        except OSError:
            return f"no answer in {_TIMEOUT_S:g} s"
        return f"connected, but nothing came back in {_TIMEOUT_S:g} s"


class Contact:
    """One host's side of all connections."""

    def __init__(self, listener: socket.socket, token: str) -> None:
        self._listener = listener
        self._token = token.encode() + b"\n"
        self._text = b""
        self._attempts: dict[int, Attempt] = {}
        self._poll = select.poll()
        for number in (0, listener.fileno()):
            self._poll.register(number, select.POLLIN)

    def step(self, end: float) -> bool:
        """Wait until there is something to do, and do it; False: standard input has ended."""
        deadline = min([end, *(attempt.deadline for attempt in self._attempts.values())])
        for number, _ in self._poll.poll(max(0, int((deadline - time.monotonic()) * 1000) + 1)):
            if number == 0:
                data = os.read(0, _CHUNK)
                if not data:
                    return False
                *lines, self._text = (self._text + data).split(b"\n")
                for line in lines:
                    self._begin(*line.decode().split())
            elif number == self._listener.fileno():
                self._greet()
            else:
                self._end(number, self._attempts[number].outcome())
        now = time.monotonic()
        for number, attempt in list(self._attempts.items()):
            if attempt.deadline <= now:
                self._end(number, attempt.timeout_reason())
        return True

    def _begin(self, number: str, address: str, port: str, token: str) -> None:
        attempt = Attempt(number, address, port, token)
        self._attempts[attempt.socket.fileno()] = attempt
        self._poll.register(attempt.socket, select.POLLIN)
        if attempt.failed:
            self._end(attempt.socket.fileno(), attempt.failed)

    def _end(self, number: int, why: str) -> None:
        attempt = self._attempts.pop(number)
        self._poll.unregister(number)
        attempt.socket.close()
        _print(f"tried {attempt.number} {why}".rstrip())

    def _greet(self) -> None:
        try:
            while True:
                peer, _ = self._listener.accept()
                peer.sendall(self._token)
                peer.close()
        except OSError:  # no other host is waiting, or one gave up
            return


def _socket(address: str) -> socket.socket:
    created = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    created.setblocking(False)  # noqa: FBT003 - the socket module's own interface
    return created


def _print(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main(address: str, token: str) -> None:
    """Listen, and serve the requests on standard input, until the end."""
    end = time.monotonic() + _LIFETIME_S
    listener = _socket(address)
    try:
        listener.bind((address, 0))
        listener.listen(_BACKLOG)
    except OSError as error:
        _print(f"error {error.strerror}")
        return
    _print(f"port {listener.getsockname()[1]}")
    contact = Contact(listener, token)
    while time.monotonic() < end and contact.step(end):
        pass


if __name__ == "__main__":
    main(*sys.argv[1:])
