"""Writes torch all_reduce reports as the scripts' print statements do, for tests."""

from collections.abc import Sequence


def sentences(algbw: float = 239.742e9, *, payload: float = 4e9, ranks: int = 16) -> list[str]:
    """Print the sentence form."""
    busbw = algbw * (2 * (ranks - 1) / ranks)
    return [
        (
            f"The average bandwidth of all_reduce with a {payload / 1e9}GB payload (50 trials, "
            f"{ranks} ranks):"
        ),
        f" algbw: {algbw / 1e9:.3f} GBps ({algbw * 8 / 1e9:.1f} Gbps)",
        f" busbw: {busbw / 1e9:.3f} GBps ({busbw * 8 / 1e9:.1f} Gbps)",
        "",
    ]


def table(rows: Sequence[tuple[int, float]], *, ranks: int = 16) -> list[str]:
    """Print the table form; rows are (size, algbw in B/s), sizes powers of two."""
    factor = 2 * (ranks - 1) / ranks
    return [
        f"The average bandwidth of all_reduce over {ranks} ranks (5 warmups / 20 trials):",
        "",
        "| payload |    busbw   |    algbw   |",
        "| ------: | ---------: | ---------: |",
        *(
            f"| {_size(size):>7} | {factor * algbw / 1e9:6.2f}GBps | {algbw / 1e9:6.2f}GBps |"
            for size, algbw in rows
        ),
    ]


def _size(size: int) -> str:
    step = max(size.bit_length() - 1, 0) // 10
    return f"{size >> step * 10}{['', 'K', 'M', 'G', 'T'][step]}iB"
