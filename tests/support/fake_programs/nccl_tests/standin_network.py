"""Which network NCCL would use, by this rank's real environment, and what it would say.

The texts lie in recordings/: see its README.md.
"""

import fcntl
import os
import socket
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from standin_ranks import Place, setting

RECORDINGS = Path(__file__).resolve().parent / "recordings"
_PLUGIN = ("aws libfabric", "libfabric", "ofi")
"""What NCCL_NET may call the aws-ofi-nccl plugin (NCCL compares without regard to case)."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What NCCL came to. `pages` are the recordings that it reads out while it does."""

    network: str
    """Name of the speed recording: efa, ofi-tcp, ib, socket.

    Empty: no network, and the run fails.
    """
    name: str
    """What NCCL calls it."""
    pages: tuple[str, ...]


def choose(interfaces: list[tuple[str, str]]) -> Choice:
    """Do as NCCL 2.28 does, with aws-ofi-nccl where one of its variables speaks of it.

    These are NCCL_NET, NCCL_NET_PLUGIN and FI_PROVIDER.

    A network that is named is used, or the run fails. One that is not is looked for: plugin, IB,
    sockets.
    """
    wanted = os.environ.get("NCCL_NET", "")
    if not interfaces:
        return Choice("", "", ("no-interface",))
    if wanted.lower() in _PLUGIN:
        return _plugin(wanted) or Choice("", "", ("plugin-loaded", "plugin-failed", "no-network"))
    if wanted.lower() == "socket":
        return Choice("socket", "Socket", ("socket",))
    if wanted.lower() == "ib" and nics() and not setting("NO_IB"):
        return Choice("ib", "IB", ("ib",))
    if wanted:
        return Choice("", "", ("no-plugin", "no-ib", "no-network"))
    return _unnamed()


def _unnamed() -> Choice:
    """Look for a network, as NCCL does where none is named: plugin, IB, sockets."""
    requested = os.environ.get(
        "NCCL_NET_PLUGIN", "none" if "FI_PROVIDER" not in os.environ else "ofi"
    )
    if requested == "none":
        return Choice("socket", "Socket", ("no-plugin", "no-ib", "socket"))
    return _plugin("Libfabric") or Choice(
        "socket", "Socket", ("plugin-loaded", "plugin-failed", "no-ib", "socket")
    )


def _plugin(name: str) -> Choice | None:
    """Say what the plugin finds. An empty FI_PROVIDER names a provider that nobody has."""
    provider = os.environ.get("FI_PROVIDER", "efa")
    printed = "AWS Libfabric" if name.lower() == "aws libfabric" else "Libfabric"
    if provider == "efa" and nics() and not setting("NO_EFA"):
        return Choice("efa", printed, ("plugin-loaded", "efa"))
    if provider == "tcp":
        return Choice("ofi-tcp", printed, ("plugin-loaded", "ofi-tcp"))
    return None


def nics() -> list[str]:
    """Return the RDMA devices that NCCL, or libfabric, would use.

    Exact names after `=`, else beginnings.
    """
    found = [f"mlx5_{number}" for number in range(int(setting("NICS", "4")))]
    exact, chosen = os.environ.get("FI_EFA_IFACE", ""), os.environ.get("NCCL_IB_HCA", "")
    if chosen.startswith("="):
        exact = chosen[1:]
    elif chosen:
        return [name for name in found if name.startswith(tuple(chosen.split(",")))]
    return [name for name in found if not exact or name in exact.split(",")]


def interfaces() -> list[tuple[str, str]]:
    """Return the interfaces of NCCL's sockets, with addresses, by NCCL_SOCKET_IFNAME."""
    pattern = os.environ.get("NCCL_SOCKET_IFNAME", "")
    words = pattern.lstrip("^=").split(",")
    found = []
    for _, name in socket.if_nameindex():
        exact = "=" in pattern[:2]
        fits = any(name == word if exact else name.startswith(word) for word in words if word)
        usual = not pattern and not name.startswith(("lo", "docker"))
        if usual or (pattern and fits != pattern.startswith("^")):
            found.append((name, _address(name)))
    return [(name, address) for name, address in found if address]


def _address(interface: str) -> str:
    """Ask the kernel for an interface's address (SIOCGIFADDR); empty if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as wire:
        try:
            answer = fcntl.ioctl(wire, 0x8915, struct.pack("256s", interface.encode()[:15]))
        except OSError:
            return ""
    return socket.inet_ntoa(answer[20:24])


class Debug:
    """NCCL's debug lines.

    To standard output, or line by line to NCCL_DEBUG_FILE (%h host, %p process).
    """

    def __init__(self, place: Place, out: "Writer", facts: dict[str, object]) -> None:
        level = os.environ.get("NCCL_DEBUG", "").upper()
        self.level = level if level in {"VERSION", "WARN", "INFO", "TRACE"} else ""
        self._place, self._out, self._facts = place, out, facts
        path = os.environ.get("NCCL_DEBUG_FILE", "")
        if path and self.level in {"WARN", "INFO", "TRACE"}:
            path = path.replace("%h", place.host).replace("%p", str(place.pid))
            try:
                self._out = Writer(
                    os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644), "line"
                )
            except OSError:
                self._out = out

    def page(self, name: str, **facts: object) -> None:
        """Say what a recording holds, with this rank's own facts in it."""
        for line in (RECORDINGS / f"{name}.txt").read_text().splitlines():
            self.line(line, **facts)

    def line(self, text: str, **facts: object) -> None:
        """Say one line of a recording: `text`, or `WARN where|text`, with facts in braces."""
        text = text.format(**{**self._facts, **facts})
        place = self._place
        process = f"{place.host}:{place.pid}:{place.pid} [{place.local}]"
        if text.startswith("WARN "):
            where, _, text = text.removeprefix("WARN ").partition("|")
            if self.level in {"WARN", "INFO", "TRACE"}:
                now = time.strftime("%Y-%m-%d %H:%M:%S")
                self._out.write(f"\n[{now}] {process} {where} NCCL WARN {text}\n")
        elif self.level in {"INFO", "TRACE"}:
            self._out.write(f"{process} NCCL INFO {text}\n")
        elif self.level and text.startswith("NCCL version") and place.rank == 0:
            self._out.write(f"{text}\n")


class Writer:
    """C's buffered output.

    Line by line to a terminal, else in blocks, unless `stdbuf` says otherwise.
    """

    def __init__(self, file: int, mode: str = "") -> None:
        said = os.environ.get("_STDBUF_O", "") if file == 1 else ""
        usual = "line" if os.isatty(file) else "block"
        self._file, self._held = file, b""
        self._mode = mode or {"L": "line", "0": "line"}.get(said, usual)

    def write(self, text: str) -> None:
        """Write as fwrite does."""
        self._held += text.encode()
        if self._mode == "line":
            self.flush(self._held.rfind(b"\n") + 1)
        while len(self._held) >= 4096:
            self.flush(4096)

    def flush(self, length: int | None = None) -> None:
        """Write what is held, or so many bytes of it."""
        length = len(self._held) if length is None else length
        given, self._held = self._held[:length], self._held[length:]
        while given:
            given = given[os.write(self._file, given) :]
