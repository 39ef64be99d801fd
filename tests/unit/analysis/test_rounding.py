"""A printed figure stands for all that round to it: its last digit is no difference."""

from hypothesis import given, settings
from hypothesis import strategies as some

from fabbench.analysis.compare import compare
from fabbench.analysis.curve_findings import curve_findings
from fabbench.analysis.gate import check
from fabbench.analysis.statistics import Difference
from fabbench.model.errors import Exit
from fabbench.plan.gates import parse_gate
from tests.support.logs_by_hand import column, log

STEP = 1e7
"""nccl-tests prints busbw as `%6.2f` of GB/s."""
SIZES = [1 << bits for bits in range(10, 30)]

digits = some.integers(1, 40)
exact = some.floats(-0.499, 0.499)


def printed(hundredths: float) -> float:
    return round(hundredths) * STEP


@settings(max_examples=60, deadline=None)
@given(digit=digits, apart=some.tuples(exact, exact), repeats=some.integers(1, 12))
def test_figures_a_digit_apart_are_not_shown_to_differ(
    digit: int, apart: tuple[float, float], repeats: int
) -> None:
    """Two true rates less than one digit apart: no verdict and no gate, however many repeats."""
    high, low = (printed(digit + 0.5 + each) for each in (max(apart), min(apart)))
    columns = [
        column(name, *[log([(8, value)])] * repeats) for name, value in (("a", low), ("b", high))
    ]
    made = compare(columns)
    verdicts = {test.verdict for row in made.sections[0].rows for test in row.tests if test}
    assert not verdicts & {Difference.FASTER, Difference.SLOWER}
    assert check([parse_gate("busbw:0%")], made).status is Exit.FINE


def test_repeats_do_not_average_a_last_digit_out() -> None:
    """True rates of 0.205 and 0.215 differ by less than 5 %, however often 0.20 and 0.22 appear."""
    rates = {"a": printed(20), "b": printed(22), "c": printed(10)}
    made = {name: column(name, *[log([(8, rate)])] * 12) for name, rate in rates.items()}
    gate = [parse_gate("busbw:5%")]
    assert check(gate, compare([made["a"], made["b"]])).status is Exit.FINE
    assert check(gate, compare([made["c"], made["b"]])).status is Exit.BAD_ANSWER


@settings(max_examples=60, deadline=None)
@given(digit=digits, apart=exact)
def test_a_limit_within_the_last_digit_is_not_broken(digit: int, apart: float) -> None:
    made = compare([column("a", log([(8, printed(digit + apart))]))])
    bound = (digit + apart) * STEP / 1e9
    found = check([parse_gate(f"busbw@8>={bound:.9f}GB/s")], made)
    assert found.status is Exit.FINE
    beyond = check([parse_gate(f"busbw@8>={(digit + 0.6) * STEP / 1e9:.9f}GB/s")], made)
    assert (beyond.status, len(beyond.breaches)) == (Exit.BAD_ANSWER, 1)


@settings(max_examples=40, deadline=None)
@given(rate=some.floats(2, 40), start=some.floats(1e-4, 1e-2))
def test_a_smooth_curve_of_few_digits_has_no_dip(rate: float, start: float) -> None:
    """The rates are only a few hundredths of the unit."""
    taken = [(size, size / (start + size / (rate * STEP))) for size in SIZES]
    rows = [(size, printed(value / STEP)) for size, value in taken]
    codes = {found.code for found in curve_findings(log(rows))}
    assert not codes & {"dip", "cliff", "latency-jump", "sides-differ"}
