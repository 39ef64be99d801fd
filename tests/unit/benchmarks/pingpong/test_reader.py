"""fi_pingpong's output: what a run asked for, and pieces of rows. Its tables are in the corpus."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabbench.model.log import Ending, Outcome
from fabbench.model.plan import Proof
from tests.support.libfabric_text import PINGPONG_HEADER, pingpong_row
from tests.support.paths import LOGS
from tests.support.read_logs import read_one

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


@given(st.integers(1, 80), st.integers(0, 3))
def test_a_row_torn_apart_is_damaged(at: int, debug: int) -> None:
    lines = [PINGPONG_HEADER, pingpong_row(64, 10, "3.00"), pingpong_row(1500, 1234, "19.98")]
    noise = ["[debug] util/pingpong.c:697 : Syncing nodes"] * debug
    log = read_one([*lines[:-1], lines[-1][:at], *noise, lines[-1][at:]])
    expected = read_one(lines).points
    assert log.points == expected or (log.points == expected[:1] and log.damaged)
