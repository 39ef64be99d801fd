"""Rails across hosts over ssh: a stand-in for perftest on namespaced hosts with their own sshd."""

import re

import pytest

from fabbench.model.log import Outcome
from tests.support.host_fixtures import Labs
from tests.support.paths import FAKE_PROGRAMS
from tests.support.ssh_runs import argv, hosts, nothing_left, run, the_log

pytestmark = pytest.mark.lab

STANDIN = FAKE_PROGRAMS / "rails"
RAILS = [f"mlx5_{number}" for number in range(12)]


@pytest.mark.parametrize("together", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_devices_of_two_hosts(lab: Labs, together: bool) -> None:
    # As sshd comes: with all rails at once there are more programs than one connection may have.
    site = lab(2, sshd=("MaxSessions 10",))
    words = [word for rail in RAILS for word in ("--device", rail)]
    more = ["--together"] if together else []
    line = argv("run", "perftest", "--on", "ssh", *hosts(site), "--fabric", "ib", *words, *more)
    with nothing_left(site):
        done = run(site, [*line, "--bin-dir", str(STANDIN)])
    assert done.returncode == 0, done.stderr + done.stdout
    log = the_log(site, "ib")
    assert log.outcome is Outcome.OK
    assert [point.labels["device"] for point in log.points] == [
        rail for rail in RAILS for _ in range(2)
    ]
    assert "### Rails" in done.stdout
    assert re.search(r"mlx5_3 stands out at 64 KB: 5\.24 GB/s", done.stdout)
    assert ("concurrently" in done.stdout) is together
