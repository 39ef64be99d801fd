"""Programs on this machine that use a cluster."""

import os
from collections.abc import Iterator
from pathlib import Path

from tests.support.hosts import processes

_OURS = {"bash", "unshare", "nsenter"}
"""These wait for the cluster's own programs, which are in another space of processes."""


def running(folder: Path) -> Iterator[str]:
    """Command lines of those that name a kubeconfig of this directory, or have it set."""
    mark = str(folder).encode()
    for pid in processes.inside("pid", processes.namespace(os.getpid(), "pid")):
        line = processes.command(pid)
        if not line or line[0] in _OURS or pid == os.getpid():
            continue
        if mark in _told(pid, "environ") + _told(pid, "cmdline"):
            yield " ".join(line)


def _told(pid: int, what: str) -> bytes:
    """What /proc tells of a process; empty if it is gone."""
    try:
        return Path(f"/proc/{pid}/{what}").read_bytes()
    except OSError:
        return b""
