"""``fabbench check`` of a cluster of many nodes, against kubectl's own list of them."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from tests.support.kubernetes import CACHE, Cluster, fakes, missing

COLUMNS = (
    "NAME:.metadata.name,INSTANCE-TYPE:.metadata.labels.node\\.kubernetes\\.io/instance-type,"
    "GPU:.status.allocatable.nvidia\\.com/gpu,EFA:.status.allocatable.vpc\\.amazonaws\\.com/efa"
)
"""The table of the SkyPilot guide to EFA on EKS."""


def seconds(argv: Sequence[str | Path], statuses: tuple[int, ...]) -> float:
    """Run a program to its end."""
    begin = time.perf_counter()
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=300)
    took = time.perf_counter() - begin
    if done.returncode not in statuses:
        raise SystemExit(f"{argv[:5]} ended with {done.returncode}: {done.stdout[-3000:]}{done.stderr}")
    return took


def check_nodes(count: int, times: int) -> None:
    """Measure in turns, so that a busy moment meets both."""
    if why := missing("kwok"):
        print(f"check of {count} nodes of a cluster: not measured: {why}")
        return
    with tempfile.TemporaryDirectory(prefix="fabbench-bench-") as name, Cluster(Path(name, "cluster")) as cluster:
        fakes.add(cluster, count, "fake")
        place = ("--kubeconfig", str(cluster.kubeconfig))
        table = (CACHE / "kubernetes/kubectl", *place, "get", "nodes", "-o", f"custom-columns={COLUMNS}")
        check = (sys.executable, "-m", "fabbench", "check", "--on", "kubernetes", *place)
        took: dict[str, list[float]] = {"kubectl get nodes": [], "fabbench check": []}
        load = os.getloadavg()[0]
        for _ in range(times):
            took["kubectl get nodes"].append(seconds(table, (0,)))
            # Status 3: kwok is late with the signs of some node.
            took["fabbench check"].append(seconds(check, (0, 3)))
    print(f"check of {count} nodes of a cluster, {times} runs each (load {load:.1f}): least, median, against kubectl")
    base = min(took["kubectl get nodes"])
    for what, runs in took.items():
        print(f"  {what:<22} {min(runs):6.2f} s {median(runs):6.2f} s  {min(runs) / base:5.2f} x")


if __name__ == "__main__":
    check_nodes(int(sys.argv[1]), int(sys.argv[2]))
