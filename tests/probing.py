"""The answers of hosts under tests/probes, read."""

from pathlib import Path

from fabbench.hosts.found import Probe
from fabbench.hosts.probe import read_probe

PROBES = Path(__file__).parent / "probes"


def lines(name: str) -> list[str]:
    return (PROBES / f"{name}.txt").read_text("utf-8").splitlines()


def probe(name: str) -> Probe:
    return read_probe(lines(name))
