"""Gates: their grammar, their breaches, and the laws they keep."""

import json
import re
from dataclasses import replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from fabbench.analysis.compare import Column, compare
from fabbench.analysis.gate import check
from fabbench.analysis.gate_results import GateState, Verdict
from fabbench.analysis.statistics import Difference
from fabbench.model.errors import Exit, RequestError
from fabbench.model.log import METRICS, Outcome
from fabbench.plan.gates import Gate, parse_gate
from fabbench.report.page import comparison_page
from tests.support.any_text import CHARACTERS
from tests.support.logs_by_hand import GB, KB, MB, column, latencies, log, rates
from tests.support.paths import DATA

SAID = json.loads((DATA / "gates.json").read_text("utf-8"))
"""Gates and what they are read as; wrong ones, at which column, and what was expected there."""
HUGE = (f"busbw@{'9' * 400}G:5%", 7, "not a whole number")

# ---------------------------------------------------------------- grammar


@pytest.mark.parametrize(
    ("text", "metric", "kind", "bound", "relative", "low", "high"), SAID["grammar"]
)
def test_grammar(  # noqa: PLR0913, PLR0917 - every part of a gate
    text: str,
    metric: str,
    kind: str,
    bound: float,
    relative: bool,
    low: int | None,
    high: int | None,
) -> None:
    gate = parse_gate(text)
    assert (gate.metric.name, gate.kind, gate.relative) == (metric, kind, relative)
    assert (gate.sizes and gate.sizes.ends) == (None if low is None else (low, high))
    assert gate.bound == pytest.approx(bound, rel=1e-9)


@pytest.mark.parametrize(("text", "position", "wanted"), [*SAID["wrong"], HUGE])
def test_an_invalid_gate_says_where_and_what_was_expected(
    text: str, position: int, wanted: str
) -> None:
    with pytest.raises(RequestError, match=re.escape(wanted)) as caught:
        parse_gate(text)
    assert f"at column {position}" in str(caught.value)
    assert "busbw:5%" in str(caught.value.hint)


@given(st.text(CHARACTERS, max_size=20))
def test_any_text_is_a_gate_or_a_request_that_makes_no_sense(text: str) -> None:
    for full in (text, f"busbw{text}", f"busbw@1M{text}", f"latency:{text}"):
        try:
            gate = parse_gate(full)
        except RequestError:
            continue
        assert isinstance(gate, Gate)
        assert gate.bound >= 0


# ---------------------------------------------------------------- checking


def verdict(gate: str, new: Column, base: Column | None) -> Verdict:
    """Return what a gate finds, which has a breach if and only if it neither passed nor is open."""
    found = check([parse_gate(gate)], compare([new] if base is None else [new, base]))
    without_breach = found.passed or found.inconclusive
    assert (without_breach == (gate,)) == (found.status is Exit.FINE)
    assert found.undecided or not found.inconclusive
    return found


def thrice(one: Column) -> Column:
    """Three executions with equal figures, too few to be copies.

    Their noise is what rounding hides.
    """
    return replace(one, logs=one.logs * 3)


def repeats(label: str, *figures: float, source: str = "") -> Column:
    """A column of executions with these figures at 1 MB, and ten times as much at 1 GB."""
    made = column(label, *(log([(MB, value * 1e9), (GB, value * 1e10)]) for value in figures))
    return replace(made, source=source or made.source)


def times(label: str, *figures: float) -> Column:
    return column(label, *(log([(8, value * 1e-6)], metric="time") for value in figures))


OLD = thrice(rates("old", [(KB, 0.05), (MB, 10), (GB, 80)]))
NEW = thrice(rates("new", [(KB, 0.05), (MB, 10), (GB, 80), (2 * GB, 1)]))
LOST = thrice(rates("new", [(KB, 0.05), (MB, 10)]))
LONG, SHORT = thrice(latencies("new", [(64, 40.62)])), thrice(latencies("old", [(64, 10.62)]))
BASE = repeats("b", 100, 102, 98, source="run 2026-b")
SLOW, FAST = times("a", 13, 13.1, 12.9), times("b", 10, 10.1, 9.9)
HUNDRED, TENTH = thrice(rates("old", [(GB, 100)])), thrice(rates("old", [(KB, 0.01), (GB, 80)]))
GONE = "1 GB is missing from new; .* 80 GB/s"
HALF = {"dtype": "half"}


@pytest.mark.parametrize(
    ("gate", "new", "base", "breach"),
    [
        (
            "busbw@1M..1G:5%",
            thrice(rates("new", [(KB, 0.05), (MB, 9.6), (GB, 70)])),
            OLD,
            (
                r"1 GB is 70 GB/s in new, 12.5 % .* 80 GB/s in old; 5 % .* \(95 % .* -1.* to "
                r"-1.* %; 3 "
                r"and 3 executions\)\."
            ),
        ),
        ("busbw@1M..1G:5%", OLD, OLD, ""),
        ("busbw@1G>=80GB/s", OLD, None, ""),
        ("busbw@1G<=80GB/s", OLD, None, ""),
        ("busbw@1G>=90GB/s", OLD, None, r"1 GB is 80 GB/s in old; expected at least 90 GB/s\."),
        (
            "latency<=10us",
            latencies("pods", [(4, 10.43), (64, 9.9)]),
            None,
            "4 B is 10.43 us .* at most 10 us",
        ),
        # A tolerance ends where it says.
        ("busbw:5%", thrice(rates("new", [(GB, 95)])), HUNDRED, None),
        ("busbw:5%", thrice(rates("new", [(GB, 94.9)])), HUNDRED, "94.9 GB/s .* 5.1 % worse"),
        # Times are worse when longer.
        (
            "latency@64:20us",
            LONG,
            SHORT,
            "64 B is 40.62 us .* 30 us worse than 10.62 us in old; 20 us is allowed",
        ),
        ("latency@64:20us", SHORT, LONG, ""),
        ("latency@64:31us", LONG, SHORT, ""),
        (
            "busbw:5%",
            thrice(rates("new", [(GB, 60)])),
            thrice(rates("old", [(GB, 90)])),
            r"33\.3 % worse",
        ),
        # No figure is worse by more than all of it.
        ("busbw:100%", thrice(rates("new", [(GB, 1)])), HUNDRED, ""),
        (
            "time:5%",
            SLOW,
            FAST,
            r"30 % worse than 10 us in b; .* \(95 % interval -24\.6 to -21\.5 %",
        ),
        ("time:1us", SLOW, FAST, "3 us worse"),
        ("time:5us", SLOW, FAST, ""),
        ("time:5%", FAST, SLOW, ""),
        # A size that vanished is a breach, unless it is outside of the range.
        *(
            (gate, LOST, OLD, GONE)
            for gate in ("busbw:5%", "busbw@1M..1G:5%", "busbw@1G:5%", "busbw@1G>=1GB/s")
        ),
        ("busbw@1K..1M:5%", LOST, OLD, None),
        # Beyond the printed step, and of numbers that are not rounded. A printed 0 is at most half
        # a step.
        ("busbw@1K:5%", thrice(rates("new", [(KB, 0.02)])), OLD, "1 KB is 0.02 GB/s"),
        (
            "busbw:5%",
            thrice(rates("new", [(KB, 0.0441234)])),
            thrice(rates("old", [(KB, 0.0512345)])),
            "1 KB is 0.04 ",
        ),
        (
            "busbw:5%",
            rates("new", [(KB, 0), (GB, 0)]),
            TENTH,
            "1 GB is 0 GB/s in new, 100 % worse than 80 GB/s",
        ),
        (
            "busbw:5%",
            thrice(rates("new", [(KB, 0), (GB, 0)])),
            TENTH,
            "1 GB is 0 GB/s in new, 100 % worse",
        ),
        # Every table is gated.
        (
            "busbw:5%",
            thrice(column("new", log([(GB, 80e9)]), log([(GB, 10e9)], labels=HALF))),
            thrice(column("old", log([(GB, 80e9)]), log([(GB, 80e9)], labels=HALF))),
            "1 GB, dtype half is 10 GB/s",
        ),
        (
            "busbw@1G:5%",
            repeats("a", 70, 71, 69, source="run 2026-a"),
            BASE,
            (
                r"700 GB/s in a \(run 2026-a\), 30 % .* 1000 GB/s in b \(run 2026-b\); .* -3.* to "
                r"-2.* %; 3 and 3 executions"
            ),
        ),
        ("busbw:20%", repeats("a", 99, 100, 101), BASE, ""),
        (
            "ratio@1G>=10",
            repeats("a", 700, 714, 686),
            BASE,
            "7 times as good as .* expected at least 10 x",
        ),
        (
            "ratio@1G>=10",
            rates("a", [(GB, 7)]),
            rates("b", [(GB, 1)]),
            "7 times as good as .* expected at least 10 x",
        ),
        (
            "ratio@1G>=2",
            repeats("a", 150, 153, 147),
            BASE,
            "1.5 times as good as .* expected at least 2 x",
        ),
        ("ratio>=3", rates("a", [(GB, 7)]), rates("b", [(GB, 3)]), "2.33 times as good"),
        ("ratio>=0", rates("a", [(GB, 1)]), rates("b", [(GB, 7)]), ""),
        ("ratio@1G>=5", repeats("a", 700, 714, 686), BASE, ""),
        ("ratio@1G>=5", rates("a", [(GB, 7)]), rates("b", [(GB, 1)]), ""),
        ("ratio>=6x", repeats("a", 700, 714, 686), BASE, ""),
        ("ratio>=6x", rates("a", [(MB, 7), (GB, 7)]), rates("b", [(MB, 1), (GB, 1)]), None),
    ],
)
def test_a_gate_holds_or_says_what_breached_it(
    gate: str, new: Column, base: Column | None, breach: str | None
) -> None:
    """None: it passes, and may be undecided."""
    found = verdict(gate, new, base)
    assert (len(found.breaches), found.status) == (
        (1, Exit.BAD_ANSWER) if breach else (0, Exit.FINE)
    )
    assert (found.notes, found.status) == ((), Exit.FINE) or breach != ""
    assert not breach or re.match(f"{re.escape(gate)}: .*{breach}", found.breaches[0])


def test_a_tolerance_needs_a_baseline() -> None:
    with pytest.raises(RequestError, match="tolerance"):
        verdict("busbw:5%", OLD, None)


@pytest.mark.parametrize(
    ("gate", "why"),
    [
        ("busbw@2G:5%", "busbw at 2 GB could"),
        ("busbw@2G>=1GB/s", "busbw at 2 GB could"),
        ("busbw@2K..512K:5%", "busbw from 2 KB to 512 KB could"),
        ("busbw@1M,2G,3G..4G>=1GB/s", "busbw at 2 GB and from 3 GB to 4 GB could"),
        ("ratio@1M,2G>=0.01", "ratio at 2 GB could"),
        ("latency:5%", "latency in new (it has busbw) and old (it has busbw)."),
    ],
)
def test_a_gate_that_matched_no_data_is_breached(gate: str, why: str) -> None:
    found = verdict(gate, rates("new", [(KB, 0.05), (MB, 10), (GB, 80)]), OLD)
    (breach,) = found.breaches
    assert (breach.startswith(f"{gate} matched no data: "), why in breach, found.status) == (
        True,
        True,
        Exit.BAD_ANSWER,
    )


def test_zero_in_the_base_is_not_compared() -> None:
    found = verdict("busbw:5%", rates("new", [(8, 1)]), rates("old", [(8, 0)]))
    assert found.breaches[0].startswith("busbw:5% matched no data: no busbw ")
    assert found.notes[0].startswith("busbw:5%: busbw was not compared at 8 B: ")


def test_a_size_that_the_base_lacks_is_a_note() -> None:
    found = verdict("busbw@1M..2G:5%", NEW, OLD)
    assert found.breaches == ()
    assert ": busbw was not compared at 2 GB: " in found.notes[-1]


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_change_within_the_printed_step_fails_no_gate(repeats: int) -> None:
    new, base = (rates(name, [(KB, value)]) for name, value in (("new", 0.04), ("old", 0.05)))
    new, base = (replace(each, logs=each.logs * repeats) for each in (new, base))
    found = verdict("busbw@1K:5%", new, base)
    assert (found.breaches, found.status, len(found.undecided)) == ((), Exit.FINE, 1)


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.OK])
def test_a_column_that_is_not_ok_passes_no_gate(outcome: Outcome) -> None:
    new = column("new", log([(GB, 99e9)], outcome=outcome, reason="Because."))
    found = verdict("busbw:5%", new, rates("old", [(GB, 80)]))
    assert found.breaches[0] == f"busbw:5%: new is {outcome}, and passes no gate: Because."
    assert found.status is Exit.UNTRUSTED


@pytest.mark.parametrize(
    "outcome", [Outcome.CORRUPT, Outcome.FAILED, Outcome.OFF_FABRIC, Outcome.TIMEOUT]
)
def test_a_base_that_cannot_be_trusted_compares_nothing(outcome: Outcome) -> None:
    base = column("old", log([(GB, 80e9)], outcome=outcome, reason="Because."))
    found = verdict("busbw:5%", rates("new", [(GB, 99)]), base)
    assert found.breaches == ("busbw:5% matched no data: there is no busbw in old.",)
    assert found.notes == (f"busbw:5%: old is {outcome}: Because.",)
    assert found.status is Exit.UNTRUSTED


# ---------------------------------------------------------------- figures of exactly 0


def unrounded(label: str, metric: str, *figures: float) -> Column:
    """A column of executions of a program of which no printed step is known, at 8 B."""
    made = (log([(8, value)], metric=metric, benchmark="unknown-tool") for value in figures)
    return column(label, *made)


@pytest.mark.parametrize(
    ("gate", "metric", "new", "base", "holds"),
    [
        # Of 0 there is no logarithm: the figures themselves are compared.
        ("bandwidth:60%", "bandwidth", (0.0,), (10e9,), False),
        ("bandwidth:100%", "bandwidth", (0.0,), (10e9,), True),
        ("bandwidth:9GB/s", "bandwidth", (0.0,), (10e9,), False),
        ("bandwidth:10GB/s", "bandwidth", (0.0,), (10e9,), True),
        # 30 us and 0.03 ms are one time, and two floating-point numbers.
        ("latency:30us", "latency", (3e-5,), (0.0,), True),
        ("latency:29us", "latency", (3e-5,), (0.0,), False),
        ("ratio>=10", "bandwidth", (0.0, 10.0, 10.0), (1.0, 1.0, 1.0), True),
        ("ratio>=12", "bandwidth", (0.0, 10.0, 10.0), (1.0, 1.0, 1.0), False),
        ("ratio>=3", "bandwidth", (0.0, 0.3, 0.3), (0.1, 0.1, 0.1), True),
    ],
)
def test_an_execution_that_measured_0_is_compared_by_its_figure(
    gate: str, metric: str, new: tuple[float, ...], base: tuple[float, ...], holds: bool
) -> None:
    sides = unrounded("a", metric, *new), unrounded("b", metric, *base)
    found = verdict(gate, *sides)
    assert (found.status is Exit.FINE, len(found.breaches)) == (holds, 0 if holds else 1)
    assert not any("matched no data" in breach for breach in found.breaches)


@pytest.mark.parametrize(("longer", "holds"), [(5.01, True), (5.02, False)])
def test_a_time_that_was_printed_as_0_may_be_half_of_the_last_digit(
    longer: float, holds: bool
) -> None:
    """5 us are allowed. 5.01 us and 0.00 us, as printed, may be 5.005 us and 0.005 us."""
    found = verdict("time:5us", times("a", longer), times("b", 0.0))
    assert (found.status is Exit.FINE) is holds


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize(
    ("gate", "column", "decided"),
    [
        ("latency<=10.426us", latencies("a", [(64, 10.43)]), False),
        ("latency<=10.424us", latencies("a", [(64, 10.43)]), True),
        ("latency<=10.42us", latencies("a", [(64, 10.43)]), True),
        ("latency<=30us", column("a", log([(8, 3e-5)], metric="latency", benchmark="osu")), True),
        ("wrong<=0", column("a", log([(8, 0.0)], metric="wrong")), True),
        ("busbw@1G>=80.005GB/s", OLD, False),
        ("busbw@1G>=80.006GB/s", OLD, True),
    ],
)
def test_a_limit_within_half_of_the_last_digit_is_undecided(
    gate: str, column: Column, decided: bool
) -> None:
    assert bool(verdict(gate, column, None).undecided) is not decided


@pytest.mark.parametrize("strict", [False, True])
def test_a_gate_on_a_log_that_does_not_show_its_end_is_inconclusive_and_fails_a_strict_check(
    strict: bool,
) -> None:
    column = rates("new", [(GB, 80.0)], complete="unknown")
    (gate,) = check([parse_gate("busbw@1G>=70GB/s")], compare([column]), strict=strict).results
    assert gate.state is (GateState.FAILED if strict else GateState.INCONCLUSIVE)
    whole = rates("new", [(GB, 80.0)], complete="yes")
    (gate,) = check([parse_gate("busbw@1G>=70GB/s")], compare([whole]), strict=strict).results
    assert gate.state is GateState.PASSED


@pytest.mark.parametrize("strict", [False, True])
def test_an_undecided_limit_passes_unless_strict(strict: bool) -> None:
    comparison = compare([latencies("a", [(64, 10.43)])])
    found = check([parse_gate("latency<=10.426us")], comparison, strict=strict)
    assert found.status is (Exit.BAD_ANSWER if strict else Exit.FINE)
    assert found.undecided == (found.breaches if strict else found.notes)


# ---------------------------------------------------------------- which columns


def test_a_gate_compares_the_first_column_with_the_last() -> None:
    """One between them has no say: not with other figures, and not with sizes that it lacks."""
    base = thrice(rates("old", [(MB, 10), (GB, 80)]))
    other = thrice(rates("other", [(MB, 100)]))
    lost = column("lost", log([(MB, 1e9)], outcome=Outcome.TIMEOUT, reason="Because."))
    for middle in (other, lost):
        found = check([parse_gate("busbw:5%")], compare([base, middle, base]))
        assert (found.status, found.breaches, found.notes) == (Exit.FINE, (), ())
        shorter = replace(LOST, label="new")
        (breach,) = check([parse_gate("busbw:5%")], compare([shorter, middle, base])).breaches
        assert re.search(GONE, breach)


def test_a_limit_needs_no_figure_of_the_baseline() -> None:
    base = column("old", log([(GB, 80e9)], outcome=Outcome.TIMEOUT, reason="Because."))
    found = verdict("busbw>=70GB/s", rates("new", [(GB, 80)]), base)
    assert (found.breaches, found.status) == ((), Exit.UNTRUSTED)


@pytest.mark.parametrize("outcome", [Outcome.UNPROVEN, Outcome.TIMEOUT])
def test_what_is_wrong_with_one_column_is_said_once(outcome: Outcome) -> None:
    alone = column("new", log([(GB, 80e9)], outcome=outcome, reason="Because."))
    found = verdict("latency<=1us", alone, None)
    of_outcome, of_metric = found.breaches
    assert of_outcome.count("new is ") == of_metric.count("new") == 1
    assert found.notes == ()


# ---------------------------------------------------------------- laws

sizes = st.sampled_from([8, KB, MB, GB])
values = st.floats(min_value=1e-3, max_value=1e12)
tables = st.dictionaries(sizes, values, min_size=1)
metrics = st.sampled_from([name for name in METRICS if name != "wrong"])
percents = st.floats(min_value=0, max_value=1000)


def made(label: str, rows: dict[int, float], metric: str) -> Column:
    return column(label, log(rows.items(), metric=metric, benchmark="unknown-tool"))


@given(tables, metrics, percents)
def test_nothing_is_worse_than_itself(rows: dict[int, float], metric: str, percent: float) -> None:
    one = made("a", rows, metric)
    assert verdict(f"{metric}:{percent:f}%", one, one).breaches == ()
    found = verdict(f"{metric}:{percent:f}%", thrice(one), thrice(one))
    assert (found.breaches, found.notes, found.status) == ((), (), Exit.FINE)


@given(values, values, metrics)
def test_of_two_that_differ_exactly_one_is_worse(one: float, other: float, metric: str) -> None:
    assume(abs(one - other) > 0.02 * max(one, other))
    a, b = thrice(made("a", {8: one}, metric)), thrice(made("b", {8: other}, metric))
    breached = [bool(verdict(f"{metric}:0%", *pair).breaches) for pair in ((a, b), (b, a))]
    assert sorted(breached) == [False, True]
    assert breached[0] is ((one > other) is METRICS[metric].lower_is_better)


@given(tables, tables, metrics, percents, percents)
def test_a_wider_tolerance_breaches_no_more(
    one: dict[int, float], other: dict[int, float], metric: str, percent: float, more: float
) -> None:
    a, b = thrice(made("a", one, metric)), thrice(made("b", other, metric))
    narrow, wide = (
        {
            breach.split(": ", 1)[1].split(";")[0]
            for breach in verdict(f"{metric}:{each:f}%", a, b).breaches
        }
        for each in (percent, percent + more)
    )
    assert wide <= narrow or not set(one) & set(other)


@given(tables, values)
@example(rows={8: 1.0}, limit=0.0010000000000000002)  # as Python writes it, with 19 decimals
def test_a_limit_is_at_least_or_at_most(rows: dict[int, float], limit: float) -> None:
    column_ = made("a", rows, "bandwidth")
    below = verdict(f"bandwidth>={limit!r}B/s", column_, None).breaches
    above = verdict(f"bandwidth<={limit!r}B/s", column_, None).breaches
    assert len(below) + len(above) <= len(rows)
    assert bool(below) is any(value < limit * (1 - 1e-9) for value in rows.values())


# ---------------------------------------------------------------- with repeats


@pytest.mark.parametrize("strict", [False, True])
def test_a_loss_neither_shown_nor_excluded_is_inconclusive_and_fails_when_strict(
    strict: bool,
) -> None:
    sides = repeats("a", 80, 95, 110), repeats("b", 85, 101, 115)
    found = check([parse_gate("busbw@1G:5%")], compare(sides), strict=strict)
    assert found.status is (Exit.BAD_ANSWER if strict else Exit.FINE)
    (message,) = found.breaches if strict else found.notes
    assert re.fullmatch(
        r"busbw@1G:5%: .* 5 % is neither shown nor excluded at 1 GB\. .* [\d.]+ % at 1 GB .*"
        r"\(950 GB/s in a and 1010 GB/s in b; 95 % .* -\d.* to \+\d.* %\); the noise is the "
        r"problem.*more than 50 .*",
        message,
    )


def test_a_gate_fails_only_where_the_table_shows_a_loss() -> None:
    sides = [repeats("a", 60, 100, 90), repeats("b", 100, 150, 120)]
    comparison = compare(sides)
    assert comparison.sections[0].verdict(0) is Difference.UNDECIDED
    assert check([parse_gate("busbw@1G:0%")], comparison).breaches == ()


def test_a_size_of_a_table_that_shows_no_difference_breaches_no_gate() -> None:
    """Alone it is slower: beyond its own interval, as one of thirteen sizes may be by chance."""
    new, base = (
        column(
            label,
            *(
                log(
                    [(1 << power, (alone if power == 10 else rest) * 1e9) for power in range(8, 21)]
                )
                for alone, rest in figures
            ),
        )
        for label, figures in (
            ("a", [(92, 100), (95, 104), (94, 98)]),
            ("b", [(98, 103), (96.5, 99), (97, 101)]),
        )
    )
    found = verdict("busbw@1K:0%", new, base)
    assert (found.breaches, len(found.undecided)) == ((), 1)
    (note,) = verdict("ratio@1K>=1.03", base, new).undecided
    assert "A ratio of 1 at 1 KB" in note
    alone = [
        column(each.label, *(replace(one, points=[one.points[2]]) for one in each.logs))
        for each in (new, base)
    ]
    assert len(verdict("busbw@1K:0%", *alone).breaches) == 1


def test_tables_share_the_level_of_a_gate() -> None:
    """A loss that one table shows just so is not shown where two tables could each be unlucky."""

    def breaches(*dtypes: str) -> int:
        new, base = (
            column(
                label,
                *(
                    log([(GB, figure * 1e9)], labels={"dtype": dtype})
                    for dtype in dtypes
                    for figure in figures
                ),
            )
            for label, figures in (("a", (89, 91.67, 86.33)), ("b", (100, 103, 97)))
        )
        return len(verdict("busbw:5%", new, base).breaches)

    assert (breaches("half"), breaches("half", "float")) == (1, 0)


def test_a_size_that_may_lose_everything_takes_no_share_of_the_level() -> None:
    """5 GB/s may be lost: all of the 4 GB/s at 1 MB."""
    new, base = (
        column(label, *(log([(MB, 4e9), (GB, figure * 1e9)]) for figure in figures))
        for label, figures in (("a", (85, 87.5, 82.5)), ("b", (100, 103, 97)))
    )
    (breach,) = verdict("busbw:5GB/s", new, base).breaches
    assert "1 GB is 85 GB/s" in breach


@pytest.mark.parametrize(
    ("gate", "new", "base", "said"),
    [
        # The size with the largest loss that is possible.
        (
            "busbw:5%",
            column("a", *(log([(MB, one), (GB, one * one)]) for one in (8e9, 10e9, 12e9))),
            column("b", *(log([(MB, one), (GB, one * one)]) for one in (8e9, 10e9, 12e9))),
            r"excluded at 1 MB, 1 GB\. A loss of .* % at 1 GB",
        ),
        # 0.68 times as good: 46.2 % longer.
        (
            "time:5%",
            times("a", 11, 13, 9),
            FAST,
            r"A loss of 46\.2 % at 8 B .* -31\.6 to \+23\.5 %\)",
        ),
        # Better than the baseline, but hardly as much as is asked.
        (
            "ratio@1G>=2",
            repeats("a", 250, 180, 210),
            BASE,
            r"a ratio below 2 x .*\. A ratio of 1\.62 at 1 GB .* 1\.6 to 2\.8 x\)",
        ),
    ],
)
def test_what_a_gate_cannot_exclude_is_written_as_it_is_asked(
    gate: str, new: Column, base: Column, said: str
) -> None:
    found = verdict(gate, new, base)
    (note,) = found.undecided
    assert (found.breaches, found.notes, found.inconclusive) == ((), (note,), (gate,))
    assert comparison_page(compare([new, base]), found).gates == "inconclusive"
    assert re.search(said, note)


def test_a_size_measured_once_is_decided_by_repeats_and_not_by_less_noise() -> None:
    """Of the size that was repeated, more than 50 repeats would be needed."""
    often = [(80, 85), (95, 101), (110, 115)]
    new, base = (
        column(
            label,
            log([(MB, first * 1e9), (GB, 100e9)]),
            *(log([(MB, each * 1e9)]) for each in others),
        )
        for label, (first, *others) in zip("ab", zip(*often, strict=True), strict=True)
    )
    (note,) = verdict("busbw:5%", new, base).undecided
    assert "excluded at 1 MB, 1 GB" in note
    assert note.endswith("; repeats would decide.")


def test_a_share_of_the_ceiling() -> None:
    comparison = compare([rates("a", [(GB, 70)])])
    gates = [parse_gate("busbw@1G>=80%ceiling")]
    with pytest.raises(RequestError, match=r"ceiling.* busbw at 1 GB in a"):
        check(gates, comparison)
    log = comparison.inputs[0][0].logs[0]
    known = replace(
        log, facts={**log.facts, "instance_type": "p4d.24xlarge", "nodes": 2, "ranks": 16}
    )
    comparison = compare(
        [Column(label="a", logs=(known,), source="a")]
    )  # its ceiling is 93.75 GB/s
    assert check([parse_gate("busbw@1G>=74%ceiling")], comparison).passed == (
        "busbw@1G>=74%ceiling",
    )
    (message,) = check(gates, comparison).breaches
    assert message.endswith("is 70 GB/s in a; expected at least 75 GB/s, 80 % of the ceiling.")


@pytest.mark.parametrize(
    ("rate", "state"),
    [(93, "passed"), (96.5, "passed"), (97, "inconclusive"), (172, "inconclusive")],
)
def test_above_the_ceiling_nothing_passes(rate: float, state: str) -> None:
    (log_,) = rates("a", [(GB, rate)]).logs
    facts = {**log_.facts, "instance_type": "p4d.24xlarge", "nodes": 2, "ranks": 16}
    known = replace(log_, facts=facts)  # its ceiling is 93.75 GB/s
    comparison = compare([Column(label="a", logs=(known,), source="a")])
    gates = [parse_gate("busbw@1G>=80%ceiling")]
    found = check(gates, comparison)
    assert [each.state for each in found.results] == [state]
    assert found.status == 0
    strict = check(gates, comparison, strict=True)
    assert strict.status == (0 if state == "passed" else 1)
    # A limit of its own needs no ceiling, and claims nothing of it
    assert check([parse_gate("busbw@1G>=75GB/s")], comparison).passed


# ---------------------------------------------------------------- measured once


@pytest.mark.parametrize(
    ("new", "base"),
    [
        (rates("a", [(MB, 80), (GB, 790)]), rates("b", [(MB, 100), (GB, 1000)])),
        (rates("a", [(MB, 80), (GB, 790)]), BASE),
        (repeats("a", 80, 79, 81), rates("b", [(MB, 100), (GB, 1000)])),
    ],
)
def test_a_loss_within_the_assumed_noise_is_inconclusive_and_fails_when_strict(
    new: Column, base: Column
) -> None:
    for gate in ("busbw:5%", "busbw@1G:5%", "ratio@1G>=0.95"):
        found = verdict(gate, new, base)
        assert (found.breaches, found.notes) == ((), found.undecided)
        assert "measured once" in found.notes[0]
        strict = check([parse_gate(gate)], compare([new, base]), strict=True)
        assert (strict.status, strict.breaches) == (Exit.BAD_ANSWER, found.notes)


@pytest.mark.parametrize("gate", ["busbw:5%", "busbw@1G:5%", "ratio@1G>=0.95", "busbw:100GB/s"])
@pytest.mark.parametrize(
    "facts", [{}, {"transport": "socket"}, {"transport": "p2p"}, {"transport": "efa"}]
)
def test_a_loss_of_two_thirds_is_still_shown(gate: str, facts: dict[str, str]) -> None:
    third, whole = (
        rates(name, [(MB, part * 10), (GB, part * 100)], **facts)
        for name, part in (("a", 2), ("b", 6))
    )
    breach = verdict(gate, third, whole).breaches[-1]
    assert "measured once; 1 and 1 executions" in breach
    assert verdict(gate, whole, third).breaches == ()


def test_a_noisy_side_with_repeats_widens_the_assumed_noise() -> None:
    noisy = column("a", *(log([(GB, value)]) for value in (80e9, 20e9, 30e9)))
    assert verdict("busbw:5%", rates("b", [(GB, 26)]), thrice(rates("c", [(GB, 80)]))).breaches
    assert not verdict("busbw:5%", noisy, rates("c", [(GB, 80)])).breaches
