"""Logs as data frames."""

import math

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


def test_a_pivot_sets_files_side_by_side() -> None:
    paths = [LOGS / "x-ofi-tcp.txt", LOGS / "x-net-socket.txt"]
    frame = fabbench.frame(*paths)
    table = fabbench.pivot(frame[frame["placement"] == "out-of-place"])
    assert sorted(map(str, paths)) == sorted(table.columns)
    assert len(table) == 24
    assert table.loc[1 << 26, str(paths[0])] == 4.36e9


def test_a_pivot_keeps_labels_that_differ_apart() -> None:
    frame = fabbench.frame(LOGS / "opt-dall.txt")
    table = fabbench.pivot(frame)
    assert table.index.names == ["size", "placement", "dtype", "redop"]
    assert not any(math.isnan(value) for value in table.to_numpy().ravel())


def test_statistics_are_not_mixed_with_the_main_figure() -> None:
    frame = fabbench.frame(LOGS / "opt-I.txt")
    table = fabbench.pivot(frame[frame["placement"] == "in-place"], "time")
    assert pytest.approx(table.iloc[0, 0]) == 23.41e-6


def test_a_metric_that_is_not_there_is_named() -> None:
    with pytest.raises(
        ValueError, match="no row has the metric latency; available: algbw, busbw, time, wrong"
    ):
        fabbench.pivot(fabbench.frame(LOGS / "split.txt"), "latency")
