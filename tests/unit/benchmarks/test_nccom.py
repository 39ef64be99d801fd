"""nccom-test of AWS Neuron, as its documentation shows it."""

import pytest

from fabbench.model.log import Outcome
from tests.support.read_logs import LOGS, figures, read, read_one

TEXT = (LOGS / "nccom" / "allr.txt").read_text()
ROW = "     524288          131072    fp32          343.84           1.42           2.80"
# Older releases call the time so, and print whole microseconds.
DOCUMENTED = """\
     size(B)    count(elems)     type    time(us)    algbw(GB/s)    busbw(GB/s)
    33554432        33554432    uint8         768          40.69          40.69
Avg bus bandwidth:      40.6901GB/s
"""


def test_its_gigabytes_are_binary() -> None:
    (log,) = read(TEXT)

    assert (log.benchmark, log.case, log.outcome) == ("nccom", "nccom-test", Outcome.OK)
    assert len(log.points) == 17
    assert (log.points[-1].size, log.points[-1].labels) == (524288, {"dtype": "fp32"})
    assert figures(log.points[-1]) == {
        "time": pytest.approx(343.84e-6),
        "algbw": pytest.approx(1.42 * 2**30),
        "busbw": pytest.approx(2.80 * 2**30),
    }


def test_the_form_of_older_releases() -> None:
    (log,) = read(DOCUMENTED)
    assert (log.outcome, [point.size for point in log.points]) == (Outcome.OK, [33554432])


@pytest.mark.parametrize(
    "row",
    [
        ROW.replace("1.42", "1.4x"),
        ROW[:60],
        ROW.replace("1.42", "1.52"),
        ROW.replace("2.80", "3.80"),
        ROW.replace("131072", "131079"),
        ROW.replace("524288", "524289"),
        ROW.replace("343.84", "943.84"),
    ],
)
def test_a_row_that_cannot_be_right_is_damaged(row: str) -> None:
    log = read_one(TEXT.replace(ROW, row).splitlines())

    assert (log.outcome, [damaged.text for damaged in log.damaged]) == (Outcome.TRUNCATED, [row])


def test_rows_that_are_missing_show_in_the_average() -> None:
    """Documents quote some rows and the average of all: what is there counts, and a finding says so."""
    log = read_one(TEXT.replace(ROW + "\n", "").splitlines())
    assert (log.outcome, log.facts["complete"]) == (Outcome.OK, "unknown")
    assert [finding.code for finding in log.findings] == ["average-mismatch"]


@pytest.mark.parametrize(("time", "busbw"), [("949.92", 8.83e9), ("884.71", 8.83 * 2**30)])
def test_its_gigabytes_are_decimal_or_binary_as_the_rows_show(time: str, busbw: float) -> None:
    lines = [DOCUMENTED.splitlines()[0], f"8388608 2097152 fp32 {time} 8.83 8.83", "Avg bus bandwidth: 8.83GB/s"]
    log = read_one(lines)
    assert log.outcome is Outcome.OK
    assert log.points[0].values[2] == pytest.approx(busbw)


def test_without_its_average_a_table_is_cut() -> None:
    assert read_one(TEXT.splitlines()[:-1]).outcome is Outcome.TRUNCATED
