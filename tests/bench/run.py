"""Measures fabbench itself: start-up, parsers, checks, each against a peer in the same run.

`make bench` runs it, `make bench ARGS=--quick` with small logs. Nothing here is asserted: figures belong to
the machine that they were measured on.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from hosts import check
from nodes import check_nodes
from overhead import overhead

from logs import debug_log, rows_log, write

FABBENCH = (sys.executable, "-m", "fabbench")
MB = 1_000_000


class Took(NamedTuple):
    """One process: wall seconds, and the most memory it had, in bytes (of the largest process)."""

    seconds: float
    memory: int


def took(argv: Sequence[str]) -> Took:
    """Run a program to its end, its output thrown away."""
    begin = time.perf_counter()
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv} ended with {process.returncode}")
    return Took(seconds, usage.ru_maxrss * 1024)


def interleaved(commands: Sequence[Sequence[str]], times: int) -> list[list[Took]]:
    """Run commands in turns, so that a busy moment meets all of them."""
    results: list[list[Took]] = [[] for _ in commands]
    for _ in range(times):
        for result, argv in zip(results, commands, strict=True):
            result.append(took(argv))
    return results


def fastest(runs: Sequence[Took]) -> float:
    return min(run.seconds for run in runs)


def start_up(times: int) -> None:
    click = (sys.executable, "-c", "import click")
    commands = (click, (*FABBENCH, "--version"), (*FABBENCH, "--help"), (*FABBENCH, "parse", "--help"))
    base, *others = interleaved(commands, times)
    print(f"start-up, {times} runs each: least, median, against `import click`")
    for name, runs in zip(
        ("import click", "--version", "--help", "parse --help"), (base, *others), strict=True
    ):
        middle = median(run.seconds for run in runs)
        ratio = fastest(runs) / fastest(base)
        print(f"  {name:<14} {fastest(runs) * 1e3:6.1f} ms {middle * 1e3:6.1f} ms  {ratio:4.2f} x")


def parser(name: str, path: Path, size: int, times: int) -> None:
    grep = ("grep", "-c", "busbw", str(path))
    parse = (*FABBENCH, "parse", "--format", "json", str(path))
    with_grep, with_fabbench = interleaved((grep, parse), times)
    memory = max(run.memory for run in with_fabbench)
    print(
        f"  {name:<34} {size / MB:6.0f} MB  {size / fastest(with_fabbench) / MB:7.1f} MB/s  "
        f"{fastest(with_fabbench) / fastest(with_grep):6.1f} x grep -c  {memory / MB:6.0f} MB of memory"
    )


def many_small(folder: Path, count: int) -> None:
    small = folder / "small"
    small.mkdir()
    size = write(small / "0.log", debug_log(20_000, ranks=8))
    for number in range(1, count):
        shutil.copy(small / "0.log", small / f"{number}.log")
    one = fastest(interleaved([(*FABBENCH, "parse", "--format", "csv", str(small / "0.log"))], 3)[0])
    runs = interleaved([(*FABBENCH, "parse", "--format", "csv", str(small))], 3)[0]
    print(
        f"  {count} logs of {size / 1e3:.0f} KB in one call: {fastest(runs):.2f} s (one alone: {one:.2f} s)"
    )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="small logs, few runs")
    quick = options.parse_args().quick
    scale, times = (20, 2) if quick else (200, 3)
    start_up(5 if quick else 15)
    with tempfile.TemporaryDirectory(prefix="fabbench-bench-") as name:
        folder = Path(name)
        path = folder / "one.log"
        print(f"parse --format json, best of {times}")
        parser("NCCL_DEBUG lines, 16 ranks", path, write(path, debug_log(scale * MB, ranks=16)), times)
        parser("every line a row", path, write(path, rows_log(scale * MB)), times)
        parser("the same, a tenth of it", path, write(path, rows_log(scale * MB // 10)), times)
        large = scale * 5 * MB
        parser("NCCL_DEBUG lines, 512 ranks", path, write(path, debug_log(large, ranks=512)), 1)
        parser("the same, a tenth of it", path, write(path, debug_log(large // 10, ranks=512)), 1)
        path.unlink()
        many_small(folder, 100 if quick else 1000)
    check(16 if quick else 64, times)
    check_nodes(100, times)
    overhead(times)


if __name__ == "__main__":
    main()
