"""Ranks that have no folder in common, as in pods.

They meet by TCP, at the first host of Open MPI's job.

Where mpirun runs on another host, as the launcher of an MPIJob, rank 0 says in /var/tmp where it
is.
"""

import contextlib
import json
import os
import re
import signal
import socket
import threading
import time
from pathlib import Path

from standin_ranks import Place

INSTALLED = Path("/opt/nccl-tests/build")
"""Where the stand-ins lie in an image."""
_HEAD = "OMPI_MCA_orte_hnp_uri"
_TRIES = 2000


class Call:
    """The same as standin_ranks.Meeting, over connections.

    Rank 0 serves, and hangs up when it ends.
    """

    def __init__(self, place: Place, details: str) -> None:
        self.place = place
        self._progress = ""
        self._over = False
        self._rest = b""
        self._lines: list[socket.socket] = []
        self.details = [details] * place.size
        addresses = re.findall(r"tcp://([\d.,]+):", os.environ[_HEAD])[0].split(",")
        port = 20000 + int(re.sub(r"\D", "", place.job())) % 10000
        self._said = Path(f"/var/tmp/standin-at-{port}")
        if place.rank == 0:
            self._said.write_text(socket.gethostbyname(socket.gethostname()))
            self._serve(port, details)
        else:
            self._call(addresses, port, details)

    def _serve(self, port: int, details: str) -> None:
        server = socket.create_server(("", port), backlog=self.place.size)
        self.details[0] = details
        for _ in range(self.place.size - 1):
            line, _ = server.accept()
            rank, text = json.loads(line.makefile("rb").readline())
            self.details[rank] = text
            self._lines.append(line)
        server.close()
        self._said.unlink(missing_ok=True)
        for line in self._lines:
            line.sendall(json.dumps(self.details).encode() + b"\n")

    def _call(self, addresses: list[str], port: int, details: str) -> None:
        for _ in range(_TRIES):
            said = [self._said.read_text()] if self._said.exists() else []
            for address in (*said, *addresses):
                with contextlib.suppress(OSError):
                    line = socket.create_connection((address, port), timeout=5)
                    line.settimeout(None)
                    line.sendall(json.dumps([self.place.rank, details]).encode() + b"\n")
                    self._lines = [line]
                    self.details = json.loads(self._line())
                    threading.Thread(target=self._listen, daemon=True).start()
                    return
            time.sleep(0.01)
        raise SystemExit("standin: rank 0 does not answer")

    def _line(self) -> bytes:
        while b"\n" not in self._rest:
            more = self._lines[0].recv(1 << 16)
            if not more:
                raise EOFError
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        return line

    def _listen(self) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                self._progress = self._line().decode()
        self._over = True

    def say(self, name: str, text: str) -> None:
        """Tell all ranks how far it is."""
        del name
        for line in self._lines:
            with contextlib.suppress(OSError):
                line.sendall(text.encode() + b"\n")

    def read(self, name: str) -> str:
        """Return what rank 0 said last."""
        del name
        return self._progress

    def over(self) -> bool:
        """Whether rank 0 has hung up."""
        return self._over

    def wait(self) -> None:
        """Wait until rank 0 has hung up."""
        while not self._over:
            time.sleep(0.01)

    def leave_on(self, number: int) -> None:
        """Let a signal end this rank as it would without the stand-in's doing."""
        signal.signal(number, signal.SIG_DFL)

    def leave(self) -> None:
        """Hang up."""
        for line in self._lines:
            line.close()
