"""What the head of a table of nccl-tests states, and rows are held to."""

import re
from collections.abc import Sequence

import pytest

from fabbench.model.log import Log, Outcome
from tests.support.nccl_text import nccl_text
from tests.support.read_logs import read

ROWS = [(1 << power, float(power)) for power in range(20, 25)]
WHOLE = nccl_text(ROWS, ranks=4, hosts=2)
ROW = re.compile(r"^ +\d+ +\d+ +float .*$", re.MULTILINE)
SIDE = re.compile(r"(?: +\d+\.\d+){3} +0$", re.MULTILINE)


def read_one(text: str) -> Log:
    (log,) = read(text)
    return log


def codes(log: Log) -> list[str]:
    return [each.code for each in log.findings]


def figures(log: Log) -> list[tuple[object, ...]]:
    return [(point.size, point.labels.get("placement"), point.values) for point in log.points]


def in_cells(match: re.Match[str]) -> str:
    cells = " | ".join(match[0].split())
    return f"| {cells} |"


PLAIN = read_one(WHOLE)


def test_the_whole_table_is_ok_and_has_no_finding() -> None:
    assert (PLAIN.outcome, codes(PLAIN), len(PLAIN.points)) == (Outcome.OK, [], 10)


@pytest.mark.parametrize(
    ("unit", "other"), [("(us)", "(ms)"), ("(GB/s)", "(GiB/s)"), ("(GB/s)", "(Gb/s)")]
)
def test_a_table_in_other_units_is_not_read(unit: str, other: str) -> None:
    log = read_one(WHOLE.replace(unit, other))
    assert (log.outcome, log.points, len(log.damaged)) == (Outcome.TRUNCATED, [], 5)
    assert codes(log) == ["unit-unknown"]


def test_zero_iterations_are_doubted() -> None:
    assert codes(read_one(WHOLE.replace(" iters: 100 ", " iters: 0 "))) == ["no-iterations"]


def without_figures(sides: int) -> Log:
    """Read the table with nan in the first sides of its rows, and as their average."""
    figures_of_side = re.compile(r"(?: +\d+\.\d+){3}(?= +0(?: |$))", re.MULTILINE)
    text = figures_of_side.sub("  nan  nan  nan", WHOLE, count=sides)
    return read_one(re.sub(r"(?<=# Avg bus bandwidth    : )\S+", "nan", text))


@pytest.mark.parametrize(("sides", "rows"), [(2, 1), (10, 5)])
def test_a_size_without_a_figure_is_not_measured(sides: int, rows: int) -> None:
    log = without_figures(sides)
    assert (log.outcome, codes(log), log.damaged) == (Outcome.TRUNCATED, ["not-a-number"], ())
    assert sum("busbw" not in point.metrics for point in log.points) == 2 * rows


def test_a_size_with_the_figures_of_one_side_is_measured() -> None:
    log = without_figures(1)
    assert (log.outcome, codes(log)) == (Outcome.OK, [])


@pytest.mark.parametrize(
    ("stated", "code"),
    [
        ("validation: 1", "checks-missing"),
        ("validation: 2", "checks-missing"),
        ("validation: 0", "not-checked"),
        ("", "not-checked"),
    ],
)
def test_data_that_are_checked_have_a_result(stated: str, code: str) -> None:
    unchecked = re.sub(r" {4}0(?= |$)", "  N/A", WHOLE, flags=re.MULTILINE)
    assert unchecked.count("N/A") == 10
    log = read_one(unchecked.replace("validation: 1", stated))
    assert (codes(log), log.facts["checked"]) == ([code], "no")


@pytest.mark.parametrize(
    ("devices", "shared"),
    [
        (("0 [0x0a]", "1 [0x0b]", "0 [0x0a]", "1 [0x0b]"), ""),
        (("0 [0x0a]", "0 [0x0b]", "0 [0x0a]", "0 [0x0b]"), ""),
        # One visible GPU per rank: two PCI domains may have a bus of one number.
        (("0 [0x01]", "0 [0x01]", "0 [0x01]", "0 [0x01]"), ""),
        (("0 [0x0a]", "1 [0x0b]", "1 [0x0b]", "1 [0x0b]"), "Ranks 2 and 3"),
        (("1 [0x0b]", "1 [0x0b]", "0 [0x0a]", "1 [0x0b]"), "Ranks 0 and 1"),
        (("0 [0008:01:00]", "0 [0009:01:00]", "0 [0008:01:00]", "0 [0009:01:00]"), ""),
        (("0 [0008:01:00]", "0 [0008:01:00]", "0 [0008:01:00]", "1 [0009:01:00]"), "Ranks 0 and 1"),
    ],
)
def test_each_rank_has_a_gpu_of_its_own(devices: Sequence[str], shared: str) -> None:
    of_rank = iter(devices)
    log = read_one(re.sub(r"(?<=device  )\d \[[^]]*\]", lambda _: next(of_rank), WHOLE))
    said = [each.meaning for each in log.findings if each.code == "gpu-shared"]
    assert [meaning[: len(shared)] for meaning in said] == ([shared] if shared else [])


# ---------------------------------------------------------------- the layout that all rows share


@pytest.mark.parametrize("label", ["[STAT]:", "=>"])
def test_what_stands_before_every_row_is_a_label(label: str) -> None:
    log = read_one(ROW.sub(lambda row: label + row[0].lstrip(), WHOLE))
    assert (log.outcome, figures(log)) == (Outcome.OK, figures(PLAIN))


def test_what_stands_before_some_rows_is_damage() -> None:
    log = read_one(ROW.sub(lambda row: "[STAT]:" + row[0].lstrip(), WHOLE, count=2))
    assert (log.outcome, len(log.damaged)) == (Outcome.TRUNCATED, 2)


@pytest.mark.parametrize(
    ("replaced", "placement"), [("", "out-of-place"), (" " * 40, "out-of-place")]
)
def test_rows_without_the_figures_in_place_are_out_of_place(replaced: str, placement: str) -> None:
    log = read_one(SIDE.sub(replaced, WHOLE))
    assert log.outcome is Outcome.OK
    assert figures(log) == [each for each in figures(PLAIN) if each[1] == placement]


def test_rows_without_the_figures_out_of_place_are_in_place() -> None:
    halves = re.sub(
        r"^( +\d+ +\d+ +float +sum +-1)((?: +\S+){4})", r"\1" + " " * 32, WHOLE, flags=re.MULTILINE
    )
    log = read_one(halves)
    assert log.outcome is Outcome.OK
    assert figures(log) == [each for each in figures(PLAIN) if each[1] == "in-place"]


def test_of_which_side_a_row_is_cannot_be_told_where_blanks_were_lost() -> None:
    halves = SIDE.sub("", WHOLE)
    for lost in (re.sub("(?<=\\S)  +", " ", halves), re.sub("(?<=\\S)  +", "\t", halves)):
        log = read_one(lost)
        assert (log.outcome, log.points) == (Outcome.TRUNCATED, [])


def test_one_row_without_its_second_half_is_damaged() -> None:
    log = read_one(SIDE.sub("", WHOLE, count=1))
    assert (log.outcome, len(log.damaged), len(log.points)) == (Outcome.TRUNCATED, 1, 8)
    log = read_one(SIDE.sub("", nccl_text(ROWS[:1], ranks=4)))
    assert (log.outcome, len(log.damaged), log.points) == (Outcome.TRUNCATED, 1, [])


@pytest.mark.parametrize("head", [False, True])
@pytest.mark.parametrize("blanks", ["markdown", "tabs"])
def test_rows_of_markdown_and_between_tabs_are_read(blanks: str, *, head: bool) -> None:
    lines = re.compile(rf"{ROW.pattern}|^# +(?:size|\(B\)) .*$", re.MULTILINE) if head else ROW
    text = lines.sub(in_cells, WHOLE) if blanks == "markdown" else ""
    text = text or lines.sub(lambda row: "\t".join(row[0].split()), WHOLE)
    log = read_one(text)
    assert (log.outcome, codes(log), figures(log)) == (Outcome.OK, [], figures(PLAIN))


def test_the_table_of_markdown_alone_is_a_log_without_its_end() -> None:
    table = re.findall(rf"{ROW.pattern}|^# +(?:size|\(B\)) .*$", WHOLE, re.MULTILINE)
    rows = [in_cells(re.match(".*", line)) for line in table]  # type: ignore[arg-type]
    rule = re.sub(r"[^|]+", "---", rows[0])
    log = read_one("\n".join([rows[0], rule, *rows[1:]]))
    assert (log.outcome, figures(log)) == (Outcome.TRUNCATED, figures(PLAIN))
