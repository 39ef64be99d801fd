"""A run without one headline figure is not ok, and the program's own reason is the reason."""

import pytest

from fabbench.evidence.judge import judge
from fabbench.evidence.known_errors import finding
from fabbench.model.log import Ending, Outcome, Point, Record

CLIENT = Point(2, {"side": "client"}, (), ())
SERVER = Point(2, {"side": "server"}, ("latency",), (1e-3,))
MEASURED = Point(2, {"side": "client"}, ("latency",), (1e-3,))
WHY = "Correlation coefficient r^2: 0.688021 < 0.9"


@pytest.mark.parametrize(
    ("points", "outcome"),
    [
        ([CLIENT, SERVER], Outcome.TRUNCATED),
        ([CLIENT, MEASURED, SERVER], Outcome.OK),
        ([SERVER], Outcome.OK),
    ],
)
def test_the_clients_figures_are_the_headline(points: list[Point], outcome: Outcome) -> None:
    record = Record(benchmark="perftest", points=points, finished=None)
    log = judge(record, source="", ending=Ending(status=0))
    assert log.outcome is outcome


def test_the_programs_own_reason_is_the_reason() -> None:
    record = Record(benchmark="perftest", points=[CLIENT, SERVER], finished=None)
    record.findings.append(finding("clock-unmeasured", WHY))
    log = judge(record, source="", ending=Ending(status=0))
    assert WHY in str(log.reason)
