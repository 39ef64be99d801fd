"""The benchmark's command line, its speed, and its rows, as nccl-tests 2.19 prints them."""

import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from standin_network import RECORDINGS
from standin_ranks import setting

LONG = {
    "nthreads": "t",
    "ngpus": "g",
    "minbytes": "b",
    "maxbytes": "e",
    "stepbytes": "i",
    "stepfactor": "f",
    "iters": "n",
    "agg_iters": "m",
    "warmup_iters": "w",
    "parallel_init": "p",
    "check": "c",
    "op": "o",
    "datatype": "d",
    "root": "r",
    "blocking": "z",
    "cudagraph": "G",
    "report_cputime": "C",
    "average": "a",
    "timeout": "T",
}
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_DIVIDED = ("all_gather", "reduce_scatter", "alltoall", "gather", "scatter", "hypercube")
_REDUCING = ("all_reduce", "reduce_scatter", "reduce")
_BYTES = {
    "int8": 1,
    "uint8": 1,
    "half": 2,
    "bfloat16": 2,
    "float": 4,
    "int32": 4,
    "double": 8,
    "int64": 8,
}


def size(text: str) -> int:
    """Read a size: 8, 64K, 4G; 1024-based."""
    unit = "KMGT".find(text[-1:].upper()) + 1
    return int(float(text[:-1] if unit else text) * 1024**unit)


@dataclass
class Arguments:
    """Options by their letters, with nccl-tests' defaults."""

    given: dict[str, str] = field(default_factory=dict)
    wrong: str = ""

    def __getitem__(self, letter: str) -> str:
        """Return an option's value."""
        usual = {"b": "32M", "e": "32M", "i": "1M", "d": "float", "o": "sum", "w": "1", "n": "20"}
        return self.given.get(letter, usual.get(letter, "1" if letter in "tgmc" else "0"))

    def sizes(self) -> list[int]:
        """Every size of the table."""
        now, last = size(self["b"]), size(self["e"])
        factor = int(self["f"])
        found = []
        while now <= last:
            found.append(now)
            now = now * factor if factor > 1 else now + size(self["i"])
            if now == found[-1]:
                break
        return found


def arguments(words: list[str]) -> Arguments:
    """Read a command line."""
    read, letters = Arguments(), set(LONG.values())
    words = list(words)
    while words:
        word = words.pop(0)
        name, _, value = word.lstrip("-").partition("=")
        letter = LONG.get(name, "") if word.startswith("--") else word[1:2]
        if not word.startswith("-") or letter not in letters:
            read.wrong = word
            return read
        if not word.startswith("--"):
            value = word[2:]
        read.given[letter] = value or (words.pop(0) if words else "")
    return read


def factor(collective: str, ranks: int) -> float:
    """Return bus bandwidth over algorithm bandwidth (nccl-tests, doc/PERFORMANCE.md)."""
    if collective == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if collective in _DIVIDED else 1.0


class Speed:
    """A recorded curve: microseconds by message size, out of place and in place."""

    def __init__(self, network: str, nics: int, part: float) -> None:
        """`part` is how much of its speed the network has."""
        lines = (RECORDINGS / f"{network}.speed").read_text().splitlines()
        rows = [line.split() for line in lines if line and not line.startswith("#")]
        self._rows = [(int(row[0]), float(row[1]), float(row[2])) for row in rows]
        algorithm = os.environ.get("NCCL_ALGO", "")
        self._speed = float(setting(f"SPEED_{algorithm}") or setting("SPEED", "1")) * part
        if network == "efa":
            self._speed *= nics / 4
        self._jitter = float(setting("JITTER", "0"))
        self._state = int(setting("SEED", str(os.getpid())))

    def time(self, message: int, column: int) -> float:
        """Return the time of a message in microseconds.

        Between rows on a straight line of logarithms.
        """
        rows = self._rows
        above = next((place for place, row in enumerate(rows) if row[0] >= message), None)
        if above is None:
            found = rows[-1][column] * message / rows[-1][0]
        elif above == 0:
            found = rows[0][column]
        else:
            (low, high) = (rows[above - 1], rows[above])
            part = math.log(message / low[0]) / math.log(high[0] / low[0])
            found = low[column] * (high[column] / low[column]) ** part
        latency = rows[0][column]
        return (latency + max(0.0, found - latency) / self._speed) * (
            1 + self._jitter * self._noise()
        )

    def _noise(self) -> float:
        """Return a number between -1 and 1, the same ones for the same SEED."""
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 11) / 2**52 - 1


def _time(value: float) -> str:
    """Print microseconds in seven characters."""
    return f"{value:7.2f}" if value < 1e4 else f"{value:7.1f}" if value < 1e5 else f"{value:7.0f}"


class Table:
    """The rows of one run."""

    def __init__(self, program: str, options: Arguments, ranks: int, speed: Speed) -> None:
        self.collective = Path(program).name.partition("_perf")[0]
        self.options, self.ranks, self._speed = options, ranks, speed
        self.busbw: list[float] = []
        self.wrong = 0

    def header(self) -> str:
        """Return the three lines above the rows."""
        return (
            "#\n"
            f"#{'out-of-place':>74} {'in-place':>30}          \n"
            "#       size         count      type   redop    root     time   algbw   busbw  #wrong"
            "     time   algbw   busbw  #wrong \n"
            "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
            "      (us)  (GB/s)  (GB/s)         \n"
        )

    def row(self, requested: int) -> str:
        """Return one row; the size is rounded to what the ranks can share, as the real ones do."""
        element = _BYTES[self.options["d"]]
        count, bytes_ = requested // element, requested // element * element
        if self.collective in _DIVIDED:
            count = requested // element // self.ranks & -(16 // element)
            bytes_ = count * element * self.ranks
        redop = self.options["o"] if self.collective in _REDUCING else "none"
        root = int(self.options["r"]) if self.collective in _ROOTED else -1
        halves = [self._half(requested, bytes_, column) for column in (1, 2)]
        return (
            f"{bytes_:12d}  {count:12d}  {self.options['d']:>8}  {redop:>6}  "
            f"{root:6d}{''.join(halves)}\n"
        )

    def _half(self, requested: int, bytes_: int, column: int) -> str:
        time = self._speed.time(max(1, bytes_), column)
        algbw = bytes_ / time / 1e3
        busbw = algbw * factor(self.collective, self.ranks)
        self.busbw.append(busbw)
        wrong = "0"
        if self.options["c"] == "0" or (column == 2 and self.collective == "alltoall"):
            wrong = "N/A"
        elif (fault := setting("WRONG")) and size(fault) == requested:
            wrong, self.wrong = "7", self.wrong + 7
        return f"  {_time(time)}  {algbw:6.2f}  {busbw:6.2f}  {wrong:>6}"

    def footer(self) -> str:
        """Return what follows the rows."""
        average = sum(self.busbw) / max(1, len(self.busbw))
        return (
            f"# Out of bounds values : {self.wrong} {'FAILED' if self.wrong else 'OK'}\n"
            f"# Avg bus bandwidth    : {average:g} \n#\n"
            f"# Collective test concluded: {self.collective}_perf\n#\n\n"
        )
