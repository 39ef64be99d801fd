"""``fabbench run`` across two hosts, against the bare line of mpirun there."""

import os
import shlex
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from fabbench.runs.store import StoredRun, runs
from tests.support.host_fixtures import STANDIN
from tests.support.hosts import HOME, Lab, Options, missing

SIZES = ("-b", "8", "-e", "1M", "-f", "2")
STORE = HOME / "runs"
PLAIN = ("mpirun", "--allow-run-as-root", "--bind-to", "none", "--tag-output")


def overhead(times: int) -> None:
    """Measure in turns, so that a busy moment meets both."""
    if why := missing():
        print(f"overhead of run: not measured: {why}")
        return
    with tempfile.TemporaryDirectory(prefix="fabbench-bench-") as name:
        lab = Lab(Path(name, "lab"), Options(hosts=2, trust=True))
        with lab:
            names = [host.name for host in lab.hosts]
            bare = [*PLAIN, "-H", ",".join(f"{host}:1" for host in names), "-np", "2"]
            for variable in ("NCCL_NET=Socket", "NCCL_DEBUG=INFO", "NCCL_DEBUG_FILE=/tmp/nccl.%h.%p"):
                bare += ["-x", variable]
            bare += ["stdbuf", "-oL", str(STANDIN / "all_reduce_perf"), *SIZES]
            fabbench = [sys.executable, "-m", "fabbench", "run", "nccl", "--on", "ssh", "--no-efa", *SIZES]
            fabbench += [word for host in names for word in ("--host", host)]
            fabbench += ["--gpus", "1", "--bin-dir", str(STANDIN), "--store", str(STORE)]
            took: dict[str, list[float]] = {"mpirun over ssh": [], "fabbench run": []}
            load = os.getloadavg()[0]
            for _ in range(times):
                took["mpirun over ssh"].append(_seconds(lab, ["ssh", names[0], shlex.join(bare)]))
                took["fabbench run"].append(_seconds(lab, fabbench))
            outcomes = {log.outcome for path in runs(lab.path(STORE)) for log in StoredRun(path).logs("tcp")}
    expected = f"load {load:.1f}, outcomes {', '.join(outcomes)}"
    print(f"run across 2 hosts, {times} runs each ({expected}): least, median")
    for what, seconds in took.items():
        print(f"  {what:<22} {min(seconds):6.2f} s {median(seconds):6.2f} s")
    least = min(took["fabbench run"]) - min(took["mpirun over ssh"])
    usual = median(took["fabbench run"]) - median(took["mpirun over ssh"])
    print(f"  {'more by':<22} {least:6.2f} s {usual:6.2f} s")


def _seconds(lab: Lab, argv: list[str]) -> float:
    begin = time.perf_counter()
    done = lab.run(argv, timeout=600)
    took = time.perf_counter() - begin
    if done.returncode:
        raise SystemExit(f"{argv[:6]} ended with {done.returncode}: {done.stderr}")
    return took


if __name__ == "__main__":
    overhead(int(sys.argv[1]))
