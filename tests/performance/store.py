"""A store of many runs, and how long lists, histories and baselines of it take.

``python -m tests.performance.store FOLDER COUNT`` writes one. Each run has two configurations of one
execution and 29 sizes, which vary by 2 % from run to run. In the last quarter of the runs the first
configuration is 10 % slower, with another NCCL.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.model.hosts import Host, Inventory
from fabbench.model.log import Ending
from fabbench.model.plan import Configuration, Plan
from fabbench.runs.store import RunWriter, runs
from tests.support.nccl_text import EFA, SIZES, nccl_text
from tests.support.requests import execution_by_hand, request

CONFIGURATIONS = ("socket", "tcp")
SLOWER = 0.9
"""In the last quarter."""
NCCL = ("2.26.2", "2.27.5")
_TRANSPORT = """\
node0:100:100 [0] NCCL INFO NCCL version {nccl}+cuda12.8
node0:100:100 [0] NCCL INFO Using network Socket
node0:100:100 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/Socket/0
"""


def write_store(store: Path, count: int, *, seed: int = 1, target: str = "prod") -> None:
    """Write `count` runs, the oldest first: one each day, as `RunWriter` leaves them."""
    chance = random.Random(seed)
    store.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fabbench-store-") as name:
        template = _template(Path(name), target)
        for number in range(count):
            _copy(template, store, number, chance, late=number >= count * 3 // 4)


ASKED = {
    "runs": ("runs",),
    "runs -n 20": ("runs", "-n", "20"),
    "history busbw@1G": ("history", "busbw@1G"),
    "history busbw": ("history", "busbw"),
    "compare last --baseline last-good": ("compare", "last", "--baseline", "last-good"),
}


def store_of(count: int, times: int, pages: int) -> None:
    """Measure what is asked of a store of `count` runs, in turns, and the page of some of them."""
    with tempfile.TemporaryDirectory(prefix="fabbench-bench-") as name:
        store = Path(name, "store")
        write_store(store, count)
        made = _took(store, "runs", "--json")
        print(f"store of {count} runs (load {os.getloadavg()[0]:.1f}): summaries made in {made[0]:.1f} s")
        for what, words in ASKED.items():
            took = [_took(store, *words) for _ in range(times)]
            wall, cpu = (min(each) for each in zip(*took, strict=True))
            print(f"  {what:<34} {wall:6.2f} s, of CPU {cpu:6.2f} s, least of {times}")
        page = Path(name, "report.html")
        refs = [path.name.rpartition("-")[2] for _, path in zip(range(pages), runs(store), strict=False)]
        wall, cpu = _took(store, "report", *refs, "-o", str(page))
        size = page.stat().st_size / 1e6
        print(f"  report of {pages} runs ({size:.1f} MB): {wall:.2f} s, of CPU {cpu:.2f} s")


def _took(store: Path, *words: str) -> tuple[float, float]:
    """Return wall and CPU seconds of a command, with those of its own processes."""
    begin = time.perf_counter()
    argv = (sys.executable, "-m", "fabbench", *words, "--store", str(store))
    process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv} ended with {process.returncode}")
    return time.perf_counter() - begin, usage.ru_utime + usage.ru_stime


def _template(store: Path, target: str) -> Path:
    made = tuple(Configuration(label=label, fabric="tcp") for label in CONFIGURATIONS)
    executions = tuple(execution_by_hand(each, number, sizes=tuple(SIZES)) for number, each in enumerate(made))
    hosts = tuple(Host(name=f"node{number}", instance_type="p4d.24xlarge") for number in range(2))
    writer = RunWriter(
        request("nccl", PingpongWork(sizes=tuple(SIZES)), store=store, target="local"),
        Inventory(target=target, hosts=hosts, image="registry.example/nccl:1"),
        Plan(benchmark="nccl", target=target, configurations=made, executions=executions),
    )
    for execution in executions:
        with writer.execution(execution) as stored:
            stored.finish(Ending(status=0, planned_sizes=tuple(SIZES)))
    (path,) = runs(store)
    document = json.loads((path / "request.json").read_text("utf-8"))
    document["request"]["target"] = target
    (path / "request.json").write_text(json.dumps(document), "utf-8")
    return path


def _copy(template: Path, store: Path, number: int, chance: random.Random, *, late: bool) -> None:
    """Write one run: the template with another id, day and log."""
    when = time.gmtime(900_000_000 + number * 86_400)
    own = f"{chance.getrandbits(24):06x}"
    folder = store / f"{time.strftime('%Y%m%dT%H%M%SZ', when)}-nccl-{own}"
    document = json.loads((template / "request.json").read_text("utf-8"))
    document.update(id=own, created=time.strftime("%Y-%m-%dT%H:%M:%SZ", when))
    (folder / "counters").mkdir(parents=True)
    (folder / "request.json").write_text(json.dumps(document), "utf-8")
    for execution in sorted((template / "exec").iterdir()):
        inside = folder / "exec" / execution.name
        shutil.copytree(execution, inside)
        factor = chance.gauss(1, 0.02) * (SLOWER if late and "socket" in execution.name else 1)
        rows = ((size, round(value * factor, 2)) for size, value in zip(SIZES, EFA, strict=True))
        (inside / "output.log").write_text(_TRANSPORT.format(nccl=NCCL[late]) + nccl_text(rows), "utf-8")
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (900_000_000 + number * 86_400,) * 2)


if __name__ == "__main__":
    write_store(Path(sys.argv[1]), int(sys.argv[2]))
