"""An agent that holds a FIDO key, and signs as an authenticator that was touched (OpenSSH's PROTOCOL.u2f)."""

import base64
import contextlib
import hashlib
import socketserver
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

KIND = "sk-ssh-ed25519@openssh.com"
_APPLICATION = b"ssh:"
_TOUCHED = 1
_LIST, _LISTED, _SIGN, _SIGNED, _FAILURE = 11, 12, 13, 14, 5


def _string(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


@dataclass(kw_only=True)
class SecurityKey:
    """A key that lies in no file."""

    private: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)
    counter: int = 0

    @property
    def blob(self) -> bytes:
        public = self.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        return b"".join(map(_string, (KIND.encode(), public, _APPLICATION)))

    @property
    def line(self) -> str:
        """The key as authorized_keys has it."""
        return f"{KIND} {base64.b64encode(self.blob).decode()} token\n"

    def sign(self, data: bytes) -> bytes:
        self.counter += 1
        state = struct.pack(">BI", _TOUCHED, self.counter)
        text = hashlib.sha256(_APPLICATION).digest() + state + hashlib.sha256(data).digest()
        return _string(KIND.encode()) + _string(self.private.sign(text)) + state


@contextlib.contextmanager
def agent_with(key: SecurityKey, path: Path) -> Iterator[str]:
    """Serve an agent with this one key at a socket."""

    class Answers(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while head := self.rfile.read(4):
                answer = self.answer(self.rfile.read(struct.unpack(">I", head)[0]))
                self.wfile.write(_string(answer))

        def answer(self, request: bytes) -> bytes:
            if request[0] == _LIST:
                return struct.pack(">BI", _LISTED, 1) + _string(key.blob) + _string(b"token")
            if request[0] == _SIGN:
                (data_length,) = struct.unpack_from(">I", request, 1)
                (length,) = struct.unpack_from(">I", request, 5 + data_length)
                data = request[9 + data_length : 9 + data_length + length]
                return bytes([_SIGNED]) + _string(key.sign(data))
            return bytes([_FAILURE])

    class Agent(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

    with Agent(str(path), Answers) as agent:
        thread = threading.Thread(target=agent.serve_forever)
        thread.start()
        try:
            yield str(path)
        finally:
            agent.shutdown()
            thread.join()
