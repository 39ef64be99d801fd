"""A run on this machine that prints every point as it comes.

`python tests/support/printed_run.py STORE`.
"""

import sys
from pathlib import Path

from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.launchers import launcher_named
from fabbench.model.compat import override
from fabbench.model.hosts import Target
from fabbench.model.log import Point
from fabbench.model.plan import Execution
from fabbench.plan.build import plan
from fabbench.plan.request import RunRequest
from fabbench.runs.execute import Watcher, carry_out
from fabbench.runs.store import RunWriter


def shown(execution: str, point: Point) -> str:
    """Return the line of a point."""
    return f"{execution} {point.size} {sorted(point.labels.items())} {point.values}"


class Screen(Watcher):
    """Prints points."""

    @override
    def point(self, execution: Execution, point: Point) -> None:
        print(shown(execution.id, point), flush=True)


def main(store: Path) -> None:
    """Measure two fabrics, twice each."""
    work = PingpongWork(sizes=(64, 1500, 4096), iterations=5)
    target = Target(name="local", launcher="local")
    request = RunRequest(
        benchmark="pingpong",
        work=work,
        target=target,
        fabrics=("shm", "tcp"),
        repeats=2,
        store=store,
    )
    with launcher_named("local").open(target, work.needs) as allocation:
        planned = plan(request, allocation.inventory)
        carry_out(planned, allocation, RunWriter(request, allocation.inventory, planned), Screen())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
