"""The answers of hosts under tests/data/probes, read."""

from fabbench.hosts.probe import read_probe
from fabbench.hosts.probe_result import Probe
from tests.support.paths import DATA

PROBES = DATA / "probes"


def lines(name: str) -> list[str]:
    return (PROBES / f"{name}.txt").read_text("utf-8").splitlines()


def probe(name: str) -> Probe:
    return read_probe(lines(name))
