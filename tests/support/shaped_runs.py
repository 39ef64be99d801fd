"""Real runs over the two shaped networks of a lab: what `fabbench run` says of a ratio that is known."""

import json
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from tests.support.hosts import Lab
from tests.support.ssh_runs import pingpong


class Row(NamedTuple):
    """One size of a comparison."""

    size: int
    ratio: float
    low: float
    high: float
    """The interval of the ratio."""
    verdict: str

    def holds(self, known: float, margin: float = 0.0) -> bool:
        """Return whether the interval, widened by a part of itself, contains a ratio."""
        return self.low * (1 - margin) <= known <= self.high * (1 + margin)


def compared(lab: Lab, new: int, base: int, sizes: Sequence[str], repeats: int) -> list[Row]:
    """Shape both networks to so many Mbit/s, measure them alternately, and return what `run` prints.

    A message has to take long: what the machine adds to it is the same on both, and would hide the ratio.
    """
    for host in lab.hosts:
        host.rate(f"{new}mbit", "fab0")
        host.rate(f"{base}mbit", "fab1")
    variants = ("--variant", "new=interface=fab0", "--variant", "base=interface=fab1")
    what = [word for size in sizes for word in ("--size", size)]
    how = ("--iterations", "2", "--repeat", str(repeats), "--metric", "bandwidth", "--format", "json")
    done = lab.run(pingpong(lab, "--fabric", "tcp", *variants, *what, *how), timeout=900)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
    return [
        Row(row["size"], row["ratio"], row["ratio_low"], row["ratio_high"], row["verdict"])
        for row in json.loads(done.stdout)["rows"]
        if row["column"] == "new"
    ]
