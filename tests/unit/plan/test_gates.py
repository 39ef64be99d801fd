"""Gates that cannot hold are refused with the plan; those that can are not. Nothing is started."""

from typing import Any

import pytest

from fabbench.benchmarks import benchmark_named
from fabbench.benchmarks.fabtests.plan import FabtestsWork
from fabbench.benchmarks.nccl.plan import NcclWork
from fabbench.benchmarks.nvshmem.plan import NvshmemWork
from fabbench.benchmarks.osu.plan import OsuWork
from fabbench.benchmarks.perftest.plan import PerftestWork
from fabbench.benchmarks.pingpong.plan import PingpongWork
from fabbench.benchmarks.torch.plan import TorchWork
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Host
from fabbench.model.log import Log
from fabbench.plan.build import require_measurable
from fabbench.plan.gates import limit_example, parse_gate, parse_gates
from fabbench.runs.inputs import expand, read_source
from tests.support.paths import LOGS
from tests.support.requests import request

A, B = Host(name="a", gpus=8), Host(name="b", gpus=8)
ALONE = Host(name="a", gpus=3)


@pytest.mark.parametrize(
    ("benchmark", "work", "gate", "measures"),
    [
        (
            "pingpong",
            PingpongWork(),
            "busbw@64>=1GB/s",
            "pingpong measures latency, bandwidth, message_rate",
        ),
        ("pingpong", PingpongWork(sizes=(64,)), "latency@128<=1ms", "pingpong measures 64 B"),
        (
            "pingpong",
            PingpongWork(),
            "latency@65..1000<=1ms",
            "measures 64 B, 1 KB, 16 KB, 256 KB, 4 MB",
        ),
        ("pingpong", PingpongWork(sizes=(64,)), "ratio@1K>=10", "pingpong measures 64 B"),
        ("nccl", NcclWork(), "latency@64:20us", r"nccl \(all_reduce\) measures busbw, algbw, time"),
        (
            "nccl",
            NcclWork(),
            "bandwidth@1M>=3GB/s",
            r"nccl \(all_reduce\) measures busbw, algbw, time",
        ),
        ("nccl", NcclWork(), "busbw@3M>=3GB/s", "measures 29 sizes from 8 B to 2 GB"),
        (
            "nccl",
            NcclWork(max_bytes=1 << 20),
            "busbw@2M..1G>=3GB/s",
            "measures 18 sizes from 8 B to 1 MB",
        ),
        (
            "nccl",
            NcclWork(collectives=("all_gather",), max_bytes=512),
            "busbw@100>=1GB/s",
            "measures 64 B,",
        ),
        (
            "perftest",
            PerftestWork(),
            "latency<=20us",
            r"perftest \(ib_write_bw\) measures bandwidth",
        ),
        ("perftest", PerftestWork(test="ib_read_lat"), "latency@64<=20us", "measures 2 B"),
        (
            "osu",
            OsuWork(tests=("osu_bw",)),
            "latency<=20us",
            r"osu \(osu_bw\) measures bandwidth, message_",
        ),
        ("osu", OsuWork(tests=("osu_bw", "osu_bibw")), "bandwidth@100>=1GB/s", "measures 23 sizes"),
        ("torch", TorchWork(), "time<=1s", "torch measures busbw, algbw"),
        ("torch", TorchWork(), "busbw@1G>=1GB/s", r"torch measures 4 GB \(4e9 B\)"),
        (
            "fabtests",
            FabtestsWork(),
            "bandwidth@4K>=1GB/s",
            r"fabtests \(fi_rma_bw\) measures 1 MB",
        ),
        ("nvshmem", NvshmemWork(), "time<=1ms", r"nvshmem \(shmem_put_bw\) measures busbw"),
    ],
)
def test_a_gate_that_can_match_no_data_is_refused(
    benchmark: str, work: Any, gate: str, measures: str
) -> None:
    with pytest.raises(RequestError, match=f"The gate .* would compare nothing: .*{measures}"):
        require_measurable(request(benchmark, work, gates=(gate,)), (A, B))


@pytest.mark.parametrize(
    ("benchmark", "work", "gate", "hosts"),
    [
        ("nccl", NcclWork(), "busbw@1G>=70GB/s", (A, B)),
        ("nccl", NcclWork(), "ratio@1G>=10", (A, B)),
        ("torch", TorchWork(), "busbw@4e9>=1GB/s", (A, B)),
        ("nccl", NcclWork(), "wrong<=0", (A, B)),
        # 48 B of 64 since nccl-tests 2.13.12, before that 60: what the program does is not known.
        ("nccl", NcclWork(collectives=("all_gather",)), "busbw@48>=1GB/s", (ALONE,)),
        ("nccl", NcclWork(collectives=("all_gather",)), "busbw@60>=1GB/s", (ALONE,)),
        ("nccl", NcclWork(collectives=("all_gather", "all_reduce")), "busbw@64>=1GB/s", (ALONE,)),
        ("nccl", NcclWork(collectives=("all_gather",)), "busbw@64>=1GB/s", ()),
        ("nccl", NcclWork(collectives=("all_reduce", "alltoallv")), "busbw@3M>=3GB/s", (A, B)),
        ("osu", OsuWork(tests=("osu_bw", "osu_latency")), "latency@64<=20us", (A, B)),
        ("osu", OsuWork(tests=("osu_allreduce",)), "time@100<=20us", (A, B)),
        ("nvshmem", NvshmemWork(tests=("alltoall_latency",)), "busbw@100>=1GB/s", (A, B)),
        ("fabtests", FabtestsWork(one_by_one=True, all_sizes=True), "bandwidth@4K>=1GB/s", (A, B)),
        ("pingpong", PingpongWork(sizes=(64,)), "latency@128<=1ms", ()),
    ],
)
def test_what_is_not_known_is_not_refused(
    benchmark: str, work: Any, gate: str, hosts: tuple[Host, ...]
) -> None:
    (parsed,) = require_measurable(request(benchmark, work, gates=(gate,)), hosts)
    assert parsed.text == gate


def test_the_metric_to_compare_is_checked_too() -> None:
    with pytest.raises(
        RequestError, match=r"--metric latency .* nccl \(all_reduce\) measures busbw"
    ):
        require_measurable(request("nccl", NcclWork(), metric="latency"))
    assert require_measurable(request("nccl", NcclWork(), metric="time")) == ()


def test_recorded_logs_have_no_metric_that_would_be_refused() -> None:
    """Neither of their case nor in the help of `--gate`."""
    entries = (entry for source in expand([str(LOGS)]) for _, entry in read_source(source))
    logs = [log for log in entries if isinstance(log, Log) and log.benchmark]
    for log in logs:
        benchmark = benchmark_named(log.benchmark)
        measured = {
            name for point in log.points if "stat" not in point.labels for name in point.metrics
        }
        assert measured <= {*benchmark.metrics_of(log.case or "")}, log.source
        assert measured <= {*benchmark.default_metrics}, log.source
    assert {log.benchmark for log in logs} >= {"nccl", "nvshmem", "pingpong", "torch"}


@pytest.mark.parametrize("metric", ["busbw", "latency", "message_rate", "wrong"])
def test_examples_are_gates(metric: str) -> None:
    assert parse_gate(limit_example(metric)).metric.name == metric


@pytest.mark.parametrize(
    ("text", "baseline", "ceiling"),
    [
        ("busbw:5%", True, False),
        ("busbw:5GB/s", True, False),
        ("ratio>=10", True, False),
        ("busbw>=70GB/s", False, False),
        ("busbw>=80%ceiling", False, True),
    ],
)
def test_a_tolerance_and_a_ratio_need_a_baseline_and_a_share_needs_the_ceiling(
    text: str, baseline: bool, ceiling: bool
) -> None:
    gate = parse_gate(text)
    assert (gate.needs_baseline, gate.needs_ceiling) == (baseline, ceiling)


def test_strict_without_a_gate_is_refused_and_nothing_else_is() -> None:
    assert parse_gates(()) == ()
    assert [gate.text for gate in parse_gates(("busbw:5%",), strict=True)] == ["busbw:5%"]
    with pytest.raises(RequestError, match="--gate"):
        parse_gates((), strict=True)
