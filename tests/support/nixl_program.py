"""A stand-in for nixlbench that prints what the true one has printed.

It takes the options of the true one, meets the other process as that does, and prints the lines of
its side of a recording: the log of a run with the same operation, over what the environment allows.
"""

import ipaddress
import os
import sys

from tests.support.paths import DATA
from tests.support.rail_programs import meet, say

RECORDINGS = DATA / "corpus/nixl"
_NAMES = {
    ("tcp", "WRITE"): "writes-over-tcp",
    ("tcp", "READ"): "reads-over-tcp",
    ("shm,tcp", "WRITE"): "writes-through-shared-memory",
}
"""UCX_TLS, and the operation → the log."""
_ABORTED = 134


def recording(operation: str) -> str:
    """Return the name of the recording, or of the one that a test asks for."""
    usual = _NAMES.get((os.environ.get("UCX_TLS", ""), operation), "")
    return os.environ.get("STANDIN_RECORDING", usual)


def main(words: list[str]) -> int:
    given = dict(word.removeprefix("--").partition("=")[::2] for word in words)
    assert given["runtime_type"] == "ASIO"
    address = ipaddress.ip_address(given["asio_address"])  # the true one takes no names
    side = "server" if address.is_unspecified else "client"
    lines = (RECORDINGS / f"{recording(given['op_type'])}.txt").read_text().splitlines()
    meet(int(given["asio_port"]), None if side == "server" else str(address))
    tag = f"[fabbench:{side}] "
    own = [line.removeprefix(tag) for line in lines if line.startswith(tag)]
    say(*own)
    return _ABORTED if any("terminate called" in line for line in own) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
