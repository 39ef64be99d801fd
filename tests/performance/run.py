"""Measures fabbench itself: start-up and parsers, each against a peer in the same run.

And its verdicts.

`make bench` runs it, `make bench ARGS=--quick` with small logs. Nothing here is asserted: figures
belong to the machine that they were measured on.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

from fabbench.runs.store import runs
from tests.performance.false_alarms import simulate
from tests.performance.logs import debug_log, rows_log, tables_log, write
from tests.performance.store import write_store
from tests.performance.sweeps import sweeps
from tests.support.paths import LOGS, ROOT

FABBENCH = (sys.executable, "-m", "fabbench")
MB = 1_000_000


class Took(NamedTuple):
    """One process: wall seconds, and the most memory it had, in bytes (of the largest process)."""

    seconds: float
    memory: int
    cpu: float
    """Seconds of user and system time, with those of its own processes."""


def took(argv: Sequence[str]) -> Took:
    """Run a program to its end; nobody reads its output."""
    begin = time.perf_counter()
    # Not /dev/null: grep looks for no more than one match then.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output)
        _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv} ended with {process.returncode}")
    return Took(seconds, usage.ru_maxrss * 1024, usage.ru_utime + usage.ru_stime)


def interleaved(commands: Sequence[Sequence[str]], times: int) -> list[list[Took]]:
    """Run commands in turns, so that a busy moment meets all of them."""
    results: list[list[Took]] = [[] for _ in commands]
    for _ in range(times):
        for result, argv in zip(results, commands, strict=True):
            result.append(took(argv))
    return results


def fastest(runs: Sequence[Took]) -> float:
    return min(run.seconds for run in runs)


def instructions(argv: Sequence[str]) -> int:
    """Return how many instructions a program takes, by valgrind, which makes it 50 times slower."""
    count = (
        "valgrind",
        "--tool=cachegrind",
        "--cache-sim=no",
        f"--cachegrind-out-file={os.devnull}",
    )
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(
        [*count, *argv], env=environment, capture_output=True, text=True, check=True
    )
    (number,) = re.findall(r"I *refs: +([\d,]+)", done.stderr)
    return int(number.replace(",", ""))


def start_up(times: int) -> None:
    # As installed: where Python writes no bytecode, each start would compile every module again.
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(ROOT / "src")], check=True)
    one, other = (str(LOGS / name) for name in ("nccl/x-ofi-tcp.txt", "nccl/x-net-socket.txt"))
    commands: dict[str, Sequence[str]] = {
        "import click": (sys.executable, "-c", "import click"),
        "--version": (*FABBENCH, "--version"),
        "--help": (*FABBENCH, "--help"),
        "parse --help": (*FABBENCH, "parse", "--help"),
        "parse LOG": (*FABBENCH, "parse", one),
        "explain LOG": (*FABBENCH, "explain", one),
        "compare LOG LOG": (*FABBENCH, "compare", one, other),
    }
    measured = dict(zip(commands, interleaved(list(commands.values()), times), strict=True))
    base = median(run.cpu for run in measured["import click"])
    print(f"start-up, {times} runs each: CPU time, least and median, against `import click`")
    for name, each in measured.items():
        middle, least = median(run.cpu for run in each), min(run.cpu for run in each)
        print(f"  {name:<16} {least * 1e3:6.1f} ms {middle * 1e3:6.1f} ms  {middle / base:4.2f} x")
    if shutil.which("valgrind"):
        print("instructions of each, by valgrind: the same whatever else the machine does")
        counts = {name: instructions(argv) for name, argv in commands.items()}
        for name, count in counts.items():
            ratio = count / counts["import click"]
            print(f"  {name:<16} {count / 1e6:8.0f} million  {ratio:5.2f} x")


def parser(name: str, path: Path, size: int, times: int, form: str = "json") -> None:
    grep = ("grep", "-c", "busbw", str(path))
    parse = (*FABBENCH, "parse", "--format", form, str(path))
    with_grep, with_fabbench = interleaved((grep, parse), times)
    memory = max(run.memory for run in with_fabbench)
    print(
        f"  {name:<34} {form:<4} {size / MB:6.0f} MB {fastest(with_fabbench):6.2f} s "
        f"{size / fastest(with_fabbench) / MB:7.1f} MB/s  "
        f"{fastest(with_fabbench) / fastest(with_grep):6.1f} x grep -c  {memory / MB:6.0f} MB of "
        "memory"
    )


def many_small(folder: Path, count: int) -> None:
    small = folder / "small"
    small.mkdir()
    size = write(small / "0.log", debug_log(20_000, ranks=8))
    for number in range(1, count):
        shutil.copy(small / "0.log", small / f"{number}.log")
    one = fastest(
        interleaved([(*FABBENCH, "parse", "--format", "csv", str(small / "0.log"))], 3)[0]
    )
    runs = interleaved([(*FABBENCH, "parse", "--format", "csv", str(small))], 3)[0]
    print(
        f"  {count} logs of {size / 1e3:.0f} KB to CSV in one call: {fastest(runs):.2f} s, "
        f"of CPU {min(run.cpu for run in runs):.2f} s (one alone: {one:.2f} s)"
    )


ASKED = {
    "runs": ("runs",),
    "runs -n 20": ("runs", "-n", "20"),
    "history busbw@1G": ("history", "busbw@1G"),
    "history busbw": ("history", "busbw"),
    "compare last --baseline last-good": ("compare", "last", "--baseline", "last-good"),
}


def store_of(count: int, times: int, pages: int) -> None:
    """Measure what is asked of a store of `count` runs, in turns, and the page of some of them."""
    with tempfile.TemporaryDirectory(prefix="fabbench-bench-") as name:
        store = Path(name, "store")
        write_store(store, count)
        where = ("--store", str(store))
        made = took((*FABBENCH, "runs", "--json", *where))
        print(
            f"store of {count} runs (load {os.getloadavg()[0]:.1f}): summaries made in "
            f"{made.seconds:.1f} s"
        )
        for what, words in ASKED.items():
            (measured,) = interleaved([(*FABBENCH, *words, *where)], times)
            least = min(each.cpu for each in measured)
            print(
                f"  {what:<34} {fastest(measured):6.2f} s, of CPU {least:6.2f} s, least of {times}"
            )
        page = Path(name, "report.html")
        refs = [
            path.name.rpartition("-")[2] for _, path in zip(range(pages), runs(store), strict=False)
        ]
        whole = took((*FABBENCH, "report", *refs, "-o", str(page), *where))
        size = page.stat().st_size / 1e6
        print(
            f"  report of {pages} runs ({size:.1f} MB): {whole.seconds:.2f} s, of CPU "
            f"{whole.cpu:.2f} s"
        )


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--quick", action="store_true", help="small logs, few runs")
    quick = options.parse_args().quick
    scale, times = (20, 2) if quick else (200, 3)
    start_up(5 if quick else 20)
    with tempfile.TemporaryDirectory(prefix="fabbench-bench-") as name:
        folder = Path(name)
        path = folder / "one.log"
        print(f"parse, best of {times}, on {os.cpu_count()} cores (load {os.getloadavg()[0]:.1f})")
        tables = 200 if quick else 2000
        size = write(path, tables_log(tables))
        for form in ("csv", "json"):
            parser(f"{tables} tables among channel lines", path, size, times, form)
        parser(
            "NCCL_DEBUG lines, 16 ranks", path, write(path, debug_log(scale * MB, ranks=16)), times
        )
        parser("every line a row", path, write(path, rows_log(scale * MB)), times)
        parser("the same, a tenth of it", path, write(path, rows_log(scale * MB // 10)), times)
        large = scale * 5 * MB
        parser("NCCL_DEBUG lines, 512 ranks", path, write(path, debug_log(large, ranks=512)), 1)
        parser("the same, a tenth of it", path, write(path, debug_log(large // 10, ranks=512)), 1)
        path.unlink()
        many_small(folder, 100 if quick else 613)
    simulate(100 if quick else 2000)
    store_of(*((200, 1, 20) if quick else (10_000, times, 1000)))
    sweeps(2 if quick else 12)


if __name__ == "__main__":
    main()
