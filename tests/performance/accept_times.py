"""How long `fabbench accept` takes on many nodes.

The tests that its rungs plan, and assumed times of one test.

Nodes are healthy, have eight GPUs and eight NICs, and may be tested at the same time.
"""

import math
import random
import sys
from typing import Any

from fabbench.model.hosts import Host, Inventory
from fabbench.model.units import format_duration
from fabbench.runs.document import SweepDocument
from fabbench.runs.ladder import LEVELS, AcceptOptions, Rung, ladder
from fabbench.runs.sweep import planner_of
from fabbench.sweep.values import SweepOutcome, SweepResult

AT_ONCE = 64
CHECK_S, CHECK_NODE_S = 4.0, 0.05
"""Of all checks, and for each node.

Nodes are checked at the same time, but their answers are read one by one.
"""
TEST_S = {"gpus": 12.0, "nics": 4.0, "rails": 4.0, "pairs": 15.0}
"""Of one test of nodes alone, and of pairs."""
RUN_S, RUN_NODE_S = 12.0, 0.15
"""Of one collective of all nodes, and for each node.

Mpirun starts ranks in a tree, and their output is read.
"""


def rounds(rung: Rung, nodes: tuple[str, ...], nics: tuple[str, ...]) -> list[int]:
    """Return the number of tests of each round of a sweep."""
    known: dict[str, Any] = {
        "mode": rung.mode,
        "benchmark": rung.benchmark,
        "fabric": "efa",
        "metric": "busbw",
    }
    planner = planner_of(
        SweepDocument(**known, nodes=nodes, seed=0, confidence=0.99, tolerance=0.1, nics=nics), []
    )
    found, draw = list[int](), random.Random(1)
    while (planned := planner.next_round()) is not None:
        found.append(len(planned.tests))
        for test in planned.tests:
            figure = 4e11 * draw.gauss(1, 0.01)
            planner.add(SweepResult(test, SweepOutcome.OK, figure=figure, round=planned.number))
    return found


def seconds(level: str, count: int) -> tuple[int, float]:
    """Return the number of tests of a level, and how long they take."""
    nics = tuple(f"rdmap{number}" for number in range(8))
    hosts = tuple(
        Host(name=f"n{number:04}", gpus=8, devices=dict.fromkeys(nics, "efa"))
        for number in range(count)
    )
    tests, took = 0, CHECK_S + CHECK_NODE_S * count
    for rung in ladder(Inventory(target="", hosts=hosts), AcceptOptions(level=level, soak=3600)):
        planned = (
            rounds(rung, tuple(host.name for host in hosts), nics)
            if rung.mode and not rung.absent
            else []
        )
        tests += sum(planned)
        took += sum(math.ceil(each / AT_ONCE) for each in planned) * TEST_S.get(rung.name, 0)
        if rung.benchmark and not rung.mode:
            repeats = 1 if level == LEVELS[0] else 3
            tests, took = tests + repeats, took + repeats * (RUN_S + RUN_NODE_S * count)
    return tests, took + 3600 * (level == LEVELS[-1])


if __name__ == "__main__":
    for count in map(int, sys.argv[1:] or ("2", "4", "8", "16", "64", "256", "1024")):
        for level in LEVELS:
            tests, took = seconds(level, count)
            print(f"{count} nodes, {level}: {tests} tests, {format_duration(took)}")
