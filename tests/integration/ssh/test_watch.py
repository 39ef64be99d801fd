"""``fabbench watch`` of hosts over ssh: rates, and a host that dies in the middle."""

import json

import pytest

from tests.support.host_fixtures import BOTH_SSH_CLIENTS, Labs
from tests.support.host_programs import is_sampled, traffic
from tests.support.hosts import Lab
from tests.support.ssh_faults import running
from tests.support.ssh_runs import argv, hosts, nothing_left

pytestmark = [pytest.mark.lab, pytest.mark.slow, BOTH_SSH_CLIENTS]


def watch(site: Lab, *more: str) -> list[str]:
    return argv("watch", "--on", "ssh", *hosts(site), *more)


def test_rates_of_two_hosts(lab: Labs) -> None:
    site = lab(2)
    receiver, sender = site.hosts
    with nothing_left(site), traffic(receiver, sender):
        done = site.run(watch(site, "--for", "4", "--json"))
    assert done.returncode in {0, 1}, done.stderr  # 1: TCP sent much again
    carriers = json.loads(done.stdout)["carriers"]
    assert carriers.keys() == {receiver.name, sender.name}
    for host, counter in ((receiver, "rx_bytes"), (sender, "tx_bytes")):
        moved = carriers[host.name]
        (nic,) = moved["nics"]
        assert nic["counters"][counter] / moved["seconds"] == pytest.approx(20e6, rel=0.1)


def test_a_host_that_dies_is_named_and_the_others_go_on(lab: Labs) -> None:
    site = lab(3, fresh=True)
    with (
        traffic(site[0], site[2]),
        running(site, watch(site, "--for", "8", "--json")) as run,
    ):
        run.until(lambda: all(map(is_sampled, site.hosts)))
        site[1].kill_sshd()
        assert run.ends() == 3, run.err
    document = json.loads(run.out)
    assert document["first"].startswith("incomplete: ")
    assert document["last"].startswith(f"incomplete: {site[1].name} could not be watched: ")
    assert document["carriers"][site[0].name]["seconds"] == pytest.approx(8, abs=2)


def test_data_that_come_later_are_waited_for(lab: Labs) -> None:
    """Only what moves from then on counts; one sample may have begun before."""
    site = lab(2)
    receiver, sender = site.hosts
    words = watch(site, "--wait", "100", "--for", "4", "--json")
    with nothing_left(site), running(site, words) as run:
        run.until(lambda: all(map(is_sampled, site.hosts)))
        with traffic(receiver, sender):
            assert run.ends() in {0, 1}, run.err  # 1: TCP sent much again
    moved = json.loads(run.out)["carriers"][sender.name]
    assert 3.5 < moved["seconds"] < 7
    (nic,) = moved["nics"]
    assert nic["counters"]["tx_bytes"] / moved["seconds"] > 0.7 * 20e6
