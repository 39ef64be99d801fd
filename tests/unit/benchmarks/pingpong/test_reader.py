"""fi_pingpong's output: what a run asked for. Its tables are in the corpus."""

from fabbench.model.log import Ending, Outcome
from fabbench.model.plan import Proof
from tests.support.libfabric_text import PINGPONG_HEADER, pingpong_row
from tests.support.paths import LOGS
from tests.support.read_logs import read_one

VERBOSE = (LOGS / "fi_pingpong/tcp-msg-d-ignored.client.txt").read_text().splitlines()


def test_the_domain_that_was_asked_for() -> None:
    for domain, outcome in (("fab1", Outcome.OK), ("fab0", Outcome.OFF_FABRIC), (None, Outcome.OK)):
        assert read_one(VERBOSE, Proof(fabric="tcp", domain=domain)).outcome is outcome


def test_a_size_that_was_planned_and_is_missing() -> None:
    lines = [PINGPONG_HEADER, pingpong_row(64, 10, "12.50")]
    for sizes, outcome in (((64,), Outcome.OK), ((64, 1500), Outcome.TRUNCATED)):
        assert read_one(lines, None, Ending(status=0, planned_sizes=sizes)).outcome is outcome
