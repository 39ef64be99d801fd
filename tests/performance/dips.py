"""How often dips of curves are found, and how often healthy curves have one.

`python -m tests.performance.dips [SEED]` prints a table: dips of one to three sizes by depth, noise
and place, on curves of three shapes (one protocol, three of NCCL's, three far apart), each with the
noise that the catalog assumes for a network; then healthy curves that have a dip.
"""

import random
import sys
from collections.abc import Iterator
from typing import NamedTuple

from fabbench.analysis.curve import Curve
from fabbench.analysis.dips import dip
from fabbench.catalog.expectations import assumed_noise, noise_kinds

SIZES = tuple(8 << doubling for doubling in range(31))  # 8 bytes to 8 GB
SHAPES = (
    ((20e-6, 12e9),),
    ((18e-6, 40e9), (24e-6, 180e9), (42e-6, 300e9)),
    ((18e-6, 20e9), (40e-6, 100e9), (90e-6, 400e9)),
)
"""Start-up times and rates of the protocols of a curve: the fastest one carries each size."""
PLACES = {"32 KB": 12, "256 KB": 15, "4 MB": 19, "64 MB": 23}
TIMES = 90


class Injected(NamedTuple):
    """A dip: so many sizes from a position take 1 / (1 - depth) times as long."""

    at: int
    width: int
    depth: float


def curve(shape: int, noise: float, dice: random.Random, injected: Injected | None = None) -> Curve:
    """Return a curve of a shape, with noise of a deviation in logarithms of time."""
    times: list[float] = []
    for at, size in enumerate(SIZES):
        time = min(start + size / rate for start, rate in SHAPES[shape % len(SHAPES)])
        if injected and injected.at <= at < injected.at + injected.width:
            time /= 1 - injected.depth
        times.append(time * dice.lognormvariate(0, noise))
    rates = [size / time for size, time in zip(SIZES, times, strict=True)]
    return Curve("", "busbw", SIZES, tuple(times), tuple(rates))


def assumed(size: int) -> float:
    """Return the noise that the catalog assumes for a network."""
    return assumed_noise(noise_kinds({"efa"}), size)


def found(injected: Injected, noise: float, seed: int) -> float:
    """Return the share of curves in which the dip is found where it is."""
    dice = random.Random(f"{seed} {injected} {noise}")
    hits = 0
    for shape in range(TIMES):
        seen = dip(curve(shape, noise, dice, injected), assumed)
        inside = SIZES[injected.at : injected.at + injected.width]
        hits += seen is not None and seen.worst in inside
    return hits / TIMES


def false(noise: float, seed: int, times: int = 1200) -> float:
    """Return the share of healthy curves that have a dip, without the catalog's noise."""
    dice = random.Random(f"{seed} {noise}")
    return sum(dip(curve(shape, noise, dice)) is not None for shape in range(times)) / times


def table(seed: int) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{'noise':>6} {'depth':>6} {'sizes':>6} " + " ".join(f"{name:>7}" for name in PLACES)
    for noise in (0.02, 0.06):
        for depth in (0.3, 0.5, 0.7):
            for width in (1, 2, 3):
                shares = [found(Injected(at, width, depth), noise, seed) for at in PLACES.values()]
                cells = " ".join(f"{share:7.0%}" for share in shares)
                yield f"{noise:6.0%} {depth:6.0%} {width:6} {cells}"
    for noise in (0.02, 0.06, 0.08):
        yield f"healthy curves with {noise:.0%} of noise that have a dip: {false(noise, seed):.2%}"


def main() -> None:
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 17
    for line in table(seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
