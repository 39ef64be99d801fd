"""A program that answers as NCCL's RAS does, with recordings of `ncclras`, one after the other.

`python -m tests.support.ras_server [--silent N] FILE…` prints its port. The first N connections get
no answer, as from a process that was stopped. The last recording stays. Like NCCL before 2.28, it
knows no formats where the recording is a text. Protocol: src/ras/client_support.cc of NCCL.
"""

import argparse
import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.support.paths import ROOT


def answer(peer: socket.socket, recording: str) -> None:
    has_formats = recording.lstrip().startswith("{")
    with peer, peer.makefile("rw", newline="\n") as stream:
        for line in stream:
            words = line.lower().split()
            if words == ["status"]:
                stream.write(recording)
                return
            if words[:2] == ["client", "protocol"]:
                stream.write("SERVER PROTOCOL 2\n")
            elif words[:1] == ["timeout"] or (words[:2] == ["set", "format"] and has_formats):
                stream.write("OK\n")
            else:
                stream.write(f"ERROR: Unknown command {line}")
            stream.flush()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--silent", type=int, default=0)
    parser.add_argument("files", type=Path, nargs="+")
    given = parser.parse_args()
    recordings = [path.read_text() for path in given.files]
    kept: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            peer, _ = server.accept()
            if len(kept) < given.silent:
                kept.append(peer)
                continue
            text = recordings.pop(0) if len(recordings) > 1 else recordings[0]
            # What the client says above the report is not the server's.
            threading.Thread(target=answer, args=(peer, text[report_begins(text) :])).start()


def report_begins(text: str) -> int:
    begin = text.find("{")
    return begin if begin >= 0 else text.find("NCCL version")


@contextlib.contextmanager
def ras(*words: str | Path) -> Iterator[str]:
    """Run the program; gives its address."""
    argv = [sys.executable, "-m", "tests.support.ras_server", *map(str, words)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout
        try:
            yield f"127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.kill()


if __name__ == "__main__":
    main()
