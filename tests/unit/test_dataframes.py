"""Logs as data frames."""

import pytest

import fabbench
from tests.support.paths import LOGS

LOGS = LOGS / "nccl"


def test_a_frame_has_a_row_for_each_sample() -> None:
    frame = fabbench.frame(LOGS / "x-net-socket.txt")
    assert len(frame) == 24 * 2 * 4
    assert {"nccl"} == set(frame["benchmark"])
    row = frame[
        (frame["size"] == 1 << 26)
        & (frame["metric"] == "busbw")
        & (frame["placement"] == "out-of-place")
    ]
    assert list(row["value"]) == [4.75e9]


def test_a_frame_keeps_a_tools_statistics_apart_from_its_main_figure() -> None:
    frame = fabbench.frame(LOGS / "opt-I.txt")
    rows = frame[(frame["placement"] == "in-place") & (frame["metric"] == "time")]
    main_figures = rows[rows["stat"].isna()]
    assert len(main_figures) == len(set(main_figures["size"]))
    assert pytest.approx(main_figures["value"].iloc[0]) == 23.41e-6
