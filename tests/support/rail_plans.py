"""Trials over rails for tests: planned, and run on this machine with stand-in programs."""

from fabbench.benchmarks.standard import Work
from fabbench.logs.parser import LogParser, logs
from fabbench.model.hosts import Host, Inventory
from fabbench.model.log import Ending, Log
from fabbench.model.plan import Execution
from fabbench.plan.build import plan
from tests.support.here import lines_of
from tests.support.requests import request


def first_execution(benchmark: str, work: Work, fabric: str, hosts: tuple[Host, ...]) -> Execution:
    """Plan a run on one fabric, or on the best one where none is named.

    Give its first execution.
    """
    run_request = request(benchmark, work, *filter(None, (fabric,)), target="x")
    return plan(run_request, Inventory(target="x", hosts=hosts)).executions[0]


def measured(execution: Execution, host: Host) -> Log:
    """Run an execution here, and judge its one log."""
    parser = LogParser("x", proof=execution.proof)
    lines = lines_of(execution, host)
    (log,) = logs(
        [
            *parser.feed_lines(lines),
            *parser.close(Ending(status=0, planned_sizes=execution.planned_sizes)),
        ]
    )
    return log
