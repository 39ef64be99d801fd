"""The cluster is what it says, and leaves nothing behind."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hosts import processes
from tests.support.kubernetes import Cluster
from tests.support.kubernetes.images import NCCL
from tests.support.kubernetes_runs import Client
from tests.support.paths import ROOT

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def test_what_is_left_in_the_cluster_is_reported(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    before = cluster.traces()
    assert cluster.left_since(before, seconds=0) == []
    client = Client(cluster, namespace, tmp_path)
    client.kubectl("run", "a", "--image", NCCL, "--command", "--", "sleep", "infinity")
    client.kubectl("create", "secret", "generic", "key")
    client.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod/a")
    left = "\n".join(cluster.left_since(before, seconds=0))
    assert f"+ object pods {namespace}/a\n" in left
    assert f"+ object secrets {namespace}/key\n" in left
    assert re.search(r"^\+ process \S+ sleep infinity$", left, re.MULTILINE)
    client.kubectl("delete", "--now", "pod/a", "secret/key")
    assert cluster.left_since(before) == []


def machine() -> list[str]:
    """What a cluster must not change: mounts, links, names of networks, settings of the kernel."""
    lines = Path("/proc/self/mounts").read_text().splitlines()
    done = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True)
    named = [str(path) for path in [*Path("/run/netns").glob("*"), *Path("/var/lib").glob("*")]]
    settings = ("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops")
    values = [f"{name} {Path('/proc/sys', name).read_text()}" for name in settings]
    return sorted([*lines, *done.stdout.splitlines(), *named, *values])


def running(folder: Path) -> list[str]:
    """All on this machine whose command line names a directory."""
    pids = (int(path.name) for path in Path("/proc").glob("[0-9]*"))
    lines = (" ".join(processes.command(pid)) for pid in pids if processes.alive(pid))
    return [line for line in lines if str(folder) in line]


def groups(pid: int) -> list[Path]:
    """The cgroups of clusters that a process made."""
    top = Path("/sys/fs/cgroup")
    return [*top.glob(f"fabbench-{pid}-*"), *top.glob(f"*/fabbench-{pid}-*")]


PROGRAM = """\
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.kubernetes import Cluster, Options
cluster = Cluster(Path(sys.argv[2]), Options(nodes=1))
cluster.kubectl("run", "a", "--image", "localhost/cpu:test")
cluster.kubectl("wait", "--for=condition=Ready", "--timeout=60s", "pod/a")
print(*cluster.nodes[0].processes(), flush=True)
sys.stdin.read()
cluster.down()
"""


@pytest.mark.parametrize("how", ["down", "killed"])
def test_it_leaves_nothing_however_it_ends(tmp_path: Path, cluster: Cluster, how: str) -> None:
    before = machine()
    folder = tmp_path / "c"
    argv = [sys.executable, "-c", PROGRAM, str(ROOT), str(folder)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as run:
        assert run.stdout
        assert "sleep infinity" in run.stdout.readline()
        assert running(folder)
        assert groups(run.pid)
        if how == "killed":
            run.send_signal(signal.SIGKILL)
    assert processes.eventually(lambda: not running(folder))
    assert processes.eventually(lambda: not groups(run.pid))
    assert machine() == before
    assert not list(folder.glob("*/containerd"))
