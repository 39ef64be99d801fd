"""Runs of fabbench over ssh in a lab.

From the client, on its hosts, and nothing is left anywhere.
"""

import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from fabbench.model.log import Log
from fabbench.runs.store import StoredRun, runs
from tests.support.host_fixtures import OSU, STANDIN
from tests.support.hosts import HOME, Lab, processes

STORE = HOME / "runs"
"""On the client."""


def hosts(lab: Lab, count: int | None = None) -> list[str]:
    """The options that name hosts, and what connects to them where the test says it."""
    client = ["--set", f"ssh-client={lab.ssh_client}"] if lab.ssh_client else []
    return [*client, *(word for host in lab.hosts[:count] for word in ("--host", host.name))]


def argv(*words: str) -> list[str]:
    return [sys.executable, "-m", "fabbench", *words, "--store", str(STORE)]


def nccl(lab: Lab, *more: str, count: int | None = None) -> list[str]:
    """The command line that runs the stand-in, one rank on each host by default."""
    own = () if "--gpus" in more else ("--gpus", "1")
    return argv(
        "run", "nccl", "--on", "ssh", *hosts(lab, count), "--bin-dir", str(STANDIN), *own, *more
    )


def pingpong(lab: Lab, *more: str) -> list[str]:
    return argv("run", "pingpong", "--on", "ssh", *hosts(lab, 2), *more)


def run(
    lab: Lab, words: list[str], env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return lab.run(words, env=env, timeout=180)


def osu(lab: Lab, *more: str) -> list[str]:
    return argv("run", "osu", "--on", "ssh", *hosts(lab, 2), "--bin-dir", str(OSU), *more)


@contextmanager
def nothing_left(lab: Lab, within_s: float = 60) -> Iterator[None]:
    """Hold that what happens inside leaves nothing on any host or running on the client."""
    before = lab.traces()
    yield
    dead = tuple(f"{host.name} " for host in lab.hosts if not processes.alive(host.pid))
    before = [line for line in before if not line.startswith(dead)]
    left = [line for line in lab.left_since(before, within_s) if str(STORE) not in line]
    assert left == [], left[:20]


def kill_all(process: "subprocess.Popen[str]") -> None:
    """End fabbench and all that it has started here, as if its machine died."""
    started = processes.descendants(process.pid)
    words = [word for pid in started for word in processes.command(pid)]
    for pid in (*started, process.pid):
        processes.send(signal.SIGKILL, pid)
    process.wait()
    for word in words:
        if Path(word).match("fabbench-ssh-*/m"):  # the socket of a master
            shutil.rmtree(Path(word).parent, ignore_errors=True)


def the_run(lab: Lab) -> StoredRun:
    """The newest run in the client's store."""
    return StoredRun(next(runs(lab.path(STORE))))


def the_log(lab: Lab, configuration: str) -> Log:
    (log,) = the_run(lab).logs(configuration)
    return log
