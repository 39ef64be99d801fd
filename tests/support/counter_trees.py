"""Folders that look like a host's /sys and /proc, for the real script to read.

And traffic made up.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from fabbench.counters.snapshot import (
    SNAPSHOT,
    NicKind,
    NicTraffic,
    Snapshot,
    Traffic,
    read_snapshot,
)
from fabbench.counters.vocabulary import RX, TX

EFA_EVENT = "DRIVER=efa\nPCI_CLASS=20000\nPCI_ID=1D0F:EFA2\nPCI_SLOT_NAME=0000:4f:00.0\n"
HEADING = (
    "Inter-|   Receive                                                |  Transmit\n"
    " face |bytes packets errs drop fifo frame compressed multicast"
    "|bytes packets errs drop fifo colls carrier\n"
)


def write(path: Path, text: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


class Tree:
    """A host as files."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.interfaces: dict[str, tuple[int, int]] = {}
        self.at(100.0)

    def at(self, seconds: float) -> None:
        write(self.root / "proc/uptime", f"{seconds:.2f} 200.00")

    def segments(self, sent: int, again: int) -> None:
        """What TCP counts, in the file as Linux writes it."""
        names = (
            "RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails "
            "EstabResets CurrEstab InSegs"
        )
        values = f"1 200 120000 -1 8 1 0 0 0 5163 {sent} {again} 0 0 0"
        tcp = f"Tcp: {names} OutSegs RetransSegs InErrs OutRsts InCsumErrors\nTcp: {values}"
        write(self.root / "proc/net/snmp", f"Ip: Forwarding DefaultTTL\nIp: 2 64\n{tcp}")

    def port(
        self, device: str, files: Mapping[str, object], *, port: int = 1, layer: str = "InfiniBand"
    ) -> Path:
        folder = self.root / f"sys/class/infiniband/{device}/ports/{port}"
        write(folder / "state", "4: ACTIVE")
        write(folder / "link_layer", layer)
        for name, value in files.items():
            write(folder / name, value)
        return folder

    def efa(self, device: str, tx: int, rx: int, **others: int) -> Path:
        write(self.root / f"sys/class/infiniband/{device}/device/uevent", EFA_EVENT)
        counters = {f"hw_counters/{name}": value for name, value in others.items()}
        return self.port(
            device,
            {
                "rate": "200 Gb/sec (4X HDR)",
                "hw_counters/tx_bytes": tx,
                "hw_counters/rx_bytes": rx,
                **counters,
            },
            layer="Unknown",
        )

    def interface(
        self, name: str, rx: int, tx: int, *, speed: int | None = None, device: bool = True
    ) -> None:
        self.interfaces[name] = (rx, tx)
        rows = [
            f"{at:>6}: {r} {r // 1000} 1 2 0 0 0 0 {t} {t // 1000} 3 4 0 0 0 0"
            for at, (r, t) in self.interfaces.items()
        ]
        write(self.root / "proc/net/dev", HEADING + "\n".join(rows))
        write(self.root / f"sys/class/net/{name}/operstate", "up")
        if speed is not None:
            write(self.root / f"sys/class/net/{name}/speed", speed)
        if device:
            write(self.root / f"sys/class/net/{name}/device/uevent", "DRIVER=ena")

    def text(self, *shell: str) -> str:
        return run_script(str(self.root), shell or ("sh",))

    def snapshot(self, *, loopback: bool = False) -> Snapshot:
        return read_snapshot(self.text().splitlines(), loopback=loopback)


def run_script(root: str, shell: tuple[str, ...] = ("sh",)) -> str:
    """Take a snapshot as a host would.

    The script on standard input, and nothing on standard error.
    """
    script = f'set -eu\n{SNAPSHOT}fabbench_counters "$1"\n'
    done = subprocess.run(
        [*shell, "-s", "--", root],
        input=script,
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    assert done.stderr == ""
    return done.stdout


def nic(name: str, tx: int, rx: int, kind: NicKind = NicKind.EFA, **moved: int) -> NicTraffic:
    return NicTraffic(name=name, kind=kind, counters={TX: tx, RX: rx, **moved}, link_rate=25e9)


def efas(*both: tuple[int, int], seconds: float = 2.0) -> Traffic:
    """Return traffic of EFA devices rdmap0s1, rdmap1s1, …, each (sent, received)."""
    return Traffic(
        seconds=seconds,
        nics=tuple(nic(f"rdmap{number}s1", *counts) for number, counts in enumerate(both)),
    )
