"""``fabbench watch`` of hosts over ssh: rates, and a host that dies in the middle."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.support.host_fixtures import BOTH_SSH_CLIENTS, Labs
from tests.support.hosts import Host, Lab, processes
from tests.support.ssh_faults import running
from tests.support.ssh_runs import argv, hosts, nothing_left

pytestmark = [pytest.mark.lab, pytest.mark.slow, BOTH_SSH_CLIENTS]
SERVE = """
import socket
with socket.create_server(("", 7788)) as server:
    peer, _ = server.accept()
    while peer.recv(1 << 20):
        pass
"""
SEND = """
import socket, sys, time
peer = socket.create_connection((sys.argv[1], 7788))
begun, sent = time.monotonic(), 0
while True:
    peer.sendall(bytes(1 << 18))
    sent += 1 << 18
    time.sleep(max(0.0, begun + sent / 20e6 - time.monotonic()))
"""
LISTENS = ":1E6C 00000000:0000 0A"
"""Port 7788, as /proc/net/tcp has it."""


def watch(site: Lab, *more: str) -> list[str]:
    return argv("watch", "--on", "ssh", *hosts(site), *more)


def start(host: Host, *words: str) -> str:
    """Start a Python program on a host, and return its process id there."""
    script = 'python3 -c "$@" >/dev/null 2>&1 & echo $!'
    return host.sh(["sh", "-c", script, "sh", *words]).stdout.strip()


@contextmanager
def traffic(receiver: Host, sender: Host) -> Iterator[None]:
    """20 MB/s of TCP from one host to the other."""
    server = start(receiver, SERVE)
    assert processes.eventually(lambda: LISTENS in receiver.sh(["cat", "/proc/net/tcp"]).stdout)
    client = start(sender, SEND, receiver.address)
    try:
        yield
    finally:
        sender.sh(["kill", client])
        receiver.sh(["kill", server], check=False)  # it ends with its client


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


def is_sampled(host: Host) -> bool:
    return any(words[:2] == ["sh", "-s"] for words in host.processes().values())


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
