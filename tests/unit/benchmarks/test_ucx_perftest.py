"""ucx_perftest 1.13.1, recorded over loopback."""

import pytest

from fabbench.model.log import Outcome
from fabbench.model.plan import Proof
from tests.support.read_logs import LOGS, figures, read, read_one

FOLDER = LOGS / "ucx_perftest"
CLIENT = (FOLDER / "tag-lat-tcp.txt").read_text()
SERVER = (FOLDER / "tag-lat-server.txt").read_text()
FINAL = "Final:                  2000      5.409   728.218   978.320        0.01       0.01        1373        1022"


def test_the_final_line_is_the_result_and_not_those_on_the_way() -> None:
    (log,) = read(CLIENT, Proof(fabric="tcp"))

    assert (log.benchmark, log.case, log.outcome) == ("ucx_perftest", "ucx_perftest", Outcome.OK)
    assert [figures(point) for point in log.points] == [
        {"latency": pytest.approx(978.320e-6), "bandwidth": pytest.approx(0.01 * 2**20), "message_rate": 1022.0}
    ]
    assert log.evidence["transport"].endswith("ep_cfg[0]: tag(tcp/lo)")


def test_the_size_is_what_the_server_says() -> None:
    """The client alone does not print it."""
    (alone,) = read(CLIENT)
    (both,) = read(SERVER + CLIENT)

    assert ([point.size for point in alone.points], [found.code for found in alone.findings]) == (
        [0],
        ["size-unstated"],
    )
    assert ([point.size for point in both.points], both.findings) == ([8], ())


def test_a_server_alone_has_no_result() -> None:
    assert read(SERVER) == []


def test_without_its_result_a_client_was_cut() -> None:
    (log,) = read((FOLDER / "tag-bw-cut.txt").read_text())

    assert (log.outcome, list(log.points)) == (Outcome.TRUNCATED, [])


@pytest.mark.parametrize(
    "final",
    [
        FINAL.replace("1022", "10x2"),
        FINAL[:70],
        FINAL.replace("1022", "9999"),
        FINAL.replace("978.320", "578.320"),
        FINAL.replace("728.218", "928.218"),
        FINAL.replace("0.01       0.01", "0.01       0.71"),
    ],
)
def test_a_result_that_cannot_be_right_is_damaged(final: str) -> None:
    log = read_one((SERVER + CLIENT).replace(FINAL, final).splitlines())

    assert (log.outcome, [row.text for row in log.damaged]) == (Outcome.TRUNCATED, [final])


def test_rates_of_several_threads_are_added() -> None:
    final = FINAL.replace("1373        1022", "5492        4088").replace("0.01       0.01", "0.04       0.03")
    assert read_one((SERVER + CLIENT).replace(FINAL, final).splitlines()).outcome is Outcome.OK
