"""`fabbench accept` over ssh: one verdict on all hosts. What is injected: test_accept_faults.py."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.support.host_fixtures import OSU, Labs
from tests.support.hosts import Lab
from tests.support.ssh_faults import running
from tests.support.ssh_runs import STORE, argv, hosts, nothing_left

pytestmark = [pytest.mark.lab, pytest.mark.slow]

LIMITS = STORE.parent / "limits.json"


def accept(lab: Lab, *more: str) -> list[str]:
    """The command line of a ladder over the hosts' second network, whose rates the tests set."""
    own = ["--interface", "fab1", "--bin-dir", str(OSU), "--fabric", "tcp", "--tolerance", "30%"]
    own += ("--iterations", "40")  # a pair sends 100 MB there and back, which takes 2 s
    return argv("accept", "--on", "ssh", *hosts(lab), *own, "--format", "json", *more)


def fresh(lab: Labs, number: int = 4) -> Lab:
    """Hosts that are shaped so strongly that the load of this machine matters little."""
    site = lab(number, slow="400mbit")
    site.run(["rm", "-rf", STORE])
    return site


def answer(lab: Lab, *more: str) -> tuple[int, Mapping[str, Any]]:
    with nothing_left(lab):
        done = lab.run(accept(lab, *more), timeout=1200)
    assert done.stdout, done.stderr
    return done.returncode, json.loads(done.stdout)


def slow(lab: Lab) -> None:
    lab[2].rate("100mbit")


def cut(lab: Lab) -> None:
    lab[1].wall(lab[3])


def apart(lab: Lab) -> None:
    lab.second_switch([4, 5, 6, 7], "200mbit")


CASES: Mapping[str, tuple[int, Callable[[Lab], None], set[str]]] = {
    "slow": (4, slow, {"node2"}),
    "cut": (4, cut, {"node1 – node3"}),
    "groups": (8, apart, {"group A – group B"}),
}
"""Name → the number of hosts, what is done to them, and what is then bad."""


def test_healthy_hosts_are_accepted_by_limits_of_their_own(lab: Labs) -> None:
    site = fresh(lab)
    status, first = answer(site, "--write-thresholds", str(LIMITS))
    assert (status, first["verdict"]) == (4, "incomplete"), first
    assert set(first["untested"]) == {"limits"}, first
    status, second = answer(site, "--thresholds", str(LIMITS))
    assert (status, second["verdict"], second["untested"]) == (0, "accepted", {}), second
    assert {each["fabric"] for each in second["rungs"] if each["figures"]} == {"tcp"}


@pytest.mark.parametrize("case", CASES)
def test_what_is_bad_is_named(lab: Labs, case: str) -> None:
    number, break_it, bad = CASES[case]
    site = fresh(lab, number)
    break_it(site)
    status, found = answer(site)
    assert (status, found["verdict"]) == (1, "rejected"), found
    assert set(found["bad"]) == bad, found


def test_load_for_a_time_and_beside_load(lab: Labs) -> None:
    site = fresh(lab)
    status, found = answer(
        site, "--level", "soak", "--soak", "5", "--background", "--tolerance", "80%"
    )
    rungs = {each["name"]: each for each in found["rungs"]}
    states = {
        name: rungs[name]["state"] for name in ("soak", "drift:all_reduce", "quiet", "interference")
    }
    whys = {name: rungs[name].get("why") for name in states}
    assert (status, set(states.values())) == (4, {"passed"}), (states, whys)
    assert " vs " in rungs["interference"]["why"]


def test_a_host_that_goes_is_named_and_the_others_go_on(lab: Labs) -> None:
    site = fresh(lab)
    with running(site, accept(site, "--set", "lost-after=30")) as program:
        program.until(lambda: list(site.path(STORE).glob("*/exec/*/output.log")))
        site[2].kill()
        assert program.ends(500) == 1, program.err
    found = json.loads(program.out)
    assert found["verdict"] == "rejected", found
    assert "node2" in found["bad"], found
