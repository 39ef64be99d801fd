"""How often statistics find a difference.

Of equal configurations (false alarms), and of a true loss.

Tables are drawn from recorded executions of one thing (tests/data/aa), and from models of noise.
"""

import csv
import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import stdev
from typing import NamedTuple, TypeAlias

from fabbench.analysis.sequential import FIRST_LOOK, level_at
from fabbench.analysis.statistics import (
    Difference,
    TwoSamples,
    compare_sizes,
    compare_table,
    loss_test,
)
from fabbench.catalog.expectations import assumed_noise, noise_kinds
from fabbench.plan.request import MAX_REPEATS
from tests.support.paths import DATA

Execution: TypeAlias = Mapping[int, float]
"""Size → the logarithm of its figure."""
Draw: TypeAlias = Callable[[random.Random, int], list[Execution]]
"""Makes executions of one thing."""

SIZES = [1 << bits for bits in range(16, 29)]
PLATEAU = SIZES[-4:]
TOLERANCE = math.log(0.95)
_EIGHT = [0.08] * len(SIZES)


class Rates(NamedTuple):
    """Shares of tables."""

    verdict: float
    """In which some size, or the plateau, is faster or slower."""
    slower: float
    """In which some size is slower, or the plateau is."""
    gate: float
    """In which a gate of 5 % over all sizes fails."""
    gate_of_one: float
    """In which a gate of 5 % at the largest size fails."""
    gate_of_none: float
    """In which a gate of 0 % over all sizes fails."""


SINGLE = {"p2p": "p2p", "h100-p2p": "p2p", "h100-shm": "shm", "h100-sockets": "socket"}
"""The recordings, and what carried their data."""


def recorded(name: str = "p2p") -> list[Execution]:
    """Recorded executions of one thing: 28 over NVLink, or 18 each (tests/data/aa/README.md)."""
    with (DATA / f"aa/{name}.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [
        {int(size): math.log(float(value)) for size, value in row.items() if size != "execution"}
        for row in rows
    ]


def from_record(chance: random.Random, count: int) -> list[Execution]:
    return chance.sample(_RECORD, count)


def fitted(chance: random.Random, count: int) -> list[Execution]:
    """Noise of each size as recorded, normal, half of its variance common to all sizes."""
    return _executions(chance, count, _gauss, _DEVIATIONS, share=0.5)


def common(chance: random.Random, count: int) -> list[Execution]:
    """8 % between executions, all sizes together, and 1 % by size."""
    return _executions(chance, count, _gauss, _EIGHT, share=0.98)


def independent(chance: random.Random, count: int) -> list[Execution]:
    """8 % at every size, for itself."""
    return _executions(chance, count, _gauss, _EIGHT, share=0.0)


def heavy(chance: random.Random, count: int) -> list[Execution]:
    """Heavy tails: Student's t with three degrees of freedom."""
    return _executions(chance, count, _student, _EIGHT, share=0.7)


def outliers(chance: random.Random, count: int) -> list[Execution]:
    """One execution in ten is 30 % slower."""
    found = common(chance, count)
    return [
        {size: value + (math.log(0.7) if slow else 0.0) for size, value in execution.items()}
        for execution in found
        for slow in (chance.random() < 0.1,)
    ]


def missing(chance: random.Random, count: int) -> list[Execution]:
    """One row in ten is missing."""
    found = common(chance, count)
    return [{size: v for size, v in each.items() if chance.random() > 0.1} for each in found]


def one_size(chance: random.Random, count: int) -> list[Execution]:
    return [{SIZES[-1]: chance.gauss(0.0, 0.08)} for _ in range(count)]


def _gauss(chance: random.Random) -> float:
    return chance.gauss(0.0, 1.0)


def _student(chance: random.Random) -> float:
    return chance.gauss(0.0, 1.0) / math.sqrt(chance.gammavariate(1.5, 2.0) / 3)


def _executions(
    chance: random.Random,
    count: int,
    noise: Callable[[random.Random], float],
    deviations: Sequence[float],
    *,
    share: float,
) -> list[Execution]:
    found: list[Execution] = []
    for _ in range(count):
        factor = noise(chance) * math.sqrt(share)
        own = math.sqrt(1 - share)
        found.append(
            {
                size: deviation * (factor + own * noise(chance))
                for size, deviation in zip(SIZES, deviations, strict=True)
            }
        )
    return found


_RECORD = recorded()
_DEVIATIONS = [stdev(each[size] for each in _RECORD) for size in SIZES]


def table(
    executions: Sequence[Execution], new: int, loss: float = 0.0, sizes: Iterable[int] = SIZES
) -> Mapping[int, TwoSamples]:
    """A table whose first `new` executions are one side, at a loss, and the others the baseline."""
    lost = math.log1p(-loss)
    return {
        size: TwoSamples(
            new={n: each[size] + lost for n, each in enumerate(executions[:new]) if size in each},
            base={n: each[size] for n, each in enumerate(executions[new:]) if size in each},
        )
        for size in sizes
        if any(size in each for each in executions)
    }


def rates(draw: Draw, new: int, base: int, *, loss: float = 0.0, tables: int) -> Rates:
    """Draw tables, and return how often something is found."""
    chance = random.Random(1)
    counts = [0] * len(Rates._fields)
    for _ in range(tables):
        pairs = table(draw(chance, new + base), new, loss)
        found_of = compare_table(pairs, PLATEAU)
        verdicts = {row.verdict for row in found_of.sizes.values()}
        if found_of.plateau:
            verdicts.add(found_of.plateau.verdict)
        last = {size: pair for size, pair in pairs.items() if size == SIZES[-1]}
        found = (
            bool(verdicts & {Difference.FASTER, Difference.SLOWER}),
            Difference.SLOWER in verdicts,
            bool(loss_test(pairs, dict.fromkeys(pairs, TOLERANCE)).shown),
            bool(loss_test(last, dict.fromkeys(last, TOLERANCE)).shown),
            bool(loss_test(pairs, dict.fromkeys(pairs, 0.0)).shown),
        )
        counts = [count + each for count, each in zip(counts, found, strict=True)]
    return Rates(*(count / tables for count in counts))


DRAWS: tuple[Draw, ...] = (
    from_record,
    fitted,
    common,
    independent,
    heavy,
    outliers,
    missing,
    one_size,
)


def false_alarms(tables: int) -> None:
    print(f"equal configurations, {tables} tables each: share with a false alarm")
    print(f"  {'':<12} {'repeats':>9}  verdict  gate 5 %  5 % at 256 MB  gate 0 %")
    for draw in DRAWS:
        for new, base in ((3, 3), (5, 5), (12, 12), (3, 12)):
            found = rates(draw, new, base, tables=tables)
            print(
                f"  {draw.__name__:<12} {new:>3} v {base:<3} {found.verdict:8.1%} "
                f"{found.gate:9.1%} "
                f"{found.gate_of_one:14.1%} {found.gate_of_none:9.1%}",
                flush=True,
            )


class Verdicts(NamedTuple):
    """What came of `--repeat auto` without a gate."""

    differs: float
    """Share of tables in which some size, or the plateau, is faster or slower."""
    slower: float
    decided: float
    """Share in which the headline was decided."""
    executions: float
    """Of one side: the mean."""


def until_verdicts(draw: Draw, loss: float, looks: Mapping[int, float], tables: int) -> Verdicts:
    """Look after each number of repeats, at its level, until the headline is decided."""
    chance = random.Random(7)
    differs = slower = decided = used = 0
    most = max(looks)
    for _ in range(tables):
        executions = draw(chance, 2 * most)
        for count, level in looks.items():
            pairs = table(executions[:count] + executions[most : most + count], count, loss)
            found = compare_table(pairs, PLATEAU, level)
            verdicts = {row.verdict for row in found.sizes.values()}
            headline = found.plateau.verdict if found.plateau else Difference.UNDECIDED
            verdicts.add(headline)
            if headline is not Difference.UNDECIDED:
                break
        used += count
        differs += bool(verdicts & {Difference.FASTER, Difference.SLOWER})
        slower += Difference.SLOWER in verdicts
        decided += headline is not Difference.UNDECIDED
    return Verdicts(differs / tables, slower / tables, decided / tables, used / tables)


def adaptive_verdicts(tables: int) -> None:
    """Print --repeat auto without a gate.

    False verdicts of equal configurations, and true losses found.
    """
    looks = {count: level_at(count, MAX_REPEATS) for count in range(FIRST_LOOK, MAX_REPEATS + 1)}
    print(f"--repeat auto without a gate, {tables} tables each: until the headline is decided")
    for draw in (common, fitted, heavy, outliers, missing, one_size):
        for loss in (0.0, 0.2):
            found = until_verdicts(draw, loss, looks, tables)
            expected = (
                f"slower {found.slower:6.1%}" if loss else f"false verdict {found.differs:5.1%}"
            )
            print(
                f"  {draw.__name__:<12} true loss {loss:4.0%}: {expected}, decided "
                f"{found.decided:6.1%}, "
                f"{found.executions:4.1f} repeats",
                flush=True,
            )


def single_logs(tables: int) -> None:
    """Print what comes of pairs of single executions, with the noise that is assumed for them."""
    print(
        f"measured once, {tables} pairs each: some size differs, gate 5 %, gate 5 % at the "
        "largest size"
    )
    for name, transport in SINGLE.items():
        executions, kinds = recorded(name), noise_kinds({transport})
        largest = max(executions[0])
        for loss, sizes in (
            (0.0, ()),
            (0.3, (largest,)),
            (0.3, executions[0]),
            (2 / 3, executions[0]),
        ):
            chance, counts = random.Random(3), [0, 0, 0]
            for _ in range(tables):
                new, base = chance.sample(executions, 2)
                pairs = {
                    size: TwoSamples(
                        new={0: new[size] + (math.log1p(-loss) if size in sizes else 0.0)},
                        base={0: base[size]},
                        assumed=assumed_noise(kinds, size),
                    )
                    for size in new
                }
                last = {largest: pairs[largest]}
                verdicts = {row.verdict for row in compare_sizes(pairs).values()}
                counts[0] += bool(verdicts & {Difference.FASTER, Difference.SLOWER})
                counts[1] += bool(loss_test(pairs, dict.fromkeys(pairs, TOLERANCE)).shown)
                counts[2] += bool(loss_test(last, dict.fromkeys(last, TOLERANCE)).shown)
            what = (
                f"loss {loss:.0%} at {'all sizes' if len(sizes) > 1 else 'the largest'}"
                if loss
                else "equal"
            )
            print(
                f"  {name:<12} {what:<26}",
                *(f"{count / tables:7.1%}" for count in counts),
                flush=True,
            )


def losses_at_the_plateau(tables: int) -> None:
    """Print how often a loss that only the largest sizes have is found: by sizes, with the plateau.

    Noise of 1 % between executions and 2 % of each size.
    """
    print(f"a loss at the {len(PLATEAU)} largest of {len(SIZES)} sizes, {tables} tables each:")
    for repeats in (3, 5):
        for loss in (0.0, 0.05, 0.08):
            chance = random.Random(5)
            lost = math.log1p(-loss)
            by_sizes = with_plateau = 0
            for _ in range(tables):
                pairs = dict(table(_quiet(chance, 2 * repeats), repeats))
                for size in PLATEAU:
                    values = {run: value + lost for run, value in pairs[size].new.items()}
                    pairs[size] = replace(pairs[size], new=values)
                by_sizes += _differs(row.verdict for row in compare_sizes(pairs).values())
                found = compare_table(pairs, PLATEAU)
                plateau = [found.plateau] if found.plateau else []
                with_plateau += _differs(row.verdict for row in (*found.sizes.values(), *plateau))
            print(
                f"  {repeats} repeats, loss {loss:3.0%}: {by_sizes / tables:6.1%} by sizes, "
                f"{with_plateau / tables:6.1%} with the plateau",
                flush=True,
            )


def _quiet(chance: random.Random, count: int) -> list[Execution]:
    deviations = [math.hypot(0.01, 0.02)] * len(SIZES)
    return _executions(chance, count, _gauss, deviations, share=0.2)


def _differs(verdicts: Iterable[Difference]) -> bool:
    return not {Difference.FASTER, Difference.SLOWER}.isdisjoint(verdicts)


def simulate(tables: int) -> None:
    """Print all of it."""
    losses_at_the_plateau(tables)
    false_alarms(tables)
    single_logs(tables)
    adaptive_verdicts(max(tables // 4, 50))
