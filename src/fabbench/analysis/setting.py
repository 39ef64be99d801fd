"""What a configuration ran on, according to its log and the user: system, nodes, GPUs, NICs, fabric. Pure."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import ComparisonSection
from fabbench.benchmarks import benchmark_named
from fabbench.catalog.expectations import Published, System, system
from fabbench.model.log import Facts, Log, Metric

_PER_NIC = frozenset({"perftest", "pingpong", "fabtests"})  # benchmarks whose rows are of one NIC each
_ON_NCCL = frozenset({"nccl", "torch"})  # benchmarks that measure NCCL's collectives in the same way
_SAME_CASE: Mapping[str, str] = {
    "allreduce": "all_reduce",
    "reduction": "all_reduce",
    "allgather": "all_gather",
    "fcollect": "all_gather",
    "reducescatter": "reduce_scatter",
}


def _hierarchical(rate: float, nodes: int, gpus: int) -> float:
    ranks = nodes * gpus
    return rate * (ranks - 1) / ranks * nodes / (nodes - 1)


_CEILINGS: Mapping[str, Callable[[float, int, int], float]] = {
    **dict.fromkeys(("all_reduce", "all_gather", "reduce_scatter", "gather", "scatter"), _hierarchical),
    "alltoall": lambda rate, nodes, gpus: _hierarchical(rate, nodes, gpus) / gpus,
    **dict.fromkeys(("broadcast", "reduce", "sendrecv"), lambda rate, _nodes, _gpus: rate),
}
"""Collective → the maximum busbw, from the rate of a node's NICs, nodes, and GPUs per node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What one configuration ran on."""

    system: System
    benchmark: str
    case: str
    nodes: int | None
    gpus: int
    """Per node."""
    nics: int | None
    """NICs used per node; None: unknown, or all."""
    fabric: str
    """Empty: neither the log nor the user states it."""
    is_stated: bool
    """Whether the log shows the fabric."""
    bidirectional: bool
    """Whether rates are totals of both directions."""
    facts: Facts
    findings: frozenset[str]
    """Codes of the logs' findings."""

    @property
    def words(self) -> str:
        """The setting in words: ``"2 x p4d.24xlarge, tcp"``."""
        nodes = f"{self.nodes} x " if self.nodes and self.collective else ""
        fewer = f", {self.nics} of {min(self.system.nics)} NICs" if self._fewer else ""
        return f"{nodes}{self.system.name}{f', {self.fabric}' if self.fabric else ''}{fewer}"

    @property
    def collective(self) -> str:
        """The collective, as nccl-tests call it; empty: it is not a collective."""
        name = self.case.removesuffix("_latency")
        name = _SAME_CASE.get(name, name)
        return name if name in _CEILINGS else ""

    @property
    def _fewer(self) -> bool:
        return bool(self.nics and self.system.nics and self.nics < min(self.system.nics))

    @property
    def nic_rate(self) -> float | None:
        """What the NICs in use carry in one direction; None: unknown."""
        rate, nics = self.system.rate, self.system.nics
        if rate is None or not nics or self.fabric == "tcp":
            return rate
        used = 1 if self.benchmark in _PER_NIC else self.nics
        return rate * min(used, *nics) / min(nics) if used else rate

    def ceiling(self, metric: Metric) -> float | None:
        """Return the upper limit of a rate; None: unknown, or not bounded by NICs."""
        rate = self.nic_rate
        if rate is None or metric.unit != "B/s" or self.fabric in {"nvlink", "shm"} or self.nodes == 1:
            return None
        if not self.fabric and (self.system.nvlink_domain or self.benchmark == "nvshmem"):
            return None
        if metric.name == "bandwidth":
            return rate * (2 if self.bidirectional else 1)
        if metric.name != "busbw" or not self.collective or not self.nodes or not self.gpus:
            return None
        if self.collective == "sendrecv":
            rate /= max(min(self.gpus, *self.system.nics), 1) if self.system.nics else 1
        return _CEILINGS[self.collective](rate, self.nodes, self.gpus)

    def fits(self, figure: Published, metric: Metric) -> bool:
        """Return whether a published figure applies to this setting."""
        if self.fabric:
            fabrics = {"", self.fabric}
        else:  # a log that shows no fabric is compared with the best
            fabrics = {"", figure.fabric} - ({"tcp"} if self.nodes == 1 else {"tcp", "nvlink"})
        per_nic = self.benchmark in _PER_NIC
        return all(
            (
                figure.system == self.system.like and figure.metric == metric.name,
                figure.case == (self.collective or self.case),
                figure.nodes in {None, self.nodes},
                figure.benchmark == self.benchmark or {figure.benchmark, self.benchmark} <= _ON_NCCL,
                not self.collective or self.gpus == self.system.gpus,
                figure.fabric in fabrics,
                per_nic or figure.nics == (self.nics if self._fewer and self.fabric != "tcp" else None),
            )
        )


def setting_of(column: Column, section: ComparisonSection) -> Setting | None:
    """Return what a column's figures in a section were measured on; None: unknown instance type."""
    logs = [log for log in column.logs if section.key.get("case", log.case) == log.case and log.points]
    known = next(((log, found) for log in logs if (found := system(log.instance_type))), None)
    if known is None:
        return None
    log, found = known
    nodes = _count(log, "nodes") or _count(log, "hosts") or (log.proof.nodes if log.proof else None)
    ranks = _count(log, "ranks")
    fabric = _fabric(log)
    requested = log.proof.fabric if log.proof else ""
    return Setting(
        system=found,
        benchmark=log.benchmark or "",
        case=log.case or "",
        nodes=nodes,
        gpus=ranks // nodes if ranks and nodes else found.gpus,
        nics=_count(log, "nics"),
        fabric=fabric or ("nvlink" if requested == "p2p" else requested),
        is_stated=bool(fabric),
        bidirectional="bi" in {section.key.get("direction"), log.points[0].labels.get("direction")},
        facts=log.facts,
        findings=frozenset(finding.code for each in column.logs for finding in each.findings),
    )


def _count(log: Log, name: str) -> int | None:
    value = log.facts.get(name)
    return value if isinstance(value, int) and value > 0 else None


def _fabric(log: Log) -> str:
    """Return the fabric that a log shows; empty: it shows none."""
    transport = str(log.facts.get("transport", "unknown"))
    if transport in {"p2p", "mnnvl"}:
        return "nvlink"
    if "RoCE" in str(log.facts.get("link", "")):
        return "roce"
    benchmark = benchmark_named(log.benchmark)
    fabrics = ("efa", "tcp", "ib", "roce", "ofi-tcp", "shm")
    return next((name for name in fabrics if transport in benchmark.transports(name)), "")
