"""A store of many runs.

``python -m tests.performance.store FOLDER COUNT`` writes one. Each run has two configurations of
one execution and 29 sizes, which vary by 2 % from run to run. In the last quarter of the runs the
first configuration is 10 % slower, with another NCCL.
"""

import json
import os
import random
import shutil
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
""" + "".join(
    f"node{rank // 8}:{100 + rank}:1 [0] NCCL INFO Using network Socket\n" for rank in range(1, 16)
)


def write_store(store: Path, count: int, *, seed: int = 1, target: str = "prod") -> None:
    """Write `count` runs, the oldest first: one each day, as `RunWriter` leaves them."""
    chance = random.Random(seed)
    store.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fabbench-store-") as name:
        template = _template(Path(name), target)
        for number in range(count):
            _copy(template, store, number, chance, late=number >= count * 3 // 4)


def _template(store: Path, target: str) -> Path:
    made = tuple(Configuration(label=label, fabric="tcp") for label in CONFIGURATIONS)
    executions = tuple(
        execution_by_hand(each, number, sizes=tuple(SIZES)) for number, each in enumerate(made)
    )
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
        (inside / "output.log").write_text(
            _TRANSPORT.format(nccl=NCCL[late]) + nccl_text(rows), "utf-8"
        )
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (900_000_000 + number * 86_400,) * 2)


if __name__ == "__main__":
    write_store(Path(sys.argv[1]), int(sys.argv[2]))
