"""Output of perftest as its printf statements write it, with any numbers."""

from dataclasses import dataclass
from decimal import Decimal

RULE = "-" * 87
BYTES = {"MB/sec": Decimal(1 << 20), "MiB/sec": Decimal(1 << 20), "Gb/sec": Decimal(125_000_000)}


def header(unit: str) -> str:
    return f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]"


def rate_of(average: str, size: int, unit: str) -> str:
    """The message rate that the source prints for an average: both come from one time."""
    return f"{Decimal(average) * BYTES[unit] / size / 1_000_000:.6f}"


def bandwidth_row(size: int, iterations: int, peak: str, average: str, rate: str) -> str:
    """REPORT_FMT."""
    return (
        f" {size:<7}    {iterations:<10}       {peak:<7}            {average:<7}\t\t     {rate:<7}"
    )


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The text above a table."""

    test: str = "RDMA_Write BW"
    device: str = "mlx5_0"
    connection: str = "RC"
    side: str = "client"
    link: str = "IB"
    local: str = "QPN 0x0067 PSN 0xfd3206"
    remote: str = "QPN 0x0066 PSN 0xdcb546"

    def lines(self) -> list[str]:
        both = "Bidirectional" in self.test
        receives = self.test.startswith("Send")
        return [
            RULE,
            f"                    {self.test} Test",
            f" Dual-port       : OFF\t\tDevice         : {self.device}",
            " Number of qps   : 1\t\tTransport type : IB",
            f" Connection type : {self.connection}\t\tUsing SRQ      : OFF",
            " PCIe relax order: ON\t\tLock-free      : OFF",
            " ibv_wr* API     : ON\t\tUsing Enhanced Reorder      : OFF",
            *([" TX depth        : 128"] if both or self.side == "client" else []),
            *([" RX depth        : 512"] if receives and (both or self.side == "server") else []),
            *([" CQ Moderation   : 100"] if "BW" in self.test else []),
            " Mtu             : 4096[B]",
            f" Link type       : {self.link}",
            " GID index       : 3",
            " Max inline data : 0[B]",
            " rdma_cm QPs\t : OFF",
            " Data ex. method : Ethernet",
            RULE,
            f" local address: LID 0x01 {self.local} RKey 0x2000be VAddr 0x007e0751410000",
            f" remote address: LID 0x01 {self.remote} RKey 0x1fffbd VAddr 0x007255bb410000",
            RULE,
        ]


def waiting() -> list[str]:
    return ["", "*" * 36, "* Waiting for client to connect... *", "*" * 36]


def run(setup: Setup | None = None, *rows: str, unit: str = "MiB/sec") -> list[str]:
    """A whole bandwidth run."""
    return [*(setup or Setup()).lines(), header(unit), *rows, RULE]
