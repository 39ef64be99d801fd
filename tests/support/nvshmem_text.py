"""Writes an NVSHMEM perftest's table as its printf statements do."""

from collections.abc import Sequence


def alltoall(pes: int, sizes: Sequence[int]) -> list[str]:
    """A table of `alltoall_latency` whose busbw is right for `pes`; `sizes` are as printed."""
    lines = [
        "#alltoall_device",
        "size(B)     count     type      scope     latency(us)       algbw(GB/s)   busbw(GB/s) ",
    ]
    for size in sizes:
        latency = 100 + size / 1e4
        algbw = size / 1e3 / latency
        cells = [f"{size:<10}", f"{size // 4:<8}", f"{'32-bit':<8}", f"{'block':<8}"]
        cells += [f"{latency:<16.6f}", f"{algbw:<12.3f}", f"{algbw * (pes - 1) / pes:<12.3f}"]
        lines.append("  ".join(cells))
    return lines
