"""Output of perftest as its printf statements write it (perftest_parameters.h and .c), with any numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

RULE = "-" * 87
BYTES = {"MB/sec": Decimal(1 << 20), "MiB/sec": Decimal(1 << 20), "Gb/sec": Decimal(125_000_000)}
LATENCY_HEADER = (
    " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]"
    "   99% percentile[usec]   99.9% percentile[usec] "
)
OLD_LATENCY_HEADER = " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]"
DURATION_HEADER = " #bytes        #iterations       t_avg[usec]    tps average"
OLD_DURATION_HEADER = " #bytes        #iterations       t_avg[usec]  \t"
STATS = ("min", "max", "median", "", "stdev", "p99", "p99.9")


def header(unit: str, extra: str = "") -> str:
    return f" #bytes     #iterations    BW peak[{unit}]    BW average[{unit}]   MsgRate[Mpps]{extra}"


def port_header(unit: str) -> str:
    return header(unit) + "".join(f"   BW Port{n}[{unit}]   MsgRate Port{n}[Mpps]" for n in (1, 2))


def qos_header(unit: str) -> str:
    return header(unit).replace(" #bytes     ", " #bytes    #sl      ")


def rate_of(average: str, size: int, unit: str) -> str:
    """The message rate that the source prints for an average: both come from one time."""
    return f"{Decimal(average) * BYTES[unit] / size / 1_000_000:.6f}"


def bandwidth_row(size: int, iterations: int, peak: str, average: str, rate: str) -> str:
    """REPORT_FMT, or REPORT_FMT_EXT for numbers with six decimals."""
    if len(average.partition(".")[2]) == 6:
        return f" {size:<7}    {iterations}           {peak:<7}            {average:<7}            {rate:<7}"
    return f" {size:<7}    {iterations:<10}       {peak:<7}            {average:<7}\t\t     {rate:<7}"


def latency_row(size: int, iterations: int, times: Sequence[str]) -> str:
    """REPORT_FMT_LAT, of which there were only the first three times before 2016."""
    gaps = ("        ", "      ", "  \t       ", "     \t", "\t\t", " \t\t")
    text = f" {size:<7} {iterations}          {times[0]:<7}"
    return text + "".join(f"{gap}{time:<7}" for gap, time in zip(gaps, times[1:], strict=False))


def duration_row(size: int, iterations: int, average: str, per_second: str = "") -> str:
    """REPORT_FMT_LAT_DUR."""
    return f" {size:<7}       {iterations}            {average:<7}" + (f"        {per_second:<7}" if per_second else "")


def port_row(size: int, iterations: int, numbers: Sequence[str]) -> str:
    """REPORT_FMT_PER_PORT."""
    gaps = ("     ", "            ", "\t\t   ", "        ", "            ", "              ", "            ")
    cells = (f"{gap}{number:<7}" for gap, number in zip(gaps, numbers, strict=True))
    return f" {size:<7}    {iterations:<10}" + "".join(cells)


def qos_row(size: int, level: int, iterations: int, numbers: Sequence[str]) -> str:
    """REPORT_FMT_QOS."""
    peak, average, rate = numbers
    cells = f"{peak:<7}            {average:<7}                  {rate:<7}"
    return f" {size:<7}    {level}           {iterations}           {cells}"


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


def table(head: str, *rows: str) -> list[str]:
    return [head, *rows, RULE]


def run(setup: Setup | None = None, *rows: str, unit: str = "MiB/sec") -> list[str]:
    """A whole bandwidth run."""
    return [*(setup or Setup()).lines(), *table(header(unit), *rows)]


def _rates(unit: str, peak: str, average: str) -> Callable[[int], str]:
    return lambda size: bandwidth_row(size, 5000, peak, average, rate_of(average, size, unit))


LAYOUTS: dict[str, tuple[str, Callable[[int], str]]] = {
    **{unit: (header(unit), _rates(unit, "9876.54", "9123.45")) for unit in BYTES},
    "Gb/sec below 0.1": (header("Gb/sec"), _rates("Gb/sec", "0.098765", "0.091234")),
    "CPU": (
        header("MiB/sec", "    CPU_Util[%]"),
        lambda size: bandwidth_row(size, 5000, "0.00", "9123.45", rate_of("9123.45", size, "MiB/sec")) + "\t    3.25",
    ),
    "ports": (
        port_header("MiB/sec"),
        lambda size: port_row(
            size,
            5000,
            ("0.00", "9123.45", rate_of("9123.45", size, "MiB/sec"), "4000.00", "0.500000", "5123.45", "0.640000"),
        ),
    ),
    "sl": (
        qos_header("Gb/sec"),
        lambda size: qos_row(size, 3, 5000, ("9876.54", "91.25", rate_of("91.25", size, "Gb/sec"))),
    ),
    "latency": (
        LATENCY_HEADER,
        lambda size: latency_row(size, 1000, ("12.12", "18.39", "14.24", "14.32", "0.62", "16.14", "17.39")),
    ),
    "old latency": (OLD_LATENCY_HEADER, lambda size: latency_row(size, 1000, ("1.12", "18.39", "1.24"))),
    "duration": (DURATION_HEADER, lambda size: duration_row(size, 62078352, "2.42", "413812.77")),
    "old duration": (OLD_DURATION_HEADER, lambda size: duration_row(size, 62078352, "2.42")),
}
"""Every layout of the source: its header, and a row of a size."""
