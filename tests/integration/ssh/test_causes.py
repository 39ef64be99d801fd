"""Faults that are done to hosts, and whether `explain` of the run names them first or second."""

import json
from collections.abc import Callable

import pytest

from tests.support.host_fixtures import Labs
from tests.support.hosts import Lab
from tests.support.ssh_runs import argv, nothing_left, pingpong, run, the_run

pytestmark = pytest.mark.lab

TEST = (
    "--fabric",
    "tcp",
    "--interface",
    "fab1",
    "--size",
    "64K",
    "--iterations",
    "100",
    "--repeat",
    "1",
)


def loss(site: Lab) -> None:
    site[1].lose(2, rate="100mbit")


def nic_down(site: Lab) -> None:
    site[1].cut("fab1")


def nothing(site: Lab) -> None:
    site[1].rate("100mbit")


@pytest.mark.parametrize(
    ("fault", "more", "status", "codes"),
    [
        pytest.param(nothing, (), 0, [], marks=pytest.mark.slow),
        pytest.param(loss, (), 0, ["tcp-retransmits"]),
        pytest.param(nic_down, (), 4, ["no-route", "nic-down"]),
        pytest.param(
            nothing, ("--env", "FI_PROVIDER=nosuch"), 4, ["provider-missing", "listener-missing"]
        ),
    ],
)
def test_a_fault_is_named(
    lab: Labs, fault: Callable[[Lab], None], more: tuple[str, ...], status: int, codes: list[str]
) -> None:
    site = lab(2, slow="100mbit")
    fault(site)
    with nothing_left(site):
        done = run(site, pingpong(site, *TEST, *more))
    assert done.returncode == status, done.stderr
    told = site.run([*argv("explain", "last"), "--format", "json"], timeout=60)
    assert told.returncode == status, told.stderr
    (log,) = json.loads(told.stdout)["logs"]
    assert [each["code"] for each in log["causes"]][:2] == codes, log


@pytest.mark.slow
def test_a_limited_rate_is_named_beside_a_run_without_it(lab: Labs) -> None:
    """One run alone does not show it: no counter of a host tells what a path could carry."""
    site, ids = lab(2, slow="100mbit"), []
    for rate in ("100mbit", "4mbit"):
        for host in site.hosts:
            host.rate(rate)
        done = run(site, pingpong(site, *TEST, "--size", "64", "--iterations", "20"))
        assert done.returncode == 0, done.stderr
        ids.append(the_run(site).id)
    told = site.run([*argv("explain", *reversed(ids)), "--format", "json"], timeout=60)
    slow, usual = json.loads(told.stdout)["logs"]
    assert [each["code"] for each in slow["causes"]][:1] == ["path-rate"], (slow, usual)
    assert usual["causes"] == []
