"""Jobs that carry out a whole plan: who looks on while an execution goes on, and what ends one early."""

from collections.abc import Generator
from typing import Any

from fabbench.launchers import Rendering, RenderInput
from fabbench.launchers.batch_job import JobAllocation
from fabbench.launchers.slurm.submit import by_node
from fabbench.model.compat import override
from fabbench.model.hosts import Host, Inventory
from fabbench.model.log import begin_marker, end_marker
from fabbench.model.plan import Execution
from tests.support.requests import request
from tests.support.script_plans import pingpong

PLAN = pingpong("tcp", "tcp", repeats=1)
ONE, TWO = PLAN.executions


class Document(Rendering):
    """A document of one line."""

    name = "document"

    @override
    def render(self, source: RenderInput) -> str:
        return "document\n"


def printed(execution: Execution) -> list[str]:
    return [line for each in execution.steps for line in (begin_marker(each.id, each.facts), end_marker(each.id, 0))]


def submitted(**attributes: Any) -> JobAllocation:
    def follow(document: str) -> Generator[str, None, None]:
        assert document == "document\n"
        yield from (*printed(ONE), *printed(TWO))

    found = Inventory(target="t", hosts=(Host(name="a"), Host(name="b")))
    job = JobAllocation(found, Document(), "document", follow)
    for name, value in attributes.items():
        setattr(job, name, value)
    job.submit(RenderInput(plan=PLAN, request=request("pingpong", None), inventory=found))  # type: ignore[arg-type]
    return job


def test_counters_are_read_only_while_an_execution_goes_on() -> None:
    """Before and after it the script counts, and a job may not run."""
    job = submitted(read_counters=lambda: {"a": ["proc/uptime:1.0 1.0"]})
    assert job.counters() == {}
    lines = job.execute(ONE)
    assert job.counters() == {}
    next(lines)
    assert job.counters() == {"a": ["proc/uptime:1.0 1.0"]}
    assert len(list(lines)) == len(printed(ONE)) - 1
    assert job.counters() == {}


def test_what_srun_labels_is_told_by_node() -> None:
    lines = ["1: fabbench node n2", "0: fabbench node n1", "0: proc/uptime:1", " 1: a: b", "srun: error: x", "2: y"]
    assert by_node(lines) == {"n2": ["a: b"], "n1": ["proc/uptime:1"]}
