"""Writes torch all_reduce reports as the scripts' print statements do, for tests."""

from collections.abc import Sequence


def sentences(  # noqa: PLR0913 - what a report says, each with a default
    algbw: float = 239.742e9,
    *,
    payload: float = 4e9,
    trials: int = 50,
    ranks: int = 16,
    blank: str = " ",
    decimals: bool = False,
    stdev: str = "",
) -> list[str]:
    """Print the sentence form. `blank`: before each result; `decimals`: the payload with three of them."""
    busbw = algbw * (2 * (ranks - 1) / ranks)
    size = f"{payload / 1e9:.3f}" if decimals else f"{payload / 1e9}"
    std = f"(std: {stdev}) " if stdev else ""
    return [
        f"The average bandwidth of all_reduce with a {size}GB payload ({trials} trials, {ranks} ranks):",
        f"{blank}algbw: {algbw / 1e9:.3f} GBps {std}({algbw * 8 / 1e9:.1f} Gbps)",
        f"{blank}busbw: {busbw / 1e9:.3f} GBps ({busbw * 8 / 1e9:.1f} Gbps)",
        "",
    ]


def fmt_bytes(size: int, suffix: str = "iB") -> str:
    """Print a power of two as the table form does."""
    step = max(size.bit_length() - 1, 0) // 10
    return f"{size >> step * 10}{['', 'K', 'M', 'G', 'T'][step]}{suffix}"


def table(rows: Sequence[tuple[int, float]], *, ranks: int = 16, old: bool = False, sentence: bool = True) -> list[str]:
    """Print the table form; rows are (size, algbw in B/s). `old`: before 2025-01-22."""
    factor, giga, suffix = 2 * (ranks - 1) / ranks, 2**30 if old else 10**9, "B" if old else "iB"
    lines = [f"The average bandwidth of all_reduce over {ranks} ranks (5 warmups / 20 trials):", ""]
    return [
        *(lines if sentence else []),
        "| payload |    busbw   |    algbw   |",
        "| ------: | ---------: | ---------: |",
        *(
            f"| {fmt_bytes(size, suffix):>7} | {factor * algbw / giga:6.2f}GBps | {algbw / giga:6.2f}GBps |"
            for size, algbw in rows
        ),
    ]


def profile(algbws: Sequence[float], *, gib: float = 0.5, ranks: int = 8) -> list[str]:
    """Print what --profile_stability prints: a row for each trial of one size."""
    factor, trials = 2 * (ranks - 1) / ranks, f"5 warmups / {len(algbws)} trials"
    return [
        f"The {gib}GiB payload bandwidth of all_reduce over {ranks} ranks ({trials}):",
        "",
        "|    busbw   |    algbw   |",
        "| ---------: | ---------: |",
        *(f"| {factor * algbw / 1e9:6.2f}GBps | {algbw / 1e9:6.2f}GBps |" for algbw in algbws),
    ]
