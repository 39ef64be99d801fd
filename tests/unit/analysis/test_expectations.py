"""Every published figure, entered as a log, gets the verdict that one would give by hand."""

from collections.abc import Mapping, Sequence
from functools import partial

import pytest

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import compare
from fabbench.analysis.expectations import Assessment, Expectation, expectations
from fabbench.analysis.headline import headline
from fabbench.catalog.expectations import Published, Role, published
from fabbench.catalog.systems import System, require_system, rows_of, system, system_of_gpus
from fabbench.model.errors import RequestError
from fabbench.model.log import Facts, Log, Proof
from fabbench.model.units import parse_size
from fabbench.report.expectations import sentences
from tests.support.logs_by_hand import GB, MB, log
from tests.support.nccl_text import nccl_text
from tests.support.paths import DATA
from tests.support.read_logs import read_one

TRANSPORTS = {
    "efa": "efa",
    "tcp": "socket",
    "ib": "ib",
    "roce": "ib",
    "nvlink": "p2p",
    "nvls": "p2p",
    "": "unknown",
}


def p4d(
    busbw: float,
    *,
    nodes: int = 2,
    size: int = 2 * GB,
    nics: int = 4,
    transport: str = "efa",
    **facts: str | int,
) -> Log:
    """Write a log of p4d.24xlarge."""
    facts = {"nodes": nodes, "ranks": 8 * nodes, "transport": transport, "nics": nics, **facts}
    return log([(size, busbw * 1e9)], facts={"instance_type": "p4d.24xlarge", **facts})


def judged(*logs: Log) -> Sequence[Expectation]:
    """Return what is expected of logs, one column each."""
    return expectations(
        compare([Column(label=f"{n}", logs=(each,), source="x") for n, each in enumerate(logs)])
    )


def one(entered: Log) -> Expectation:
    """Return what is expected of one log."""
    (found,) = judged(entered)
    return found


def entered(figure: Published, kind: System) -> Log:
    """Enter a published figure as a log."""
    if figure.metric == "busbw" and figure.nodes and figure.benchmark == "nccl" and not figure.nics:
        rows = [(figure.size or 4 * GB, figure.value / 1e9)]
        nodes, ranks = figure.nodes, figure.nodes * kind.gpus
        proof = Proof(instance_type=kind.name, nodes=nodes)
        read = read_one(
            nccl_text(rows, ranks=ranks, hosts=nodes, case=figure.case).splitlines(), proof
        )
        transport = TRANSPORTS[figure.fabric]
        return log(
            [(size, figure.value) for size, _ in rows],
            facts={
                **read.facts,
                "instance_type": kind.name,
                "transport": transport,
                **link(figure),
            },
            case=read.case,
        )
    nodes = figure.nodes or 2
    pairs = {"pingpong": "efa", "perftest": "SRD", "osu": "efa"}
    transport = pairs.get(figure.benchmark, TRANSPORTS[figure.fabric])
    facts: dict[str, str | int] = {
        "instance_type": kind.name,
        "transport": transport,
        "hosts": nodes,
    }
    if kind.gpus:
        facts["ranks"] = nodes * kind.gpus
    if figure.nics:
        facts["nics"] = figure.nics
    case = figure.case.removesuffix("-b").strip()
    unsized = figure.benchmark in {"perftest", "fabtests"} and not case
    return log(
        [
            (
                figure.size or (0 if unsized else 4 * GB if figure.metric == "busbw" else 4 * MB),
                figure.value,
            )
        ],
        metric=figure.metric,
        labels={"direction": "bi"}
        if figure.case.endswith("-b")
        else {"direction": "uni"}
        if case
        else {},
        facts=facts,
        benchmark=figure.benchmark,
        case=case,
    )


def link(figure: Published) -> dict[str, str]:
    """Return the link of RoCE."""
    return {"link": "RoCE"} if figure.fabric == "roce" else {}


def by_hand(figure: Published) -> Assessment:
    """Give the verdict by hand."""
    above = {
        ("p4d.24xlarge", 300e9),
        ("p5.48xlarge", 800e9),
        ("p6-b200.48xlarge", 900e9),
        ("hpc8a.96xlarge", 42.9e9),
    }
    if (figure.system, round(figure.value)) in above or figure.role is Role.ARTIFACT:
        return Assessment.ABOVE
    if (figure.system, figure.case) in {
        ("a4-highgpu-8g", "all_gather"),
        ("a4x-highgpu-4g", "all_gather"),
    }:
        return Assessment.UNKNOWN  # a threshold, and nobody's measurement
    low = {
        *(
            ("h200-ib", 431e9),
            ("p4d.24xlarge", 26e9),
            ("a3-megagpu-8g", 150e9),
            ("a3-ultragpu-8g", 250e9),
        )
    }
    if (figure.system, round(figure.value)) in low or figure.role in {
        Role.SUPERSEDED,
        Role.MISTUNED,
    }:
        return Assessment.LOW
    return Assessment.NORMAL


ENTERED = [figure for figure in published() if figure.system and figure.metric != "time"]


@pytest.mark.parametrize(
    "figure", ENTERED, ids=lambda each: f"{each.system}-{each.nodes}-{each.case}-{each.value:g}"
)
def test_every_published_figure_gets_the_verdict_of_a_careful_reader(figure: Published) -> None:
    assert one(entered(figure, require_system(figure.system))).assessment is by_hand(figure)


def test_figures_have_a_source_a_date_and_known_systems() -> None:
    assert len(published()) > 100
    for figure in published():
        assert figure.source
        assert figure.date
        assert figure.value > 0
        assert not figure.system or system(figure.system)
    with pytest.raises(RequestError, match="no instance type p4d"):
        require_system("p4d.24xlrage")


def stated(row: Mapping[str, str]) -> Log:
    """Return the log of a row of expectations.csv."""
    if row["log"]:
        lines = (DATA / "corpus" / row["log"]).read_text("utf-8").splitlines()
        return read_one(lines, Proof(instance_type=row["system"]))
    benchmark, case, nodes = row["benchmark"] or "nccl", row["case"], int(row["nodes"] or 0)
    gpus = require_system(row["system"]).gpus or 8
    facts = {"instance_type": row["system"], "transport": row["transport"] or "unknown"}
    counts = {"nodes": nodes, "ranks": nodes * gpus} if nodes else {}
    rate = "busbw" if benchmark in {"nccl", "nvshmem"} else "bandwidth"
    metric = "latency" if case in {"pingpong", "osu_latency"} else rate
    rows = [
        (parse_size(size), float(value))
        for size, value in (each.split("=") for each in row["rows"].split())
    ]
    return log(
        [(size, value * (1e-6 if metric == "latency" else 1e9)) for size, value in rows],
        metric=metric,
        labels={"direction": row["direction"]} if row["direction"] else {},
        facts={**facts, **counts},
        benchmark=benchmark,
        case=case or (None if benchmark == "perftest" else "all_reduce"),
    )


@pytest.mark.parametrize(
    "row", [*rows_of("expectations.csv", "tests.data")], ids=lambda row: ",".join(row.values())
)
def test_what_is_expected_of_a_figure(row: Mapping[str, str]) -> None:
    found = one(stated(row))
    unit = 1e-6 if found.metric.lower_is_better else 1e9
    shown = {
        "ceiling": found.ceiling,
        **dict(zip(("low", "high"), found.range or (0.0, 0.0), strict=True)),
    }
    for name, value in shown.items():
        if row[name]:
            assert (value or 0.0) / unit == pytest.approx(float(row[name]), rel=0.002)
    assert row["verdict"] in {"", found.assessment}
    assert row["says"] in found.sentence()


def test_the_published_table_is_normal_over_efa_and_explained_over_tcp() -> None:
    efa, tcp = judged(p4d(77.35), p4d(4.13, transport="socket"))
    assert efa.sentence() == (
        "normal: 77.35 GB/s at 2 GB, 83 % of the ceiling of the NICs (93.75 GB/s). "
        "Published for 2 x p4d.24xlarge, efa: 77.35 to 77.9 GB/s. "
        "Between 2 nodes busbw may exceed the rate of the NICs (50 GB/s)."
    )
    assert tcp.assessment is Assessment.NORMAL
    assert tcp.range == pytest.approx((4.13e9, 8.2e9))
    unknown = one(p4d(4.13, transport="unknown"))
    assert unknown.assessment is Assessment.LOW
    assert unknown.causes[0].startswith("TCP, which gave 4.13 to 8.2 GB/s")


def test_causes_are_those_that_the_log_does_not_exclude() -> None:
    assert one(p4d(40, gdr="no")).causes[0] == "GPUDirect RDMA was not used"
    assert "fewer than 4 NICs" not in one(p4d(40)).causes
    assert one(p4d(10, nics=1)).causes[0] == "1 of 4 NICs were used"
    facts: Facts = {"instance_type": "p4d.24xlarge", "nodes": 2, "ranks": 16, "transport": "efa"}
    assert one(log([(2 * GB, 40e9)], facts=facts)).causes[:2] == (
        "fewer than 4 NICs",
        "no GPUDirect RDMA",
    )


def test_one_nic_has_its_own_ceiling_and_its_own_published_figure() -> None:
    found = one(p4d(20.31, nics=1))
    assert found.assessment is Assessment.NORMAL
    assert found.ceiling == pytest.approx(23.44e9, rel=1e-3)


def test_without_nodes_it_says_what_to_pass_and_without_a_type_nothing() -> None:
    facts = {"instance_type": "p4d.24xlarge", "transport": "efa"}
    assert "pass --nodes" in one(log([(2 * GB, 40e9)], facts=facts)).sentence()
    assert judged(log([(2 * GB, 40e9)])) == ()


@pytest.mark.parametrize(
    ("gpu_model", "gpus", "name"),
    [
        ("NVIDIA H200", 2, "2xH200"),
        ("NVIDIA H100 80GB HBM3", 8, "8xH100"),
        ("NVIDIA A100-SXM4-80GB", 8, "8xA100"),
        ("AMD Instinct MI300X", 8, "8xMI300X"),
        ("NVIDIA GB10", 1, "dgx-spark"),
        ("NVIDIA H100 PCIe", 8, ""),
        ("NVIDIA GeForce RTX 4090", 8, ""),
        ("", 8, ""),
        ("NVIDIA H200", 0, ""),
    ],
)
def test_a_node_without_a_name_is_known_by_its_gpus(gpu_model: str, gpus: int, name: str) -> None:
    assert system_of_gpus(gpu_model, gpus) == name
    if name:
        assert require_system(name).gpus == gpus


def inside(busbw: float, kind: str, **facts: str | int) -> Expectation:
    gpus = require_system(kind).gpus
    stated = {"instance_type": kind, "nodes": 1, "ranks": gpus, "transport": "p2p", **facts}
    return one(log([(8 * GB, busbw * 1e9)], facts=stated))


@pytest.mark.parametrize(
    ("busbw", "kind", "nvls", "assessment"),
    [
        (479, "8xH100", "yes", Assessment.NORMAL),
        (479, "8xH200", "yes", Assessment.NORMAL),
        (370, "8xH100", "yes", Assessment.LOW),
        (370, "8xH100", "no", Assessment.NORMAL),
        (370, "p5.48xlarge", "no", Assessment.NORMAL),
        (250, "8xH100", "no", Assessment.LOW),
        (840, "8xB200", "yes", Assessment.NORMAL),
        (690, "8xB300", "no", Assessment.NORMAL),
        (231, "8xA100", "no", Assessment.NORMAL),
        (470, "8xH100", "no", Assessment.ABOVE),
        (300, "4xH100", "no", Assessment.UNKNOWN),
    ],
)
def test_inside_a_node_its_gpus_and_their_switches_matter(
    busbw: float, kind: str, nvls: str, assessment: Assessment
) -> None:
    assert inside(busbw, kind, nvls=nvls).assessment is assessment


def test_without_a_published_figure_the_share_of_the_link_is_said() -> None:
    found = inside(300.5, "2xH200", nvls="no")
    assert found.sentence().startswith("no published figure for 1 x 2xH200, nvlink: 300.5 GB/s")
    assert "67 % of the ceiling of NVLink (450 GB/s)" in found.sentence()
    assert "of xGMI (448 GB/s)" in inside(300, "8xMI300X").sentence()


def test_a_low_rate_inside_a_node_has_causes_inside_it() -> None:
    causes = inside(200, "8xH100", nvls="no").causes
    assert causes
    assert not [cause for cause in causes if "TCP" in cause or "GPUDirect" in cause]


def test_a_pair_of_small_systems_is_judged() -> None:
    facts: Facts = {
        "instance_type": "dgx-spark",
        "nodes": 2,
        "ranks": 2,
        "transport": "ib",
        "link": "RoCE",
    }
    gather = partial(log, facts=facts, case="all_gather")
    assert one(gather([(16 * GB, 23e9)])).assessment is Assessment.NORMAL
    assert one(gather([(16 * GB, 1.5e9)])).assessment is Assessment.LOW


SPARK = """\
# nccl-tests version 2.17.6 nccl-headers=22803 nccl-library=22803
# Collective test starting: all_gather_perf
# nThread 1 nGpus 1 minBytes 17179869184 maxBytes 17179869184 step: 2(factor) warmup iters: 1 \
iters: 20 agg iters: 1 validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid 1935208 on      spark device  0 [000f:01:00] NVIDIA GB10
#  Rank  1 Group  0 Pid 1278829 on spark-3995 device  0 [000f:01:00] NVIDIA GB10
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
 17179869184    2147483648     float    none      -1  {figures}       0  {figures}       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : {busbw}
#
# Collective test concluded: all_gather_perf
"""  # noqa: E501 - NVIDIA/dgx-spark-playbooks issue 25


@pytest.mark.parametrize(
    ("figures", "assessment"),
    [
        (" 453650   37.87   18.94", Assessment.NORMAL),
        ("5726623    3.00    1.50", Assessment.LOW),
    ],
)
def test_a_log_of_a_pair_of_dgx_spark_has_a_sentence(figures: str, assessment: Assessment) -> None:
    """It names no network and no type: its GPUs name the system."""
    text = SPARK.format(figures=figures, busbw=figures.rsplit(maxsplit=1)[-1])
    found = one(read_one(text.splitlines()))
    assert found.assessment is assessment
    assert "2 x dgx-spark" in found.sentence()


def test_what_all_columns_share_is_said_once() -> None:
    """p4d.24xlarge is assumed for two of the three; the figure of the last is low."""
    normal = [p4d(busbw, instance_type="", assumed_type="p4d.24xlarge") for busbw in (77, 80)]
    alike = compare(
        [Column(label=f"{n}", logs=(each,), source="x") for n, each in enumerate(normal)]
    )
    assert "; all normal, p4d.24xlarge assumed" in headline(alike, 0)
    assert headline(alike, 0).count("assumed") == 1
    *_, lagging = judged(*normal, p4d(30))
    assert [each.partition(". ")[0] for each in sentences([*judged(*normal), lagging])] == [
        "0, 1: normal: 77 to 80 GB/s at 2 GB, 82 to 85 % of the ceiling of the NICs (93.75 GB/s)",
        "2: low: 30 GB/s at 2 GB, 32 % of the ceiling of the NICs (93.75 GB/s)",
    ]
