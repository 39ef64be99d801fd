"""Programs in pods that print without end: limits hold over exec too, and memory stays as it is."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from fabbench.execution.session import TIME_UP, TOO_MUCH
from fabbench.model.log import Outcome
from tests.support.kubernetes import Cluster
from tests.support.kubernetes_runs import Client
from tests.support.peak_memory import PROGRAM, peak_mib

if TYPE_CHECKING:
    import subprocess

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

MAX_MIB = 300


def measured(argv: list[str]) -> list[str]:
    """The same command line, which says at its end how much memory it took."""
    assert argv[:3] == [sys.executable, "-m", "fabbench"]
    return [sys.executable, "-c", PROGRAM, *argv[3:]]


@pytest.fixture
def client(cluster: Cluster, namespace: str, tmp_path: Path) -> Client:
    return Client(cluster, namespace, tmp_path)


def ends_in_its_time(client: Client, done: "subprocess.CompletedProcess[str]") -> None:
    assert done.returncode == 4, done.stderr
    (log,) = client.logs("tcp")
    assert log.outcome is Outcome.TIMEOUT
    assert any(why in str(log.reason) for why in (TIME_UP, TOO_MUCH)), log.reason
    assert peak_mib(done.stderr) < MAX_MIB


@pytest.mark.parametrize("rate", [0.7, 7, 200])
def test_a_program_that_prints_fast(client: Client, rate: float) -> None:
    with client.nothing_left(), client.cluster.standin(FLOOD=rate):
        ends_in_its_time(client, client.call(measured(client.nccl("--timeout", "8"))))
