"""The lab of hosts is what it says, and leaves nothing behind."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.host_fixtures import Labs
from tests.support.hosts import HOME, Lab, Options, processes, traces
from tests.support.paths import ROOT

pytestmark = pytest.mark.lab


def machine() -> list[str]:
    """What a lab must not change: mounts, network interfaces, names of networks, root's keys."""
    mounts = Path("/proc/self/mounts").read_text().splitlines()
    mine = f"/popen-{os.environ.get('PYTEST_XDIST_WORKER')}/"
    lines = [line for line in mounts if "/popen-" not in line or mine in line]  # no other tests'
    done = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
    named = [str(path) for path in Path("/run/netns").glob("*")]
    keys = [f"{path} {sign}" for path, sign in traces.files(HOME, "/.ssh").items()]
    return sorted([*lines, *done.stdout.splitlines(), *named, *keys])


def namespaces(lab: Lab) -> set[str]:
    pids = [lab.pid, *(host.pid for host in lab.hosts)]
    return {processes.namespace(pid, kind) for pid in pids for kind in ("net", "pid", "mnt", "uts")}


def held() -> set[str]:
    """All namespaces that some process is in."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return {processes.namespace(pid, kind) for pid in pids for kind in ("net", "pid", "mnt", "uts")}


@pytest.mark.slow
def test_hosts_are_apart_and_have_their_names(lab: Labs) -> None:
    hosts = lab(4).hosts
    assert [host.sh(["hostname"]).stdout.strip() for host in hosts] == [
        "node0",
        "node1",
        "node2",
        "node3",
    ]
    for folder in ("/tmp", "/dev/shm", "/run"):
        hosts[0].sh(["touch", f"{folder}/mark"])
        assert hosts[0].path(f"{folder}/mark").exists()
        assert not hosts[1].path(f"{folder}/mark").exists()
        hosts[0].path(f"{folder}/mark").unlink()
    assert (
        len({processes.namespace(host.pid, kind) for host in hosts for kind in ("net", "ipc")}) == 8
    )
    assert hosts[0].sh(["ls", "/sys/class/net"]).stdout.split() == ["fab0", "fab1", "lo"]
    assert hosts[0].sh(["getent", "hosts", "node3-slow"]).stdout.split()[0] == hosts[3].slow_address


@pytest.mark.slow
def test_what_is_left_behind_is_reported(lab: Labs) -> None:
    hosts = lab(2, fresh=True)
    before = hosts.traces()
    assert hosts.left_since(before, seconds=0) == []
    hosts.ssh(
        hosts[1],
        "setsid sleep 60 >/dev/null 2>&1 & touch /tmp/x; echo key >> ~/.ssh/authorized_keys",
    )
    left = "\n".join(hosts.left_since(before, seconds=1))
    assert "+ node1 process sleep 60" in left
    assert "+ node1 file /tmp/x" in left
    assert re.search(r"^\+ node1 file \S+/.ssh/authorized_keys", left, re.MULTILINE)


def test_down_leaves_nothing(tmp_path: Path) -> None:
    before = machine()
    with (
        Lab(tmp_path / "lab", Options(hosts=3)) as hosts,
        Lab(tmp_path / "other", Options(hosts=2)) as other,
    ):
        assert machine() == before
        assert hosts.ssh(hosts[2], "hostname").stdout == "node2\n"
        assert other.ssh(other[0], "hostname").stdout == "node0\n"
        gone = namespaces(hosts) | namespaces(other)
        left = hosts.popen(["sleep", "600"])
        assert gone <= held()
    hosts.down()
    assert left.wait(60) == -signal.SIGKILL
    left.communicate()
    assert processes.eventually(lambda: not gone & held())
    assert machine() == before


@pytest.mark.slow
def test_a_killed_test_run_leaves_nothing(tmp_path: Path) -> None:
    program = (
        "import sys\nfrom pathlib import Path\nsys.path.insert(0, sys.argv[1])\n"
        "from tests.support.hosts import Lab, Options, processes\n"
        "lab = Lab(Path(sys.argv[2]), Options(hosts=2))\n"
        "print(lab.pid, *(host.pid for host in lab.hosts), flush=True)\nsys.stdin.read()\n"
    )
    argv = [sys.executable, "-c", program, str(ROOT), str(tmp_path / "lab")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        pids = [int(word) for word in run.stdout.readline().split()]
        assert len(pids) == 3
        assert all(map(processes.alive, pids))
        run.kill()
    assert processes.eventually(lambda: not any(map(processes.alive, pids)))


@pytest.mark.slow
def test_a_slurm_ends_with_the_lab(tmp_path: Path) -> None:
    with Lab(tmp_path / "lab", Options(hosts=2, slurm=True)) as hosts:
        daemons = [pid for host in hosts.hosts for pid in host.processes()]
        names = {command[0] for pid in daemons if (command := processes.command(pid))}
        assert {"munged", "slurmctld", "slurmd"} <= names
        hosts[0].sh(["sbatch", "-N2", "-o", "/dev/null", "--wrap", "srun /bin/sleep 600"])
        assert processes.eventually(lambda: ["/bin/sleep", "600"] in hosts[1].processes().values())
        daemons += [pid for host in hosts.hosts for pid in host.processes()]
    assert processes.eventually(lambda: not any(map(processes.alive, daemons)))
