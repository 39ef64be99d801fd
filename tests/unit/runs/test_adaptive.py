"""`--repeat auto`: when a run has measured enough."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import compare
from fabbench.analysis.gate import check
from fabbench.analysis.sequential import level_at
from fabbench.model.mappings import Sentences
from fabbench.plan.gates import parse_gate
from fabbench.plan.request import Adaptive
from fabbench.runs.run import stop_condition, undecided
from tests.support.logs_by_hand import GB, MB, column, log


def side(label: str, *figures: float) -> Column:
    return column(label, *(log([(MB, value * 1e8), (GB, value * 1e9)]) for value in figures))


NOISY = side("a", 90, 100, 110), side("b", 92, 101, 112)
CLEAR = side("a", 70, 71, 72), side("b", 100, 101, 102)


@pytest.mark.parametrize(
    ("columns", "gates", "left"),
    [
        (CLEAR, (), ()),
        (NOISY, (), ("busbw of a at 1 GB",)),
        (NOISY, ("busbw:50%",), ()),
        (CLEAR, ("busbw:5%",), ()),
        (NOISY, ("busbw@1G>=1GB/s",), ("busbw of a at 1 GB",)),
    ],
)
def test_what_is_undecided(
    columns: Sequence[Column], gates: Sequence[str], left: Sequence[str]
) -> None:
    comparison, parsed = compare(columns), [parse_gate(text) for text in gates]
    assert tuple(undecided(comparison, parsed, check(parsed, comparison))[0]) == left


def test_small_sizes_that_are_left_open_are_named() -> None:
    noisy = [
        column(each, *(log([(MB, small), (GB, 9e10)]) for small in (5e8, 9e8, 14e8)))
        for each in "ab"
    ]
    assert undecided(compare(noisy), (), None) == ([], ["busbw of a at 1 MB"])
    gates = [parse_gate("busbw@1G:5%")]
    assert undecided(compare(noisy), gates, check(gates, compare(noisy))) == (
        (),
        ("busbw of a at 1 MB",),
    )


def test_what_is_undecided_of_a_gate_is_its_sentence() -> None:
    comparison, gates = compare(NOISY), [parse_gate("busbw@1G:5%")]
    ((notices,), _) = undecided(comparison, gates, check(gates, comparison))
    assert notices.startswith("busbw@1G:5%: busbw: a loss ")


def ended(
    adaptive: Adaptive, answers: Iterator[tuple[Sentences, Sentences]], times: Iterator[float]
) -> tuple[int, list[str]]:
    notices: list[str] = []
    enough = stop_condition(
        adaptive, 2, lambda logs: next(answers), notices.append, lambda: next(times)
    )
    return next((number for number in range(1, 40) if enough(number, {})), 0), notices


def test_a_run_ends_with_the_repeat_that_decides() -> None:
    number, notices = ended(
        Adaptive(max_repeats=20),
        iter([(["busbw"], []), (["busbw"], []), ([], ["1 KB"])]),
        iter([0.0]),
    )
    assert number == 10
    assert notices == [
        "Undecided after 3 repeats: busbw",
        "Undecided after 4 repeats: busbw",
        "Decided after 5 repeats. Left open: 1 KB.",
    ]


def test_no_repeat_begins_after_the_time() -> None:
    number, _ = ended(
        Adaptive(max_repeats=20, seconds=10),
        iter([(["busbw"], [])] * 9),
        iter([0.0, 3.0, 6.0, 9.0, 12.0]),
    )
    assert number == 8


def test_a_run_that_looked_has_the_level_of_its_look() -> None:
    looked = [replace(each, max_repeats=20) for each in CLEAR]
    assert compare(looked).level == level_at(3, 20) < compare(CLEAR).level
