"""One look at the counters of a host: the script that takes it, and the values that it gives.

EFA counters: names as in the kernel's drivers/infiniband/hw/efa/efa_verbs.c. InfiniBand and RoCE: as in the
kernel's Documentation/ABI/stable/sysfs-class-infiniband, where port data is counted in units of 4 octets.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

TX, RX = "tx_bytes", "rx_bytes"
TX_PACKETS, RX_PACKETS = "tx_packets", "rx_packets"


class Kind(StrEnum):
    """What sort of network device it is, which says where its counters are."""

    EFA = "efa"
    IB = "ib"
    ROCE = "roce"
    NETDEV = "netdev"


@dataclass(frozen=True, slots=True, kw_only=True)
class Nic:
    """One network device, or one port of it, as it stood. What could not be read is absent, never 0."""

    name: str
    """As the kernel names it; port 2 of `mlx5_0` is `mlx5_0:2`."""
    kind: Kind
    counters: Mapping[str, int]
    """Since the driver was loaded, in base units: `tx_bytes`, `rx_bytes`, `tx_packets`, `rx_packets`, and
    others by the kernel's own names."""
    link_rate: float | None = None
    """Bytes per second of one direction; None: not told."""
    device: bool = True
    """Whether hardware (a virtual machine's counts) is behind it: not so for a bridge or a veth."""
    up: bool | None = None
    """None: not told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All NICs of one host at one moment, without the loopback."""

    time: float | None
    """Seconds since the host started; None: not told."""
    nics: tuple[Nic, ...]
    unread: tuple[str, ...] = ()
    """Sentences: what the text holds and could not be understood."""


class Source(NamedTuple):
    """Where a counter comes from."""

    file: str
    """Below /sys/class/infiniband/DEVICE/ports/PORT."""
    name: str
    """What it is called here."""
    unit: int = 1
    """What one step of the file means, in bytes or packets."""


PORT_COUNTERS: tuple[Source, ...] = (
    Source("counters/port_xmit_data", TX, 4),
    Source("counters/port_rcv_data", RX, 4),
    Source("counters/port_xmit_packets", TX_PACKETS),
    Source("counters/port_rcv_packets", RX_PACKETS),
    Source("hw_counters/tx_bytes", TX),
    Source("hw_counters/rx_bytes", RX),
    Source("hw_counters/tx_pkts", TX_PACKETS),
    Source("hw_counters/rx_pkts", RX_PACKETS),
    *(
        Source(f"counters/{name}", name)
        for name in (
            *("symbol_error", "link_downed", "link_error_recovery", "local_link_integrity_errors"),
            *("port_rcv_errors", "port_xmit_discards"),
        )
    ),
    *(
        Source(f"hw_counters/{name}", name)
        for name in (
            *("send_bytes", "recv_bytes", "rdma_write_bytes", "rdma_write_recv_bytes"),
            *("rdma_read_bytes", "rdma_read_resp_bytes", "rdma_read_wr_err", "rdma_write_wr_err", "rx_drops"),
            *("retrans_bytes", "retrans_pkts", "retrans_timeout_events"),
            *("unresponsive_remote_events", "impaired_remote_conn_events"),
            *("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rnr_nak_retry_err"),
        )
    ),
)
"""Of two sources of one counter the first that a port has is taken: some RoCE drivers have both."""

_PORT_FILES = " ".join(f'"$port/{name}"' for name in ("rate", "state", "link_layer"))
_COUNTER_FILES = " ".join(f'"$port/{source.file}"' for source in PORT_COUNTERS)
_OF_A_PORT = " \\\n            ".join(textwrap.wrap(f"{_PORT_FILES} {_COUNTER_FILES}", 88))

SNAPSHOT = f"""\
fabbench_counters() (
    cd "${{1:-/}}" || exit
    set -- proc/uptime
    for port in sys/class/infiniband/*/ports/*; do
        set -- "$@" "${{port%/ports/*}}/device/uevent" \\
            {_OF_A_PORT}
    done
    LC_ALL=C grep -sH "" "$@" proc/net/dev sys/class/net/*/device/uevent sys/class/net/*/operstate \\
        sys/class/net/*/speed proc/uptime 2>/dev/null || :
)
"""
"""A function for any POSIX shell: ``fabbench_counters [ROOT]`` prints ``FILE:TEXT`` for each line of files.

It starts one process. What is not there or gives an error when it is read (EOPNOTSUPP, EINVAL) is left out.
Ports are read one after another: EFA's driver asks the device for all counters of a port at once and keeps
them for 10 ms. Interfaces are read from /proc/net/dev, which is that of the reader's own network namespace
where /sys may be another's. ROOT is the folder that holds `sys` and `proc`.
"""
