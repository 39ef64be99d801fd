"""``fabbench watch`` of a real training job: PyTorch over gloo, between hosts.

Debian's python3-torch, which `setup/prepare slow` installs, runs on the hosts.
"""

import json
import re
import shutil
from typing import Any

import pytest

from tests.support.host_fixtures import Labs
from tests.support.host_programs import await_sent, is_sampled, training
from tests.support.hosts import Lab
from tests.support.needed import PATH, refuse, strict
from tests.support.ssh_faults import running
from tests.support.ssh_runs import argv, hosts, nothing_left

pytestmark = [pytest.mark.lab, pytest.mark.slow]


@pytest.fixture(autouse=True)
def _torch() -> None:
    if shutil.which("torchrun", path=PATH) is None:
        why = "PyTorch (python3-torch) is missing; setup/prepare slow installs it"
        refuse(why, fail=strict("FABBENCH_REQUIRE_LAB"))


def watch(site: Lab, seconds: int) -> list[str]:
    return argv("watch", "--on", "ssh", *hosts(site), "--for", str(seconds), "--json")


def watched(site: Lab, status: int) -> dict[str, Any]:
    """Watch a job for a while, and return the document."""
    done = site.run(watch(site, 5))
    assert done.returncode == status, (done.stdout, done.stderr)
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_healthy_job_is_fine(lab: Labs) -> None:
    site = lab(3)
    with nothing_left(site), training(site.hosts):
        shown = watched(site, 0)
    expected = r"ok: 3 of 3 interfaces \(fab0\) carry [\d.]+ \S+ .+ on 3 sampled hosts\."
    assert re.fullmatch(expected, shown["first"]), shown["first"]
    assert shown["last"] == "ok: nothing stands out."


def test_a_rank_that_computes_longer_slows_all_alike(lab: Labs) -> None:
    """What NICs count does not show it: all wait for it in each step."""
    site = lab(3)
    with nothing_left(site), training(site.hosts, late=2):
        shown = watched(site, 0)
    assert shown["last"] == "ok: nothing stands out."


def test_a_rank_with_half_of_the_work_is_named(lab: Labs) -> None:
    site = lab(4)
    with nothing_left(site), training(site.hosts, rare=3):
        shown = watched(site, 1)
    assert {each["code"] for each in shown["findings"]} == {"host-uneven"}
    expected = r"bad: node3: it sends [4-6]\d % of what the others do\."
    assert re.fullmatch(expected, shown["last"]), shown["last"]


def test_a_rank_that_is_stopped_stops_all(lab: Labs) -> None:
    """Gloo has no RAS: nobody says which rank."""
    site = lab(3)
    with (
        nothing_left(site),
        training(site.hosts) as ranks,
        running(site, watch(site, 25)) as run,
    ):
        run.until(lambda: all(map(is_sampled, site.hosts)))
        await_sent(site[2], 40e6)  # 1.6 MB/s on average: enough for a job
        site[2].sh(["kill", "-STOP", ranks[2]])
        assert run.ends() == 4, (run.out, run.err)
    shown = json.loads(run.out)
    expected = r"undecided: nothing has moved for \d\d s: the job has ended, or hangs\."
    assert re.fullmatch(expected, shown["first"]), shown["first"]
    assert shown["last"] == shown["first"]
