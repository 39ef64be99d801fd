"""Runs of fabbench as jobs of a lab's Slurm: from node0, or from the client over ssh to it."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.host_fixtures import OSU, STANDIN, Labs
from tests.support.hosts import HOME, Host, Lab, processes
from tests.support.paths import ROOT
from tests.support.ssh_faults import ROW
from tests.support.ssh_runs import STORE, argv

if TYPE_CHECKING:
    import subprocess

PAIRS = ("--bin-dir", "/usr/bin", "--size", "64", "--size", "1K", "--iterations", "100")
RANKS = ("--bin-dir", str(STANDIN), "--gpus", "1", "--set", "no-gres=true", "-e", "1K")
SLOW = ("--no-efa", "--repeat", "1", "--nodes", "2", "--partition", "rest")
"""On nodes which are not the login node. Eight rows."""
ENDLESS = {"ROW_S": 0.5, "HANG_AT": "512"}
"""Rows come for three seconds; whatever is slow, it has not ended then."""


def site(lab: Labs, hosts: int = 3) -> Lab:
    """Return hosts with Slurm, without jobs: a test that failed may have left some."""
    made = lab(hosts, slurm=True)
    for line in queued(made[0]):
        made[0].sh(["scancel", line.split()[0]], check=False)
    assert processes.eventually(lambda: queued(made[0]) == [])
    return made


def pingpong(*more: str) -> list[str]:
    return argv("run", "pingpong", "--on", "slurm", "--login", "node0", *PAIRS, *more)


def nccl(*more: str) -> list[str]:
    return argv("run", "nccl", "--on", "slurm", "--login", "node0", *RANKS, *more)


def osu(*more: str) -> list[str]:
    own = ("--bin-dir", str(OSU), "--set", "no-gres=true", "-e", "64")
    return argv("run", "osu", "--on", "slurm", "--login", "node0", *own, *more)


def rendered(lab: Lab, *words: str) -> str:
    return lab.run(
        [sys.executable, "-m", "fabbench", "render", *words, "--as", "slurm"], check=True
    ).stdout


def without_command(script: str) -> str:
    """A script less the comment with the command that it was made by."""
    interpreter, command, rest = script.split("\n", 2)
    assert command.startswith("# fabbench ")
    return f"{interpreter}\n{rest}"


def jobs(host: Host) -> dict[str, dict[str, str]]:
    """All that Slurm remembers of jobs: id → fields."""
    shown = host.sh(["scontrol", "show", "job", "--oneliner"], check=False).stdout
    found = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in shown.splitlines()]
    return {fields["JobId"]: fields for fields in found if "JobId" in fields}


def our_jobs(host: Host) -> list[str]:
    """The ids of fabbench's own jobs."""
    return [
        number for number, fields in jobs(host).items() if fields["JobName"].startswith("fabbench-")
    ]


def the_job(host: Host) -> str:
    """The newest job of fabbench's; empty if there is none."""
    return max(our_jobs(host), key=int, default="")


def state(host: Host, job: str) -> str:
    return jobs(host).get(job, {}).get("JobState", "")


def queued(host: Host) -> list[str]:
    return host.sh(["squeue", "--noheader", "--format=%A %j %T"]).stdout.split("\n")[:-1]


def most_rows(store: Path) -> int:
    """Count the rows of the longest log in a store."""
    logs = store.glob("*/exec/*/output.log")
    return max((len(ROW.findall(path.read_text())) for path in logs), default=0)


def files(host: Host) -> list[str]:
    """What jobs leave in the directory from where they were submitted."""
    return sorted(path.name for path in host.home.glob("fabbench-*"))


@contextmanager
def nothing_left(lab: Lab, within_s: float = 60) -> Iterator[None]:
    """Hold that what happens inside leaves no job, no file and no process on any host."""
    first = lab[0]
    # What an earlier test has ended may be on its way out.
    assert processes.eventually(
        lambda: not any(line.endswith(" COMPLETING") for line in queued(first))
    )
    queue, before, kept = queued(first), lab.traces(), files(first)
    yield
    assert processes.eventually(lambda: queued(first) == queue, within_s), queued(first)
    assert files(first) == kept
    dead = tuple(f"{host.name} " for host in lab.hosts if not processes.alive(host.pid))
    before = [line for line in before if not line.startswith(dead)]
    left = [line for line in lab.left_since(before, within_s) if str(STORE) not in line]
    assert left == [], left[:20]


@contextmanager
def taken(host: Host, *more: str) -> Iterator[str]:
    """Let somebody else's job have nodes; gives its id."""
    words = ["sbatch", "--parsable", "--exclusive", "-o", "/dev/null", *more, "--wrap", "sleep 600"]
    job = host.sh(words).stdout.strip()
    sleeping = ["sleep", "600"]
    assert processes.eventually(
        lambda: any(sleeping in each.processes().values() for each in host.lab.hosts), 30
    )
    try:
        yield job
    finally:
        host.sh(["scancel", job], check=False)
        assert processes.eventually(lambda: state(host, job) not in {"RUNNING", "COMPLETING"})


def run(lab: Lab, words: list[str]) -> "subprocess.CompletedProcess[str]":
    return lab.run(words, timeout=240)


def on_login_node(lab: Lab, words: list[str], **env: str) -> "subprocess.CompletedProcess[str]":
    """Run on node0 itself, in its home."""
    plain = [word for word in words if word not in {"--login", "node0"}]
    return on(lab[0], *plain, **env)


def on(host: Host, *words: str, **env: str) -> "subprocess.CompletedProcess[str]":
    """Run a program on a host, in its home, with the fabbench that is tested."""
    ours = {"PYTHONPATH": str(ROOT / "src"), **env}
    return host.sh(["env", "-C", HOME, *words], check=False, timeout=240, **ours)
