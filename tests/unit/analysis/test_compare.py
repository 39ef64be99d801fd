"""Figures, refusals and ratios."""

import json
import re
from dataclasses import replace
from decimal import ROUND_HALF_UP, Decimal
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.analysis.aggregate import MUST_MATCH
from fabbench.analysis.compare import Column, Comparison, compare
from fabbench.analysis.footnotes import footnotes
from fabbench.analysis.highlights import highlights
from fabbench.model.errors import Exit, RequestError
from fabbench.model.log import METRICS, Outcome, Point
from fabbench.model.units import format_change, format_decimal
from fabbench.report.comparison_tables import tables_of_comparison
from tests.support.logs_by_hand import ALL_REDUCE, FACTS, GB, KB, MB, column, latencies, log, rates
from tests.support.paths import DATA


def cells(comparison: Comparison, table: int = 0) -> list[str]:
    """Return the rows of a table, with bars between cells; decimals are trimmed."""
    rows = tables_of_comparison(comparison)[table].rows
    return [re.sub(r"\.0+\b|(\.\d*[1-9])0+\b", r"\1", "|".join(row)) for row in rows]


def header(comparison: Comparison, table: int = 0) -> str:
    return "|".join(tables_of_comparison(comparison)[table].header[1:])


def notes(comparison: Comparison) -> str:
    return "\n".join(footnotes(comparison))


# ---------------------------------------------------------------- ratios


@pytest.mark.parametrize(
    ("ratio", "text"),
    [
        (18.7288, "18.7 x"),
        (2.0, "2.0 x"),
        (1.5, "+50.0 %"),
        (1.0, "0.0 %"),
        (1.0004, "0.0 %"),
        (0.938, "-6.2 %"),
        (0.5, "0.50 x"),
        (0.05, "0.050 x"),
        (0.0069, "0.0069 x"),
        (None, "-"),
    ],
)
def test_a_change_is_in_percent_below_twice_and_never_vanishes(
    ratio: float | None, text: str
) -> None:
    assert format_change(ratio) == text


@given(st.decimals(min_value=0, max_value=10**9, places=4), st.integers(0, 3))
def test_numbers_round_half_up_as_they_read(number: Decimal, decimals: int) -> None:
    exact = number.quantize(Decimal(1).scaleb(-decimals), ROUND_HALF_UP)
    text = format_decimal(float(number), decimals)
    assert Decimal(text) == exact
    assert "." not in text or text[-1] not in ".0"


DEFAULTS = json.loads((DATA / "default-metrics.json").read_text("utf-8"))
CLIENT = [Point(64, {"side": "client"}, ("latency",), (1e-6,))]
SERVER = [Point(size, {"side": "server"}, ("latency",), (5e-6,)) for size in (64, 256)]
PAIR = replace(
    log([], labels={}, facts={}, benchmark="pingpong", case="pingpong"), points=[*SERVER, *CLIENT]
)
SMALL = log(
    [(2, 5.2e3), (4, 9e8)], metric="bandwidth", labels={}, benchmark="perftest", case="ib_write_bw"
)
MAXIMA = log([(8, 9e9)], labels={**ALL_REDUCE, "stat": "max"})


@pytest.mark.parametrize(
    ("columns", "heading", "shown"),
    [
        ([rates("a", [(100 * KB, 6)])], "busbw a (GB/s)", ["100 KB|6"]),
        (
            [rates("a", [(8, 6)]), rates("b", [(8, 3)]), rates("c", [(8, 2)])],
            "busbw a (GB/s)|busbw b (GB/s)|busbw c (GB/s)|Speed-up a|Speed-up b",
            ["8 B|6|3|2|3 x|+50 %"],
        ),
        # What displays as zero has no ratio, and neither has what is not finite.
        (
            [
                rates("a", [(4, 0.02), (8, 0.02), (16, 0), (KB, float("inf"))]),
                rates("b", [(4, 0), (8, 0.0049), (16, 2), (KB, 1)]),
            ],
            "busbw a (GB/s)|busbw b (GB/s)|Speed-up",
            ["4 B|0.02|0|-", "8 B|0.02|0|-", "16 B|0|2|-", "1 KB|-|1|-"],
        ),
        (
            [latencies("a", [(64, 10.26)]), latencies("b", [(64, 20.52)])],
            "latency a (us)|latency b (us)|Speed-up",
            ["64 B|10.26|20.52|2 x"],
        ),
        ([column("a", SMALL)], "bandwidth a (MB/s)", ["2 B|0.0052", "4 B|900"]),
        ([column("a", log([(8, 1e9)]), MAXIMA)], "busbw a (GB/s)", ["8 B|1"]),
        # The client of a pair counts.
        ([column("a", PAIR)], "latency a (us)", ["64 B|1", "256 B|5"]),
    ],
)
def test_a_table_has_figures_and_ratios(
    columns: list[Column], heading: str, shown: list[str]
) -> None:
    comparison = compare(columns)
    assert (header(comparison), cells(comparison), comparison.status) == (heading, shown, Exit.FINE)


def test_a_size_that_one_column_lacks_is_a_row_and_noted() -> None:
    comparison = compare([rates("a", [(8, 6)]), rates("b", [(8, 3), (16, 4)])])
    assert cells(comparison)[1] == "16 B|-|4|-"
    assert "a has no busbw at 16 B." in notes(comparison)


# ---------------------------------------------------------------- which rows count


def test_repeats_pool_to_the_median_and_say_how_many() -> None:
    repeats = [log([(8, value * 1e9)]) for value in (1, 5, 2)]
    comparison = compare([column("a", *repeats)])
    (row,) = comparison.sections[0].rows
    (figure,) = row.figures
    assert figure is not None
    assert (figure.value, figure.n, figure.low, figure.high) == (2e9, 3, 1e9, 5e9)
    assert "n = 3" in notes(comparison)
    assert "repeats differ by more than 10% at 8 B" in notes(comparison)


def test_placement() -> None:
    in_place = {**ALL_REDUCE, "placement": "in-place"}
    points = [Point(8, ALL_REDUCE, ("busbw",), (1e9,)), Point(8, in_place, ("busbw",), (3e9,))]
    both = column("a", replace(log([]), points=points))
    assert cells(compare([both])) == ["8 B|1"]
    comparison = compare([both], placement="in-place")
    assert (cells(comparison), comparison.placement) == (["8 B|3"], "in-place")
    alone = column("a", replace(log([]), points=points[1:]))
    assert compare([alone]).placement == "in-place"
    assert compare([both, alone]).placement == "out-of-place"
    with pytest.raises(RequestError, match="out-of-place") as caught:
        compare([alone], placement="out-of-place")
    assert "--placement in-place" in str(caught.value.hint)


def test_rows_of_size_zero_are_left_out_and_noted() -> None:
    comparison = compare([rates("a", [(0, 0.1), (0, 0.1), (64, 1)])])
    assert cells(comparison) == ["64 B|1"]
    assert "2 rows of size 0 in a" in notes(comparison)


# ---------------------------------------------------------------- the metric


@pytest.mark.parametrize(("benchmark", "case", "metrics", "wanted"), DEFAULTS)
def test_default_metric(benchmark: str, case: str, metrics: list[str], wanted: str) -> None:
    points = [Point(8, {}, tuple(metrics), tuple(1.0 for _ in metrics))]
    made = replace(log([], labels={}, benchmark=benchmark, case=case), points=points)
    assert compare([column("a", made)]).metrics == (METRICS[wanted],)


def two_kinds(label: str, factor: float) -> Column:
    """Make a column with a collective's busbw and a pair's bandwidth."""
    gathered, put = (
        [(KB, 2e9 * factor), (MB, 4e9 * factor)],
        [(KB, 20e6 * factor), (MB, 0.2e9 * factor)],
    )
    return column(
        label,
        log(gathered, labels={}, benchmark="nvshmem", case="alltoall_latency"),
        log(put, metric="bandwidth", labels={}, benchmark="nvshmem", case="shmem_put_bw"),
    )


def test_each_section_has_the_metric_that_was_measured_there() -> None:
    comparison = compare([two_kinds("a", 3), two_kinds("b", 1)])
    assert [metric.name for metric in comparison.metrics] == ["busbw", "bandwidth"]
    titles = [table.title for table in tables_of_comparison(comparison)[:2]]
    assert titles == ["case alltoall_latency", "case shmem_put_bw"]
    assert [header(comparison, table).split("|")[0] for table in (0, 1)] == [
        "busbw a (GB/s)",
        "bandwidth a (MB/s)",
    ]
    assert cells(comparison, 1)[1] == "1 MB|600|200|3 x"
    assert "has no" not in notes(comparison)


def test_a_metric_that_is_named_counts_for_every_section() -> None:
    comparison = compare([two_kinds("a", 1)], metric="bandwidth")
    assert [metric.name for metric in comparison.metrics] == ["bandwidth"]
    assert [cells(comparison, table) for table in (0, 1)] == [["-|-"], ["1 KB|20", "1 MB|200"]]


def test_what_a_section_lacks_is_reported_by_its_own_metric() -> None:
    less = two_kinds("a", 1)
    less = replace(less, logs=(less.logs[0], replace(less.logs[1], points=less.logs[1].points[:1])))
    comparison = compare([less, two_kinds("b", 1)])
    assert "a has no bandwidth at 1 MB." in notes(comparison)


def test_a_metric_that_no_row_has() -> None:
    with pytest.raises(RequestError, match="No row has latency") as caught:
        compare([rates("a", [(8, 1)])], metric="latency")
    assert caught.value.hint == "The rows have busbw."
    with pytest.raises(RequestError, match="Unknown metric speed"):
        compare([rates("a", [(8, 1)])], metric="speed")


# ---------------------------------------------------------------- what may not differ

HALF = {**ALL_REDUCE, "dtype": "half"}
DIFFERENT: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("benchmark", {}, {"benchmark": "torch"}),
    ("case", {}, {"case": "all_gather"}),
    ("ranks", {}, {"facts": {**FACTS, "ranks": 8}}),
    ("hosts", {}, {"facts": {**FACTS, "hosts": 4}}),
    ("gpus_per_host", {}, {"facts": {**FACTS, "gpus_per_host": 4}}),
    ("dtype", {}, {"labels": HALF}),
    ("redop", {}, {"labels": {**ALL_REDUCE, "redop": "max"}}),
    ("direction", {"labels": {"direction": "uni"}}, {"labels": {"direction": "bi"}}),
    ("way", {"labels": {"way": "one-way"}}, {"labels": {"way": "round-trip"}}),
    ("endpoint", {"facts": {"endpoint": "rdm"}}, {"facts": {"endpoint": "msg"}}),
]
LOGS = {name: [log([(8, 1e9)], **each) for each in both] for name, *both in DIFFERENT}


def test_every_field_is_tried() -> None:
    assert set(LOGS) == set(MUST_MATCH)


@pytest.mark.parametrize("name", MUST_MATCH)
def test_columns_that_differ_are_refused_unless_allowed(name: str) -> None:
    columns = [column(label, each) for label, each in zip(("new", "old"), LOGS[name], strict=True)]
    with pytest.raises(RequestError, match=f"{name} is .+ in new, .+ in old") as caught:
        compare(columns)
    assert f"--allow {name}" in str(caught.value.hint)
    comparison = compare(columns, allow=[name.replace("_", "-")])
    assert cells(comparison) == ["8 B|1|1|0 %"]
    assert f"{name} differs (allowed)" in notes(comparison)


@pytest.mark.parametrize("name", ["dtype", "redop", "direction", "way"])
def test_unknown_against_known_is_noted(name: str) -> None:
    without = {key: value for key, value in ALL_REDUCE.items() if key != name}
    unknown = log([(8, 1e9)], labels=without if name in ALL_REDUCE else {})
    comparison = compare([column("new", unknown), column("old", LOGS[name][1])])
    assert cells(comparison) == ["8 B|1|1|0 %"]
    assert f"{name} is not stated by new" in notes(comparison)


def test_versions_and_iterations_are_notes() -> None:
    one = rates("new", [(8, 1)], nccl="2.28.9", iterations=20)
    comparison = compare([one, rates("old", [(8, 1)], nccl="2.18.3", iterations=20)])
    assert "nccl differs: 2.28.9 in new, 2.18.3 in old." in notes(comparison)
    assert "iterations 20" in notes(comparison)
    assert comparison.status is Exit.FINE
    inside, two, four = (
        rates("new", [(8, 1)], nodes=nodes) for nodes in (1, 2, 4)
    )  # 1: all that NVLink connects
    assert ["nodes differs" in notes(compare([each, two])) for each in (inside, four)] == [
        False,
        True,
    ]


def test_several_dtypes_make_a_table_each() -> None:
    both = column("new", log([(8, 1e9)]), log([(8, 4e9)], labels=HALF))
    comparison = compare([both, column("old", log([(8, 1e9)]), log([(8, 2e9)], labels=HALF))])
    assert [dict(section.key) for section in comparison.sections] == [
        {"dtype": "float"},
        {"dtype": "half"},
    ]
    assert [table.title for table in tables_of_comparison(comparison)[:2]] == [
        "dtype float",
        "dtype half",
    ]
    assert [cells(comparison, table) for table in (0, 1)] == [["8 B|1|1|0 %"], ["8 B|4|2|2 x"]]


def test_sets_of_dtypes_that_differ_are_refused_and_never_pooled() -> None:
    columns = [
        column("new", log([(8, 1e9)]), log([(8, 4e9)], labels=HALF)),
        column("old", log([(8, 1e9)])),
    ]
    with pytest.raises(RequestError, match="dtype is float and half in new, float in old"):
        compare(columns)
    assert [
        section.rows[0].ratios[0] for section in compare(columns, allow=["dtype"]).sections
    ] == [1.0, None]


def test_roots_that_differ_do_not_meet() -> None:
    other = log([(8, 2e9)], labels={**ALL_REDUCE, "root": "0"})
    comparison = compare([column("a", log([(8, 1e9)])), column("b", other)])
    assert len(comparison.sections) == 2
    assert "root differs" in notes(comparison)


@pytest.mark.parametrize("allow", ["speed", "placement"])
def test_fields_that_cannot_be_allowed(allow: str) -> None:
    with pytest.raises(RequestError, match=f"Unknown field {allow}"):
        compare([rates("a", [(8, 1)])], allow=[allow])


# ---------------------------------------------------------------- outcomes


BAD = {
    outcome: log([(8, 9e9)], outcome=outcome, reason="Because.")
    for outcome in (Outcome.CORRUPT, Outcome.FAILED, Outcome.OFF_FABRIC, Outcome.TIMEOUT)
}
FAILED = log([], outcome=Outcome.FAILED, reason="Because.", benchmark=None, case=None)
WRONG = log([(8, 9e9)], case="all_gather", outcome=Outcome.CORRUPT, reason="Because.")


@pytest.mark.parametrize(
    ("outcome", "columns", "shown"),
    [
        *(
            (
                bad,
                [column("a", *[log([(8, 5e9)])] * good, BAD[bad]), rates("b", [(8, 1)])],
                f"8 B|{bad}|1|-",
            )
            for bad in BAD
            for good in (0, 2)
        ),
        (Outcome.FAILED, [rates("a", [(8, 1)]), column("b", FAILED)], "8 B|1|failed|-"),
        (Outcome.FAILED, [column("a", FAILED), column("b", FAILED)], "-|failed|failed|-"),
        # A bad case without a table still counts.
        (Outcome.CORRUPT, [column(name, log([(8, 2e9)]), WRONG) for name in "ab"], "8 B|2|2|0 %"),
    ],
)
def test_what_is_bad_shows_its_outcome(outcome: Outcome, columns: list[Column], shown: str) -> None:
    comparison = compare(columns)
    assert cells(comparison) == [shown]
    assert comparison.status is Exit.UNTRUSTED
    assert f"{outcome}: Because." in notes(comparison)


def test_what_was_cut_shows_the_rows_it_has_marked_and_without_a_ratio() -> None:
    cut = log([(8, 2e9)], outcome=Outcome.TRUNCATED, reason="It was interrupted.")
    comparison = compare([column("a", cut), rates("b", [(8, 4), (KB, 4)])], only_ok=True)
    assert cells(comparison) == ["8 B|2|4|-", "1 KB|-|4|-"]
    assert comparison.status is Exit.UNTRUSTED
    assert not highlights(comparison)
    assert header(comparison) == "busbw a (GB/s), truncated|busbw b (GB/s)|Speed-up"
    assert "a 2 GB/s (truncated) vs b 4" in (tables_of_comparison(comparison)[0].headline or "")
    assert "truncated: It was" in notes(comparison)


@pytest.mark.parametrize("other", [Outcome.OFF_FABRIC, Outcome.UNPROVEN])
def test_what_was_cut_on_another_network_has_no_figures(other: Outcome) -> None:
    cut = replace(
        log([(8, 2e9)], outcome=Outcome.TRUNCATED, reason="It was cut."), also=frozenset({other})
    )
    assert cells(compare([column("a", cut), rates("b", [(8, 1)])], only_ok=True)) == [
        "8 B|truncated|1|-"
    ]


@pytest.mark.parametrize(
    ("outcome", "alone"), [(Outcome.TRUNCATED, "2"), (Outcome.UNPROVEN, "unproven")]
)
def test_truncated_and_unproven_are_compared_with_a_note(outcome: Outcome, alone: str) -> None:
    columns = [
        column("a", log([(8, 2e9)], outcome=outcome, reason="Because.")),
        rates("b", [(8, 1)]),
    ]
    comparison, strict = compare(columns), compare(columns, only_ok=True)
    assert (cells(comparison), comparison.status) == (["8 B|2|1|2 x"], Exit.UNTRUSTED)
    assert compare(columns[::-1]).status is Exit.FINE  # as a baseline
    assert f"{outcome}: Because." in notes(comparison)
    assert (cells(strict), strict.status) == ([f"8 B|{alone}|1|-"], Exit.UNTRUSTED)


def test_one_bad_case_of_several_hides_that_case_alone() -> None:
    base = column("b", log([(8, 1e9)]), log([(8, 1e9)], case="all_gather"))
    comparison = compare([column("a", log([(8, 2e9)]), WRONG), base])
    shown = {section.key["case"]: section.shown for section in comparison.sections}
    assert shown == {"all_reduce": (True, True), "all_gather": (False, True)}
    assert comparison.status is Exit.UNTRUSTED
    assert "left out. corrupt: Because." in notes(comparison)


# ---------------------------------------------------------------- what the logs state


def test_a_label_is_the_users_word() -> None:
    columns = [column(name, log([(8, 1e9)]), given=True) for name in ("EFA", "non-EFA")]
    first = footnotes(compare(columns))[0]
    assert ("transport unknown" in first, "EFA, non-EFA are labels" in first) == (True, True)


def test_what_carried_the_data_is_reported() -> None:
    efa = rates("a", [(8, 1)], network="efa", transport="efa", nics=4)
    first = footnotes(compare([efa, rates("b", [(8, 1)], network="socket", transport="unknown")]))[
        0
    ]
    assert "a = efa (4 NICs per rank); b = " in first
    assert "socket chosen" in first


def test_a_figure_travels_with_its_conditions() -> None:
    text = notes(
        compare([rates("a", [(8, 1)], nccl="2.28.9"), rates("b", [(8, 1)], nccl="2.28.9")])
    )
    facts = [
        "nccl",
        "all_reduce",
        "16 ranks",
        "2 hosts",
        "8 GPUs per host",
        "dtype float",
        "redop sum",
    ]
    facts += ["out-of-place", "nccl 2.28.9", "n = 1", "a from a.log; b from b.log."]
    assert [fact for fact in facts if fact not in text] == []


# ---------------------------------------------------------------- laws

sizes = st.sampled_from([8, 64, KB, 3 * KB, MB, GB])
values = st.floats(min_value=1e5, max_value=1e12, allow_nan=False)
table = st.dictionaries(sizes, values, min_size=1)


@given(table, table)
def test_ratios_of_both_directions_are_reciprocal(
    one: dict[int, float], other: dict[int, float]
) -> None:
    columns = [column("a", log(one.items())), column("b", log(other.items()))]
    there, back = compare(columns), compare(columns[::-1])
    for row, mirrored in zip(there.sections[0].rows, back.sections[0].rows, strict=True):
        assert row.figures == mirrored.figures[::-1]
        if row.ratios[0] is None or mirrored.ratios[0] is None:
            assert row.ratios[0] is mirrored.ratios[0]
        else:
            assert row.ratios[0] * mirrored.ratios[0] == pytest.approx(1)


@given(table)
def test_a_column_against_itself_is_one(rows: dict[int, float]) -> None:
    comparison = compare([column("a", log(rows.items())), column("b", log(rows.items()))])
    assert {row.ratios[0] for row in comparison.sections[0].rows} <= {1.0, None}


@given(st.lists(values, min_size=1, max_size=7), st.randoms())
def test_the_order_of_repeats_does_not_matter(repeats: list[float], shuffle: object) -> None:
    logs = [log([(8, value)]) for value in repeats]
    shuffled = list(logs)
    shuffle.shuffle(shuffled)  # type: ignore[attr-defined]
    figures = [
        compare([column("a", *each)]).sections[0].rows[0].figures[0] for each in (logs, shuffled)
    ]
    assert figures[0] is not None
    assert figures[1] is not None
    assert figures[0]._replace(executions=()) == figures[1]._replace(executions=())
    assert [value for _, value in figures[0].executions] == repeats
    assert figures[0].value == median(repeats)
    assert figures[0].n == len(repeats)


@given(table, table, values)
def test_another_column_changes_no_ratio(
    one: dict[int, float], other: dict[int, float], value: float
) -> None:
    a, b, c = (
        column(name, log(rows.items()))
        for name, rows in (("a", one), ("b", other), ("c", {8: value}))
    )
    alone = {row.size: row.ratios[0] for row in compare([a, b]).sections[0].rows}
    among = {row.size: row.ratios[0] for row in compare([a, c, b]).sections[0].rows}
    assert {size: among[size] for size in alone} == alone


@given(table, st.sampled_from(sorted(METRICS)))
def test_better_is_above_one(rows: dict[int, float], metric: str) -> None:
    better = {
        size: value * (0.5 if METRICS[metric].lower_is_better else 2)
        for size, value in rows.items()
    }
    columns = [
        column("a", log(each.items(), metric=metric, benchmark="perftest"))
        for each in (better, rows)
    ]
    assert {row.ratios[0] for row in compare(columns, metric=metric).sections[0].rows} - {None} == {
        2.0
    }
