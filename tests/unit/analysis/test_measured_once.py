"""Two single logs: nothing is claimed of two runs of one thing, and a large loss is found."""

import math
import random
import re
from collections.abc import Collection, Iterable, Mapping
from functools import cache
from itertools import pairwise
from statistics import stdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import Comparison, compare
from fabbench.analysis.gate import check
from fabbench.analysis.headline import headline
from fabbench.analysis.highlights import Trend, highlights
from fabbench.analysis.statistics import Difference
from fabbench.catalog.expectations import PAIRS, assumed_noise, noise_kinds
from fabbench.model.units import parse_size
from fabbench.plan.gates import parse_gate
from tests.performance.false_alarms import SINGLE, recorded
from tests.support.logs_by_hand import GB, KB, MB, column, latencies, log, rates

CLEAR = {Difference.FASTER, Difference.SLOWER}
DRAWS = pytest.mark.parametrize("draws", [20, pytest.param(60, marks=pytest.mark.slow)])
"""How many pairs of executions a test compares."""
LARGEST = 256 * MB


@cache
def executions(name: str) -> list[dict[int, float]]:
    return [{size: math.exp(value) for size, value in each.items()} for each in recorded(name)]


def single(
    label: str, figures: Mapping[int, float], transport: str, lost: Mapping[int, float]
) -> Column:
    return rates(
        label,
        [(size, value * lost.get(size, 1.0)) for size, value in figures.items()],
        transport=transport,
    )


def drawn(name: str, draws: int, lost: Mapping[int, float] | None = None) -> Iterable[Comparison]:
    """Compare two executions of one thing, the first at a loss: size → what is left."""
    chance = random.Random(11)
    for _ in range(draws):
        new, base = chance.sample(executions(name), 2)
        sides = single("new", new, SINGLE[name], lost or {}), single("base", base, SINGLE[name], {})
        yield compare(sides)


def claims(comparison: Comparison, *gates: str) -> list[str]:
    """Return everything that calls the two different."""
    (section,) = comparison.sections
    said = [f"{row.size}: {row.verdict(0)}" for row in section.rows if row.verdict(0) in CLEAR]
    line = headline(comparison, 0)
    assert "measured once" in line
    said += [line] if "faster" in line or "slower" in line else []
    said += [
        each.text
        for each in highlights(comparison)
        if each.trend not in {Trend.SAME, Trend.UNDECIDED}
    ]
    return [*said, *check(list(map(parse_gate, gates)), comparison).breaches]


@DRAWS
@pytest.mark.parametrize("name", SINGLE)
def test_two_runs_of_one_thing_are_called_different_in_at_most_5_percent(
    name: str, draws: int
) -> None:
    found = [claims(each, "busbw:5%", "busbw@16M..1G:5%") for each in drawn(name, draws)]
    assert sum(map(bool, found)) <= 0.05 * draws, found


@DRAWS
def test_a_loss_of_30_percent_at_256_mb_is_found_over_nvlink(draws: int) -> None:
    for each in drawn("p2p", draws, {LARGEST: 0.7}):
        rows = {row.size: row.verdict(0) for row in each.sections[0].rows}
        assert rows[LARGEST] is Difference.SLOWER
        assert "slower from 256 MB up" in headline(each, 0)
        for gate in ("busbw:5%", "busbw@256M:5%"):
            assert "busbw at 256 MB" in check([parse_gate(gate)], each).breaches[-1]


@DRAWS
@pytest.mark.parametrize("name", SINGLE)
def test_a_loss_of_two_thirds_is_found(name: str, draws: int) -> None:
    everywhere = dict.fromkeys(executions(name)[0], 1 / 3)
    assert all(
        check([parse_gate("busbw:5%")], each).breaches for each in drawn(name, draws, everywhere)
    )


# ---------------------------------------------------------------- the assumed noise


@pytest.mark.parametrize("name", SINGLE)
def test_the_assumed_noise_is_at_least_what_was_recorded(name: str) -> None:
    logarithms = recorded(name)
    for size in logarithms[0]:
        assert stdev(each[size] for each in logarithms) <= assumed_noise(
            noise_kinds({SINGLE[name]}), size
        )


@pytest.mark.parametrize("size", [8, 64 * KB, 64 * KB + 1, MB, GB])
def test_what_is_not_known_is_as_noisy_as_the_noisiest_collective(size: int) -> None:
    known = [
        noise_kinds({name}) for name in ("socket", "tcp;ofi_rxm", "libfabric-tcp", "p2p", "shm")
    ]
    most = max(assumed_noise(kinds, size) for kinds in known)
    for transports in (set[str](), {""}, {"efa"}, {"ib+p2p"}, {"unknown"}, {"socket", "p2p"}):
        assert assumed_noise(noise_kinds(transports), size) == most


@pytest.mark.parametrize(
    "kinds", [noise_kinds({"socket"}), noise_kinds({"p2p"}), noise_kinds(()), {PAIRS}]
)
def test_larger_messages_are_assumed_to_be_no_noisier(kinds: Collection[str]) -> None:
    noise = [assumed_noise(kinds, 1 << power) for power in range(40)]
    assert all(small >= large for small, large in pairwise(noise))


def test_a_side_is_as_noisy_as_its_transport() -> None:
    pair = rates("a", [(GB, 75)], transport="p2p"), rates("b", [(GB, 100)], transport="shm")
    other = rates("c", [(GB, 100)], transport="socket")
    assert compare(pair).sections[0].verdict(0) is Difference.SLOWER
    assert compare([pair[0], other]).sections[0].verdict(0) is Difference.UNDECIDED
    tools = latencies("a", [(64, 10)]), latencies("b", [(64, 28)])
    assert compare(tools).sections[0].verdict(0) is Difference.FASTER


# ---------------------------------------------------------------- one headline, one table

table = st.dictionaries(
    st.sampled_from([1 << power for power in range(3, 31, 3)]),
    st.lists(st.integers(1, 40), min_size=2, max_size=4),
    min_size=1,
)


CLAIM = re.compile(
    r"(?P<word>faster|slower) (?:at every size|from (?P<low>\d+ \w+)(?: up| to (?P<to>\d+ \w+))"
    r"|up to (?P<high>\d+ \w+)|at (?P<at>\d+ (?!of )\w+))"
)


def claimed(line: str, sizes: Collection[int]) -> Iterable[tuple[int, str]]:
    """Yield each size of which a headline claims something, and what."""
    for claim in CLAIM.finditer(line):
        low, high = claim["low"] or claim["at"], claim["to"] or claim["high"] or claim["at"]
        first, last = (parse_size(text) if text else None for text in (low, high))
        for size in sizes:
            if (first is None or first <= size) and (last is None or size <= last):
                yield size, claim["word"]


@given(table)
def test_a_headline_names_only_what_the_table_shows(figures: dict[int, list[int]]) -> None:
    sizes = sorted(figures)
    repeats = max(len(values) - 1 for values in figures.values())
    new = column(
        "a",
        *(
            log([(size, 1e8 * figures[size][min(each, len(figures[size]) - 1)]) for size in sizes])
            for each in range(1, repeats + 1)
        ),
    )
    base = column("b", log([(size, 1e8 * figures[size][0]) for size in sizes]))
    comparison = compare([new, base])
    (section,) = comparison.sections
    verdicts = {row.verdict(0) for row in section.rows}
    plateau = section.plateaus[0]
    together = plateau.test.verdict if plateau else None
    line = headline(comparison, 0)
    for word in CLEAR:
        assert (f"{word} " in line) is (word in {*verdicts, together})
    of_sizes = {row.size: row.verdict(0) for row in section.rows}
    for size, verdict in claimed(line, sizes):
        assert of_sizes[size] == verdict, line
    alone = plateau is None or len(plateau.sizes) == 1
    quoted = section.rows[-1].verdict(0) if alone else together
    if verdicts & CLEAR and quoted not in CLEAR and quoted is not None:
        assert f", {quoted}" in line
    assert line.endswith("(measured once)") is any(
        row.ratios[0] is not None for row in section.rows
    )
