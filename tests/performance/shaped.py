"""Real A/A and A/B runs between two hosts over two shaped networks: is the known ratio in the interval?

fi_pingpong over TCP, at rates so low that the networks bound it and not the machine.
"""

import argparse
import os
import tempfile
from pathlib import Path

from fabbench.model.units import format_size
from tests.support.hosts import Lab, Options, missing
from tests.support.shaped_runs import compared

RATES = ((16, 16), (20, 16), (32, 16))
"""Mbit/s of the network in question and of the baseline."""
SIZES = ("1M", "2M")


def shaped(times: int, repeats: int) -> None:
    """Compare the networks so many times at each ratio."""
    if why := missing():
        print(f"known ratios: not measured: {why}")
        return
    print(f"known ratios of two shaped networks, {repeats} repeats each (load {os.getloadavg()[0]:.1f})")
    with tempfile.TemporaryDirectory(prefix="fabbench-bench-") as name, Lab(Path(name, "lab"), Options(hosts=2)) as lab:
        for new, base in RATES:
            known, rows = new / base, []
            for _ in range(times):
                for row in compared(lab, new, base, SIZES, repeats):
                    rows.append(row)
                    print(
                        f"  {known:4.2f} x at {format_size(row.size)}: {row.ratio:.3f} ({row.low:.3f} to "
                        f"{row.high:.3f}), {row.verdict}{'' if row.holds(known) else ': outside'}",
                        flush=True,
                    )
            inside = sum(row.holds(known) for row in rows)
            right = {"same", "undecided"} if new == base else {"faster"}
            verdicts = sum(row.verdict in right for row in rows)
            print(f"  {known:4.2f} x: {inside} of {len(rows)} intervals hold it, {verdicts} verdicts are right")


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--times", type=int, default=5)
    options.add_argument("--repeats", type=int, default=4)
    given = options.parse_args()
    shaped(given.times, given.repeats)
