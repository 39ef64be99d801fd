"""Every layout that nccl-tests printed, from v1.0 on: each figure, each label, each option."""

from dataclasses import replace

import pytest

from fabbench.model.log import Log
from tests.support.nccl_layouts import (
    DTYPES,
    ERAS,
    FIRST_PROGRAMS,
    PROGRAMS,
    Half,
    Layout,
    Row,
    cells,
    footer_lines,
    half,
    header,
    log,
    points,
    sweep,
)
from tests.support.read_logs import found, printed, read


def only(lines: list[str]) -> Log:
    (judged,) = read("\n".join(lines))
    return judged


@pytest.mark.parametrize(
    ("era", "case"), [(era, case) for era in ERAS for case in (FIRST_PROGRAMS if era == "1.0" else PROGRAMS)]
)
def test_every_program_of_every_release_is_read_figure_by_figure(era: str, case: str) -> None:
    layout = Layout(era=era, case=case)
    rows = sweep(layout, low=64)
    judged = only(log(layout, rows))
    assert found(judged) == points(layout, rows)
    assert judged.outcome == "ok", judged.reason
    assert judged.damaged == ()
    assert judged.findings == ()
    assert judged.facts["ranks"] == 4
    assert judged.facts["hosts"] == 1
    assert judged.facts["checked"] == "yes"


@pytest.mark.parametrize("case", ["all_reduce", "all_gather", "broadcast"])
@pytest.mark.parametrize("era", ERAS)
def test_data_that_were_not_checked_are_not_called_right(era: str, case: str) -> None:
    layout = Layout(era=era, case=case, checked=False)
    rows = sweep(layout, low=64)
    judged = only(log(layout, rows))
    assert found(judged) == points(layout, rows)
    assert judged.facts["checked"] == "no"
    assert [finding.code for finding in judged.findings] == ["not-checked"]
    assert not [metric for point in judged.points for metric in point.metrics if metric == "wrong"]


def test_v1_printed_milliseconds() -> None:
    layout = Layout(era="1.0", ranks=2)
    row = Row(size=1 << 24, out_of_place=half(layout, 1 << 24, 0.95), in_place=half(layout, 1 << 24, 0.98))
    lines = log(layout, [row])
    assert any("17.660   0.95   0.95" in line for line in lines)
    judged = only(lines)
    assert judged.points[0].values[0] == 17.66e-3
    assert judged.outcome == "ok"


def test_the_name_of_the_program_may_stand_in_the_command_alone() -> None:
    layout = Layout(era="2.13", case="reduce_scatter")
    judged = only(["$ mpirun -np 4 ./build/reduce_scatter_perf -b 64", *log(layout, sweep(layout, low=64))])
    assert judged.case == "reduce_scatter"


@pytest.mark.parametrize("era", ["2.17.3", "2.19.6"])
@pytest.mark.parametrize(
    "layout", [Layout(per_iteration=True), Layout(timestamps=True), Layout(cpu_time=True), Layout(memory=True)]
)
def test_every_option_that_changes_the_columns(era: str, layout: Layout) -> None:
    layout = replace(layout, era=era)
    rows = sweep(layout)
    judged = only(log(layout, rows))
    assert found(judged) == points(layout, rows)
    assert judged.outcome == "ok"
    assert judged.findings == ()


def test_all_options_together() -> None:
    layout = Layout(per_iteration=True, timestamps=True, cpu_time=True, memory=True, checked=False)
    rows = sweep(layout)
    judged = only(log(layout, rows))
    assert found(judged) == points(layout, rows)
    assert {point.metrics[0] for point in judged.points if "stat" not in point.labels} == {"cpu_time"}


def test_cycles_repeat_all_rows_under_one_header() -> None:
    layout = Layout()
    rows = sweep(layout) * 3
    judged = only(log(layout, rows))
    assert found(judged) == points(layout, rows)
    assert judged.outcome == "ok"
    assert judged.findings == ()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("era", ["2.0", "2.13", "2.19.6"])
def test_every_type(era: str, dtype: str) -> None:
    layout = Layout(era=era)
    rows = [replace(row, dtype=dtype, redop="mulsum") for row in sweep(layout)]
    assert found(only(log(layout, rows))) == points(layout, rows)


def test_every_root_in_one_table() -> None:
    layout = Layout(case="broadcast")
    rows = [replace(row, root=root) for root in range(4) for row in sweep(layout)]
    judged = only(log(layout, rows))
    assert found(judged) == points(layout, rows)
    assert {point.labels["root"] for point in judged.points} == {"0", "1", "2", "3"}


@pytest.mark.parametrize("era", ERAS[3:])
def test_rows_that_measured_in_place_only(era: str) -> None:
    layout = Layout(era=era)
    rows = [replace(row, out_of_place=None) for row in sweep(layout)]
    judged = only(log(layout, rows))
    assert found(judged) == points(layout, rows)
    assert {point.labels["placement"] for point in judged.points} == {"in-place"}
    assert judged.outcome == "ok"


@pytest.mark.parametrize(
    ("era", "time", "algbw", "busbw"),
    [
        ("2.0", "1195171", "2375009.56", "0.00"),
        ("2.17.3", "1195171", "2e+06", "0.00"),
        ("2.17.3", "1.2e+08", "82304", "123456"),
        ("2.19.6", "98765.4", "8.2e+03", "1.2e+04"),
        ("2.19.6", "1234568", "1234.57", "1852"),
        ("2.13", "62239", "276.03", "483.05"),
    ],
)
def test_numbers_that_outgrow_their_columns_or_have_an_exponent(era: str, time: str, algbw: str, busbw: str) -> None:
    layout = Layout(era=era, ranks=4)
    side = f"  {time:>7}  {algbw:>6}  {busbw:>6}  " + ("0e+00" if era == "2.0" else "    0")
    count = int(float(time) * float(algbw) * 1e3) // 4
    left = f"{4 * count:12d}  {count:12d}     float     sum" + ("" if era == "2.0" else "      -1")
    lines = [*header(layout), f"{left}{side}{side}", *footer_lines(layout, [])]
    judged = only(lines)
    exact = {name: printed(cell, name) for name, cell in (("time", time), ("algbw", algbw), ("busbw", busbw))}
    for point in judged.points:
        values = dict(zip(point.metrics, point.values, strict=True))
        assert {name: values[name] for name in exact} == exact
    assert len(judged.points) == 2


@pytest.mark.parametrize(("wrong", "text"), [(96, "96"), (1048576, "1.04858e+06"), (2.68435e8, "2.68435e+08")])
@pytest.mark.parametrize("era", ERAS[3:])
def test_wrong_elements_are_counted_also_with_an_exponent(era: str, wrong: float, text: str) -> None:
    layout = Layout(era=era)
    good, *rest = sweep(layout)
    bad = replace(good, in_place=half(layout, good.size, 40.0, wrong=wrong))
    judged = only(log(layout, [bad, *rest], failed_checks=4))
    assert text in cells(layout, bad).text.split()
    assert found(judged) == points(layout, [bad, *rest])
    assert judged.outcome == "corrupt"
    assert judged.reason == "The benchmark found wrong data: 4 failed checks."


def test_wrong_elements_are_corrupt_also_before_any_footer() -> None:
    layout = Layout()
    rows = sweep(layout)
    bad = replace(rows[3], out_of_place=half(layout, rows[3].size, 40.0, wrong=1))
    judged = only(log(layout, [*rows[:3], bad, *rows[4:]], footer=False))
    assert judged.outcome == "corrupt"


@pytest.mark.parametrize("era", ["1.0", "2.0", "2.10"])
def test_a_relative_error_is_no_count(era: str) -> None:
    layout = Layout(era=era)
    rows = [replace(row, in_place=replace(row.in_place, wrong=5e-7)) for row in sweep(layout)]
    judged = only(log(layout, rows))
    assert judged.outcome == "ok"
    assert found(judged) == points(layout, rows)
    judged = only(log(layout, rows, failed_checks=4))
    assert judged.outcome == "corrupt"


def test_a_sweep_that_nccl_tests_shortened_is_a_finding() -> None:
    layout = Layout()
    rows = sweep(layout, high=1 << 20)
    lines = log(layout, rows, reduced=(1 << 20) + 12345)
    lines = [line.replace("maxBytes 1048576", "maxBytes 1073741824") for line in lines]
    judged = only(lines)
    assert judged.outcome == "ok"
    assert [finding.code for finding in judged.findings] == ["range-reduced"]


def test_sizes_that_are_missing_and_an_average_that_does_not_fit_prove_that_rows_are_lost() -> None:
    layout = Layout()
    rows = sweep(layout, high=1 << 24)
    lines = log(layout, rows)
    whole, row = only(lines), cells(layout, rows[-3]).text
    assert whole.findings == ()
    lines.remove(row)
    judged = only(lines)
    assert (judged.outcome, judged.facts["complete"]) == ("truncated", "no")
    assert [finding.code for finding in judged.findings] == ["sizes-missing", "average-mismatch"]


@pytest.mark.parametrize(
    "half",
    [
        Half(time=400.0, algbw=4.19, busbw=6.29),  # size / time is not algbw
        Half(time=4004.0, algbw=4.19, busbw=62.9),  # busbw is not algbw times the collective's factor
    ],
)
@pytest.mark.parametrize("at", [-1, -4])
def test_a_row_whose_figures_do_not_fit_is_damaged(half: Half, at: int) -> None:
    layout = Layout()
    rows = sweep(layout, high=1 << 24)
    rows[at] = replace(rows[at], in_place=half)
    judged = only(log(layout, rows))
    assert (judged.outcome, [row.text for row in judged.damaged]) == (
        "truncated",
        [" ".join(cells(layout, rows[at]).text.split())],
    )
    del rows[at]
    assert found(judged) == points(layout, rows)


def test_sizes_of_zero_repeat_for_gather_like_programs() -> None:
    layout = Layout(case="all_gather", ranks=16)
    zero = [replace(row, size=0) for row in sweep(layout, low=8, high=32)]
    rows = [*zero, *sweep(layout, low=64)]
    judged = only(log(layout, rows))
    assert found(judged) == points(layout, rows)
    assert len([point for point in judged.points if not point.size]) == 6


def test_rccl_tests_has_the_same_columns_and_lines_of_its_own() -> None:
    layout = Layout(era="2.13")
    rows = sweep(layout)
    lines = ["rccl-tests: Version Unknown", *log(layout, rows)]
    at = next(number for number, line in enumerate(lines) if "Out of bounds" in line)
    lines.insert(at, "# Errors with asterisks indicate errors that have exceeded the maximum threshold.")
    judged = only(lines)
    assert found(judged) == points(layout, rows)
    assert judged.outcome == "ok"


@pytest.mark.parametrize("era", ["2.13", "2.19.6"])
def test_a_row_without_any_header_is_read(era: str) -> None:
    layout = Layout(era=era)
    rows = sweep(layout)
    judged = only([cells(layout, row).text for row in rows])
    assert found(judged) == points(layout, rows)
    assert judged.outcome == "truncated"


def test_one_rank_is_a_finding() -> None:
    layout = Layout(ranks=1)
    judged = only(log(layout, sweep(layout)))
    assert [finding.code for finding in judged.findings] == ["one-rank"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("node0: Test NCCL failure common.cu:958 'unhandled cuda error / '", "unhandled cuda error"),
        ("node0: Test CUDA failure common.cu:941 'invalid device ordinal'", "invalid device ordinal"),
        ("NCCL failure all_reduce.cu:95 'unhandled cuda error'", "unhandled cuda error"),
        ("Invalid number of GPUs: 8 requested but only 4 were found.", "Invalid number of GPUs"),
        ("invalid size specified for 'minbytes'", "invalid size"),
        (" .. node0 pid 4711: Test failure common.cu:1017", "Test failure common.cu:1017"),
        ("# error: remote process exited or there was a network error", "network error"),
    ],
)
def test_an_error_after_good_rows_is_a_failure_with_the_rows_kept(line: str, reason: str) -> None:
    layout = Layout()
    rows = sweep(layout)
    judged = only([*log(layout, rows, footer=False), line])
    assert judged.outcome == "failed"
    assert reason in (judged.reason or "")
    assert found(judged) == points(layout, rows)


def test_the_programs_own_time_limit_is_a_timeout() -> None:
    layout = Layout()
    rows = sweep(layout)
    judged = only([*log(layout, rows, footer=False), "node0: Test timeout (30s) common.cu:577"])
    assert judged.outcome == "timeout"
    assert found(judged) == points(layout, rows)


def test_a_bandwidth_below_the_limit_that_was_set_is_a_failure() -> None:
    layout = Layout()
    lines = log(layout, sweep(layout))
    lines = [f"{line}FAILED" if "Avg bus" in line else line for line in lines]
    judged = only(lines)
    assert judged.outcome == "failed"
    assert "NCCL_TESTS_MIN_BW" in (judged.reason or "")
