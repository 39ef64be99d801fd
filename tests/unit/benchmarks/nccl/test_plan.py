"""What of nccl-tests' plans no plan shows (others: test_plans.py).

Sizes as real programs print them, and NICs.
"""

import re

import pytest

from fabbench.benchmarks.nccl import BENCHMARK
from fabbench.benchmarks.nccl.plan import NcclWork
from fabbench.logs.parser import LogParser, logs
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import AB
from fabbench.model.hosts import Host
from fabbench.model.units import parse_size
from tests.support.paths import LOGS


def test_nics_that_are_tested_one_by_one() -> None:
    host = Host(name="a", gpus=8, devices={"mlx5_0": "ib", "mlx5_1": "ib"})
    assert BENCHMARK.nics(NcclWork(), "ib", host) == ("mlx5_0", "mlx5_1")
    assert BENCHMARK.nics(NcclWork(), "tcp", host) == ()
    assert BENCHMARK.on_nic(NcclWork(), "mlx5_1") == NcclWork(devices=("mlx5_1",))
    with pytest.raises(RequestError, match="--nics"):
        BENCHMARK.nics(NcclWork(nics=2), "ib", host)


@pytest.mark.parametrize(
    "text",
    [
        "allreduce-1proc-g4",
        "allreduce-2node-socket",
        "alltoall-mpi",
        "opt-c0",
        "opt-dall",
        "x-net-socket",
    ],
)
def test_the_planned_sizes_are_those_that_real_programs_print(text: str) -> None:
    source = (LOGS / f"nccl/{text}.txt").read_text()
    options = dict(re.findall(r" (-[befid]) (\w+)", source.splitlines()[0]))
    session = LogParser(text)
    found = session.feed_lines(source.splitlines()) + session.close()
    (log,) = logs(found)
    ranks = log.facts["ranks"]
    assert isinstance(ranks, int)
    work = NcclWork(
        collectives=(str(log.case),),
        min_bytes=parse_size(options.get("-b", "32M")),
        max_bytes=parse_size(options["-e"]),
        factor=int(options.get("-f", "1")),
        step_bytes=0 if "-f" in options else parse_size(options.get("-i", "1M")),
        dtype=options.get("-d", "float"),
    )
    hosts, printed = (Host(name="a", gpus=ranks),), {point.size for point in log.points}
    assert set(work.planned_sizes(hosts)) == printed <= {*work.possible_sizes(hosts)}


def test_sizes_that_sockets_may_never_finish_are_pointed_out() -> None:
    large = NcclWork(max_bytes=8 << 30)
    assert [bool(BENCHMARK.advice(large, [fabric])) for fabric in ("tcp", AB, "p2p")] == [
        True,
        True,
        False,
    ]
