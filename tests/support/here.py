"""This machine as the only host, for tests of executions without the command line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fabbench.execution.runner import run_steps
from fabbench.launchers.local.launcher import allocation_here
from fabbench.model.hosts import Host, Inventory
from fabbench.model.plan import Execution
from fabbench.remote.session import MARK, RemoteAllocation, RemoteSession


@contextmanager
def held(host: Host) -> Iterator[RemoteAllocation]:
    """Hold this machine as `host`."""
    with allocation_here(Inventory(target="local", hosts=(host,))) as allocation:
        yield allocation


def lines_of(
    execution: Execution, host: Host, session: type[RemoteSession] = RemoteSession
) -> list[str]:
    """Run an execution here, and return its lines."""
    with held(host) as machines:
        return list(run_steps(lambda step: session(machines, step), execution))


def running(machines: RemoteAllocation) -> list[str]:
    """Return the process ids of what a run has started and not ended."""
    mark = f"{MARK}={machines.remotes[0].token}".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in path.read_bytes().split(b"\0"):
                found.append(path.parent.name)
        except OSError:  # it has ended
            continue
    return found
