"""fi_pingpong's output: its arithmetic of sizes, and pieces of rows. Its tables are in the corpus."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.benchmarks.libfabric.facts import printed_size
from fabbench.benchmarks.pingpong.reader import HEADER, read_row, row_size
from fabbench.model.log import Ending, Outcome
from fabbench.model.plan import Proof
from tests.support.libfabric_text import PINGPONG_HEADER, pingpong_row
from tests.support.paths import LOGS
from tests.support.read_logs import read_lines, read_one

VERBOSE = (LOGS / "fi_pingpong/tcp-msg-d-ignored.client.txt").read_text().splitlines()


@pytest.mark.parametrize(
    ("domain", "outcome"), [("fab1", Outcome.OK), ("fab0", Outcome.OFF_FABRIC), (None, Outcome.OK)]
)
def test_the_domain_that_was_asked_for(domain: str | None, outcome: Outcome) -> None:
    assert read_one(VERBOSE, Proof(fabric="tcp", domain=domain)).outcome is outcome


def test_a_size_that_was_planned_and_is_missing() -> None:
    lines = [PINGPONG_HEADER, pingpong_row(64, 10, "12.50")]
    for sizes, outcome in (((64,), Outcome.OK), ((64, 1500), Outcome.TRUNCATED)):
        assert read_one(lines, None, Ending(status=0, planned_sizes=sizes)).outcome is outcome


# ---------------------------------------------------------------- sizes


@given(st.integers(0, 1 << 34))
def test_the_size_that_was_asked_for_is_kept(size: int) -> None:
    read_back = read_row(pingpong_row(size, 1000, "12.50"))
    assert read_back is not None
    assert row_size(read_back, requested=size, sent=1000) == (size, True)


@given(st.integers(1, 1 << 34), st.integers(1, 10**6), st.decimals("0.5", 10**6, places=2))
def test_a_size_said_to_be_exact_fits_all_columns(size: int, sent: int, latency: object) -> None:
    read_back = read_row(pingpong_row(size, sent, str(latency)))
    assert read_back is not None
    found = row_size(read_back)
    assert printed_size(found.value) == printed_size(size)
    assert size * 0.89 <= found.value <= size * 1.11  # a decimal digit more cannot be lost


@given(st.integers(1, 80), st.integers(0, 3))
def test_a_row_torn_apart_is_damaged(at: int, debug: int) -> None:
    lines = [PINGPONG_HEADER, pingpong_row(64, 10, "3.00"), pingpong_row(1500, 1234, "19.98")]
    noise = ["[debug] util/pingpong.c:697 : Syncing nodes"] * debug
    log = read_one([*lines[:-1], lines[-1][:at], *noise, lines[-1][at:]])
    expected = read_one(lines).points
    assert log.points == expected or (log.points == expected[:1] and log.damaged)


@given(st.lists(st.text(max_size=100) | st.sampled_from([PINGPONG_HEADER, pingpong_row(64, 10, "3.00"), "fi_info:"])))
def test_of_any_text_no_row_is_read_that_is_none(lines: list[str]) -> None:
    rows = sum(read_row(line) is not None for line in lines)
    assert sum(len(log.points) for log in read_lines(lines)) <= rows


def test_the_header_is_known() -> None:
    assert tuple(PINGPONG_HEADER.split()) == HEADER
