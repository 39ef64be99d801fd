"""Requests of runs."""

from typing import Any

from fabbench.model.hosts import Target
from fabbench.plan.request import RunRequest, Work


def request(benchmark: str, work: Work, *fabrics: str, target: str = "local", **more: Any) -> RunRequest:
    """Return a request to measure `work` on fabrics."""
    where = Target(name=target, launcher=target)
    return RunRequest(benchmark=benchmark, work=work, target=where, fabrics=fabrics, **more)
