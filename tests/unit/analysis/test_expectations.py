"""Every published figure, entered as a log, gets the verdict that one would give by hand."""

from collections.abc import Sequence

import pytest

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import compare
from fabbench.analysis.expectations import Assessment, Expectation, expectations
from fabbench.catalog.expectations import Published, Role, System, published, require_system, systems
from fabbench.model.errors import RequestError
from fabbench.model.log import Facts, Log, Proof
from tests.support.logs_by_hand import GB, KB, MB, log
from tests.support.nccl_text import nccl_text
from tests.support.read_logs import read_one

TRANSPORTS = {"efa": "efa", "tcp": "socket", "ib": "ib", "roce": "ib", "nvlink": "p2p", "": "unknown"}


def p4d(
    busbw: float, *, nodes: int = 2, size: int = 2 * GB, nics: int = 4, transport: str = "efa", **facts: str | int
) -> Log:
    """Write a log of p4d.24xlarge."""
    facts = {"nodes": nodes, "ranks": 8 * nodes, "transport": transport, "nics": nics, **facts}
    return log([(size, busbw * 1e9)], facts={"instance_type": "p4d.24xlarge", **facts})


def judged(*logs: Log) -> Sequence[Expectation]:
    """Return what is expected of logs, one column each."""
    return expectations(compare([Column(label=f"{n}", logs=(each,), source="x") for n, each in enumerate(logs)]))


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
        read = read_one(nccl_text(rows, ranks=ranks, hosts=nodes, case=figure.case).splitlines(), proof)
        transport = TRANSPORTS[figure.fabric]
        return log(
            [(size, figure.value) for size, _ in rows],
            facts={**read.facts, "instance_type": kind.name, "transport": transport, **link(figure)},
            case=read.case,
        )
    nodes = figure.nodes or 2
    pairs = {"pingpong": "efa", "perftest": "SRD", "osu": "efa"}
    transport = pairs.get(figure.benchmark, TRANSPORTS[figure.fabric])
    facts: dict[str, str | int] = {"instance_type": kind.name, "transport": transport, "hosts": nodes}
    if kind.gpus:
        facts["ranks"] = nodes * kind.gpus
    if figure.nics:
        facts["nics"] = figure.nics
    return log(
        [(figure.size or 4 * MB if figure.metric != "busbw" else figure.size or 4 * GB, figure.value)],
        metric=figure.metric,
        labels={},
        facts=facts,
        benchmark=figure.benchmark,
        case=figure.case,
    )


def link(figure: Published) -> dict[str, str]:
    """Return the link of RoCE."""
    return {"link": "RoCE"} if figure.fabric == "roce" else {}


def by_hand(figure: Published) -> Assessment:
    """Give the verdict by hand."""
    above = {("p4d.24xlarge", 300e9), ("p5.48xlarge", 800e9), ("p6-b200.48xlarge", 900e9), ("hpc8a.96xlarge", 42.9e9)}
    if (figure.system, round(figure.value)) in above or figure.role is Role.ARTIFACT:
        return Assessment.ABOVE
    if (figure.system, figure.nodes) in {("h100-ib", 1), ("h200-ib", 1)}:
        return Assessment.UNKNOWN  # a threshold of one cloud's own nodes, and nobody's measurement
    low = {*(("p4d.24xlarge", 26e9), ("a3-megagpu-8g", 150e9), ("a3-ultragpu-8g", 250e9))}
    if (figure.system, round(figure.value)) in low or figure.role in {Role.SUPERSEDED, Role.MISTUNED}:
        return Assessment.LOW
    return Assessment.NORMAL


ENTERED = [figure for figure in published() if figure.system and figure.metric != "time"]


@pytest.mark.parametrize("figure", ENTERED, ids=lambda each: f"{each.system}-{each.nodes}-{each.case}-{each.value:g}")
def test_every_published_figure_gets_the_verdict_of_a_careful_reader(figure: Published) -> None:
    assert one(entered(figure, systems()[figure.system])).assessment is by_hand(figure)


def test_figures_have_a_source_a_date_and_known_systems() -> None:
    assert len(published()) > 100
    for figure in published():
        assert figure.source
        assert figure.date
        assert figure.value > 0
        assert figure.system in {"", *systems()}
    with pytest.raises(RequestError, match="no instance type p4d"):
        require_system("p4d.24xlrage")


@pytest.mark.parametrize(
    ("kind", "case", "nodes", "ceiling"),
    [
        ("p4d.24xlarge", "all_reduce", 2, 93.75),
        ("p4d.24xlarge", "all_reduce", 4, 64.58),
        ("p5.48xlarge", "all_reduce", 2, 750),
        ("p5.48xlarge", "alltoall", 4, 64.58),
        ("p6-b300.48xlarge", "alltoall", 2, 187.5),
        ("p6e-gb200.36xlarge", "all_reduce", 16, 210),
        ("g5.48xlarge", "alltoall", 16, 1.654),
        ("p5.48xlarge", "sendrecv", 4, 50),
        ("p4d.24xlarge", "sendrecv", 4, 12.5),
        ("p5.48xlarge", "broadcast", 4, 400),
    ],
)
def test_ceilings_are_those_of_the_nics(kind: str, case: str, nodes: int, ceiling: float) -> None:
    gpus = require_system(kind).gpus
    facts: Facts = {"instance_type": kind, "nodes": nodes, "ranks": nodes * gpus, "transport": "efa"}
    found = one(log([(GB, 1e9)], facts=facts, case=case)).ceiling
    assert found == pytest.approx(ceiling * 1e9, rel=0.002)


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
    assert one(log([(2 * GB, 40e9)], facts=facts)).causes[:2] == ("fewer than 4 NICs", "no GPUDirect RDMA")


def test_one_nic_has_its_own_ceiling_and_its_own_published_figure() -> None:
    found = one(p4d(20.31, nics=1))
    assert found.assessment is Assessment.NORMAL
    assert found.ceiling == pytest.approx(23.44e9, rel=1e-3)


def test_a_sweep_that_ends_early_is_not_called_low() -> None:
    found = one(p4d(40, size=64 * MB))
    assert found.assessment is Assessment.UNKNOWN
    assert found.remark == "The sweep ends too early to compare."


def test_figures_of_another_benchmark_do_not_count() -> None:
    facts: Facts = {"instance_type": "p5.48xlarge", "nodes": 2, "ranks": 16, "transport": "efa"}
    found = one(log([(2 * GB, 79e9)], facts=facts, benchmark="nvshmem", case="alltoall_latency"))
    assert found.assessment is Assessment.UNKNOWN
    assert found.ceiling == pytest.approx(93.75e9)
    assert found.sentence() == (
        "no published figure for 2 x p5.48xlarge, efa: 79 GB/s at 2 GB, 84 % of the ceiling of the NICs (93.75 GB/s)."
    )


def test_disputed_figures_make_nothing_low() -> None:
    facts: Facts = {"instance_type": "p6-b200.48xlarge", "nodes": 2, "ranks": 16, "transport": "efa"}
    found = one(log([(16 * GB, 400e9)], facts=facts))
    assert found.assessment is Assessment.UNKNOWN
    assert found.sentence() == (
        "no published figure to judge by: 400 GB/s at 16 GB, 53 % of the ceiling of the NICs (750 GB/s). "
        "Published for 2 x p6-b200.48xlarge, efa: 654 GB/s. "
        "Sources disagree about this figure, so it decides nothing."
    )


def test_without_nodes_it_says_what_to_pass_and_without_a_type_nothing() -> None:
    facts = {"instance_type": "p4d.24xlarge", "transport": "efa"}
    assert "pass --nodes" in one(log([(2 * GB, 40e9)], facts=facts)).sentence()
    assert judged(log([(2 * GB, 40e9)])) == ()


def test_latencies_are_held_against_the_smallest_published_size() -> None:
    facts: Facts = {"instance_type": "m7g.16xlarge", "transport": "efa", "hosts": 2}
    rows = [(4, 20e-6), (100 * KB, 45e-6)]
    found = one(log(rows, metric="latency", labels={}, facts=facts, benchmark="pingpong", case="pingpong"))
    assert (found.assessment, found.size) == (Assessment.LOW, 4)
    assert "placement group" in found.causes[0]


def test_nvlink_between_hosts_is_compared_with_nvlink_and_has_no_ceiling_of_nics() -> None:
    facts: dict[str, str | int] = {"instance_type": "p6e-gb200.36xlarge", "nodes": 4, "ranks": 16}
    found = one(log([(4 * GB, 880e9)], facts={**facts, "transport": "mnnvl"}))
    assert (found.assessment, found.ceiling, found.range) == (Assessment.NORMAL, None, (882.5e9, 882.5e9))
    assert found.setting.words == "4 x p6e-gb200.36xlarge, nvlink"
