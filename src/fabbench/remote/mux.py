"""Programs through an OpenSSH master: the protocol of its control socket (OpenSSH's PROTOCOL.mux, version 4).

The master serves many programs over one connection, made by the user's own `ssh` or by fabbench's. It gets a
program's streams as file descriptors and reports how it ended, or why it did not start; `ssh -S` exits with
255 for either. Both classes offer what `fabbench.remote.connection` uses of paramiko's counterparts.
"""

import contextlib
import os
import select
import selectors
import socket
import struct
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from fabbench.remote.paramiko_library import paramiko

_VERSION = 4
_HELLO = 0x00000001
_NEW_SESSION, _ALIVE_CHECK = 0x10000002, 0x10000004
_PERMISSION_DENIED, _FAILURE, _EXIT = 0x80000002, 0x80000003, 0x80000004
_ALIVE, _OPENED = 0x80000005, 0x80000006
_NO_ESCAPE = 0xFFFFFFFF
_MAX_MESSAGE = 1 << 18
"""Limit in bytes of a message that a master accepts."""
_MESSAGE_OVERHEAD = 1 << 8
"""Bytes of it reserved for everything but the command."""
_REFUSED = 4
"""SSH_OPEN_RESOURCE_SHORTAGE: sshd's answer beyond its MaxSessions."""

_CHECK_S = 5.0
_KEEPALIVE_S = 30.0
_SLICE_S = 0.2
_CHUNK = 1 << 16

Message: TypeAlias = tuple[int, bytes]


def serves(path: str) -> bool:
    """Return whether a master answers at a control path, as ``ssh -O check`` does."""
    try:
        with contextlib.closing(_Control(path)) as control:
            control.check()
    except (OSError, EOFError):
        return False
    return True


class _Control:
    """One connection to a control socket."""

    def __init__(self, path: str, timeout_s: float = _CHECK_S) -> None:
        """Connect. Raise OSError, EOFError."""
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._buffer = b""
        self._last_id = 0
        try:
            self.socket.settimeout(timeout_s)
            self.socket.connect(path)
            self._greet(time.monotonic() + timeout_s)
        except BaseException:
            self.socket.close()
            raise

    def _greet(self, deadline: float) -> None:
        self.send(_HELLO, _VERSION)
        kind, rest = self.receive(deadline)
        if kind != _HELLO or struct.unpack_from(">I", rest)[0] != _VERSION:
            raise OSError(f"the master does not speak version {_VERSION} of OpenSSH's protocol")

    def send(self, *fields: int | str) -> None:
        """Send a message of numbers and texts."""
        self.socket.sendall(_packed(b"".join(map(_field, fields))))

    def check(self) -> None:
        """Check that the master is alive. Raise OSError or EOFError if it is not."""
        self._last_id += 1
        self.send(_ALIVE_CHECK, self._last_id)
        kind, _ = self.receive(time.monotonic() + _CHECK_S)
        if kind != _ALIVE:
            raise OSError(f"the master answers {kind:#x}")

    def receive(self, deadline: float) -> Message:
        """Wait for the next message. Raise EOFError at the end, or TimeoutError."""
        while (message := self._next_message()) is None:
            self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                self._fill()
            except TimeoutError as error:
                raise TimeoutError("Timeout: no answer from the master") from error
        return message

    def arrived(self) -> Iterator[Message]:
        """Yield the messages received so far, without waiting. Raise EOFError at the end."""
        self.socket.settimeout(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                while (message := self._next_message()) is not None:
                    yield message
                self._fill()

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def _fill(self) -> None:
        chunk = self.socket.recv(_CHUNK)
        if not chunk:
            raise EOFError("the master closed its control socket")
        self._buffer += chunk

    def _next_message(self) -> Message | None:
        if len(self._buffer) < 8:
            return None
        length, kind = struct.unpack_from(">II", self._buffer)
        if len(self._buffer) < 4 + length:
            return None
        body, self._buffer = self._buffer[8 : 4 + length], self._buffer[4 + length :]
        return kind, body


def _packed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def _field(value: int | str) -> bytes:
    return struct.pack(">I", value) if isinstance(value, int) else _packed(value.encode("utf-8", "surrogateescape"))


def _text(body: bytes, offset: int) -> str:
    (length,) = struct.unpack_from(">I", body, offset)
    return body[offset + 4 : offset + 4 + length].decode("utf-8", "replace")


class MuxTransport:
    """A master's connection to a host. As with paramiko's Transport, any thread may call its methods."""

    def __init__(self, path: str, end: Callable[[], None]) -> None:
        """Use the master at a control path; `end` ends it if it is ours. Raise OSError, EOFError."""
        self.path = path
        self._end = end
        self._closed = False
        self._control_lock = threading.Lock()
        self._channels: weakref.WeakSet[MuxChannel] = weakref.WeakSet()
        self._control = _Control(path)
        try:
            self._control.check()
        except BaseException:
            self._control.close()
            raise

    @property
    def closed(self) -> bool:
        """Whether fabbench closed it."""
        return self._closed

    def is_authenticated(self) -> bool:
        """Return whether the master is alive, as far as is known."""
        if self._closed:
            return False
        # It sends nothing without a request, so a readable socket means the end.
        with self._control_lock:
            try:
                return not _ready(self._control.socket.fileno(), select.POLLIN)
            except (OSError, ValueError):
                return False

    def is_active(self) -> bool:
        """Check whether the master is alive."""
        if self._closed:
            return False
        with self._control_lock:
            try:
                self._control.check()
            except (OSError, EOFError):
                return False
        return True

    def get_exception(self) -> Exception | None:
        """Return why it broke: always None, as the master does not report it to its clients."""
        return None

    def open_session(self, timeout: float) -> "MuxChannel":
        """Return a channel on which a program can be started within `timeout` seconds."""
        channel = MuxChannel(self, timeout)
        self._channels.add(channel)
        return channel

    def global_request(self, kind: str, *, wait: bool) -> None:
        """Make the host answer, by running a program that does nothing. Raise an error if it does not."""
        del kind, wait  # a master does not forward such requests
        channel = self.open_session(_KEEPALIVE_S)
        try:
            channel.exec_command("exec true")
        except paramiko().ChannelException:
            return  # a refusal is an answer too
        finally:
            channel.close()

    def close(self) -> None:
        """End the streams of all programs, and the master if it is ours."""
        self._closed = True
        for channel in list(self._channels):
            channel.cut()
        with contextlib.suppress(OSError):
            self._control.socket.shutdown(socket.SHUT_RDWR)
        with self._control_lock:
            self._control.close()
        self._end()


class MuxChannel:
    """A program on the host. One thread reads; others may write and close."""

    def __init__(self, transport: MuxTransport, timeout_s: float) -> None:
        """Create a channel; `timeout_s` limits how long starting may take."""
        self.closed = False
        self._transport = transport
        self._start_s = timeout_s
        self._send_s: float | None = None
        self._status: int | None = None
        self._control: _Control | None = None
        self._in = -1
        self._outputs: dict[int, bytes] = {}
        """Open outputs (stdout, stderr): descriptor → data read from it."""
        self._out = self._err = -1
        self._selector: Any = selectors.DefaultSelector()
        self._lock = threading.RLock()

    def __del__(self) -> None:
        """Close all descriptors."""
        self.close()

    def get_transport(self) -> MuxTransport:
        """Return the connection."""
        return self._transport

    def settimeout(self, timeout: float | None) -> None:
        """Set how long `sendall` waits until it can write."""
        self._send_s = timeout

    def fileno(self) -> int:
        """Return a descriptor that is readable when there is something to read."""
        return int(self._selector.fileno())

    def exec_command(self, command: str) -> None:
        """Start a program. Raise OSError, EOFError, or paramiko's errors if it is refused."""
        if len(command.encode("utf-8", "surrogateescape")) + _MESSAGE_OVERHEAD > _MAX_MESSAGE:
            raise paramiko().SSHException("the command line is too long")
        try:
            self._start(command)
        except BaseException:
            self.close()
            raise

    def _start(self, command: str) -> None:
        deadline = time.monotonic() + self._start_s
        self._control = control = _Control(self._transport.path, self._start_s)
        passed = self._pipes()
        try:
            # No terminal, no X11, no agent, no subsystem.
            control.send(_NEW_SESSION, 1, "", 0, 0, 0, 0, _NO_ESCAPE, "", command)
            for descriptor in passed:
                socket.send_fds(control.socket, [b"\0"], [descriptor])
        finally:
            for descriptor in passed:
                os.close(descriptor)
        kind, body = control.receive(deadline)
        if kind == _FAILURE:
            raise paramiko().ChannelException(_REFUSED, _text(body, 4))
        if kind != _OPENED:
            denied = kind == _PERMISSION_DENIED
            raise paramiko().SSHException(_text(body, 4) if denied else f"the master answers {kind:#x}")
        self._selector.register(control.socket, selectors.EVENT_READ)

    def _pipes(self) -> tuple[int, int, int]:
        """Make the pipes, and return the ends for the master: stdin, stdout, stderr."""
        in_, self._in = os.pipe()
        self._out, out = os.pipe()
        self._err, err = os.pipe()
        os.set_blocking(self._in, False)
        for descriptor in (self._out, self._err):
            os.set_blocking(descriptor, False)
            self._outputs[descriptor] = b""
            self._selector.register(descriptor, selectors.EVENT_READ)
        return in_, out, err

    # -- input

    def send_ready(self) -> bool:
        """Return whether the program's input accepts data, or is closed."""
        with self._lock:
            return self._in < 0 or _ready(self._in, select.POLLOUT)

    def send(self, data: bytes) -> int:
        """Write what fits. Raise OSError if nothing reads it any more."""
        with self._lock:
            if self._in < 0:
                raise OSError("its input is closed")
            try:
                return os.write(self._in, data)
            except BlockingIOError:
                return 0

    def sendall(self, data: bytes) -> None:
        """Write all of it. Raise OSError, or TimeoutError if nothing is accepted for too long."""
        left, last_sent = memoryview(data), time.monotonic()
        while left:
            sent = self.send(bytes(left[:_CHUNK]))
            left = left[sent:]
            now = time.monotonic()
            if sent:
                last_sent = now
            elif self._send_s is not None and now - last_sent > self._send_s:
                raise TimeoutError
            elif self._transport.closed:
                raise OSError("the connection is closed")
            elif (opened := self._in) >= 0:
                _ready(opened, select.POLLOUT, _SLICE_S)

    def shutdown_write(self) -> None:
        """End its input."""
        with self._lock:
            if self._in >= 0:
                os.close(self._in)
                self._in = -1

    # -- output

    def recv_ready(self) -> bool:
        """Return whether there is output."""
        return self._has(self._out)

    def recv(self, size: int) -> bytes:
        """Return available output, at most `size` bytes."""
        return self._read(self._out, size)

    def recv_stderr_ready(self) -> bool:
        """Return whether there is output on stderr."""
        return self._has(self._err)

    def recv_stderr(self, size: int) -> bytes:
        """Return available output on stderr, at most `size` bytes."""
        return self._read(self._err, size)

    @property
    def eof_received(self) -> bool:
        """Whether all outputs have ended."""
        self.exit_status_ready()  # a message that has arrived wakes no one up again
        self._has(self._out)
        self._has(self._err)
        return not self._outputs or self._transport.closed

    def _has(self, descriptor: int) -> bool:
        with self._lock:
            buffered = self._outputs.get(descriptor)
            if buffered or buffered is None:
                return bool(buffered)
            try:
                chunk = os.read(descriptor, _CHUNK)
            except BlockingIOError:
                return False
            if not chunk:
                self._drop(descriptor)
                return False
            self._outputs[descriptor] = chunk
            return True

    def _read(self, descriptor: int, size: int) -> bytes:
        with self._lock:
            buffered = self._outputs.get(descriptor, b"")
            if descriptor in self._outputs:
                self._outputs[descriptor] = buffered[size:]
            return buffered[:size]

    def _drop(self, descriptor: int) -> None:
        del self._outputs[descriptor]
        self._selector.unregister(descriptor)
        os.close(descriptor)

    # -- end

    def exit_status_ready(self) -> bool:
        """Return whether the program has ended, or its connection has."""
        with self._lock:
            if self._status is None and self._control is not None and not self.closed:
                self._listen(self._control)
        return self._status is not None

    def recv_exit_status(self) -> int:
        """Return its exit status; -1: a signal ended it, or the connection broke."""
        return -1 if self._status is None else self._status

    def _listen(self, control: _Control) -> None:
        try:
            for kind, body in control.arrived():
                if kind == _EXIT:
                    (self._status,) = struct.unpack_from(">I", body, 4)
                    break
        except (EOFError, OSError):
            # A master does not report signals: it closes the control connection.
            self._status = -1
        if self._status is not None:
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(control.socket)

    def cut(self) -> None:
        """End the streams from another thread, which wakes up readers."""
        if self._control is not None:
            with contextlib.suppress(OSError):
                self._control.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the streams. The program keeps running."""
        with self._lock:
            if self.closed:
                return
            self.closed = True
            self.shutdown_write()
            self._selector.close()
            for descriptor in self._outputs:
                os.close(descriptor)
            self._outputs.clear()
            if self._control is not None:
                self._control.close()


def _ready(descriptor: int, event: int, wait_s: float = 0) -> bool:
    poll = select.poll()
    poll.register(descriptor, event)
    return bool(poll.poll(wait_s * 1000))
