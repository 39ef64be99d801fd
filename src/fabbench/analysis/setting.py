"""What a configuration ran on, according to its log and the user.

System, nodes, GPUs, NICs, fabric. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import ComparisonSection
from fabbench.benchmarks import benchmark_named
from fabbench.catalog.expectations import CEILINGS, SAME_CASE, Published, System, system
from fabbench.model.fabrics import RDMA
from fabbench.model.log import Facts, Log, Metric

_PER_NIC = frozenset(
    {"perftest", "pingpong", "fabtests"}
)  # benchmarks whose rows are of one NIC each
_MAY_ADD = frozenset(
    {"perftest", "imb", "ucx_perftest", "nixlbench"}
)  # both directions, without showing it
_ON_NCCL = frozenset(
    {"nccl", "torch"}
)  # benchmarks that measure NCCL's collectives in the same way


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
    one_nic: bool = False
    """Whether a rate is that of one NIC, and not of a node."""
    direction: str = "uni"
    """`bi`: rates are totals of both directions. Empty: they may be."""
    facts: Facts
    findings: frozenset[str]
    """Codes of the logs' findings."""

    @property
    def words(self) -> str:
        """The setting in words: ``"2 x p4d.24xlarge, tcp"``."""
        return self.described([self.nodes], [self.system.name])

    def described(self, nodes: Iterable[int | None], systems: Iterable[str]) -> str:
        """Return the setting in words, with the nodes and systems of figures that it is compared with."""
        counts = " and ".join(str(each) for each in nodes if each and self.collective)
        fewer = f", {self.nics} of {min(self.system.nics)} NICs" if self._fewer else ""
        name = " and ".join(systems)
        return f"{counts}{' x ' if counts else ''}{name}{f', {self.fabric}' if self.fabric else ''}{fewer}"

    @property
    def collective(self) -> str:
        """The collective, as nccl-tests call it; empty: it is not a collective."""
        name = self.case.removesuffix("_latency")
        name = SAME_CASE.get(name, name)
        return name if name in CEILINGS else ""

    @property
    def _fewer(self) -> bool:
        return bool(self.nics and self.system.nics and self.nics < min(self.system.nics))

    @property
    def nic_rate(self) -> float | None:
        """What the NICs in use carry in one direction; None: unknown."""
        rate, nics = self.system.rate, self.system.nics
        if rate is None or not nics or self.fabric == "tcp":
            return rate
        used = 1 if self.one_nic else self.nics
        return rate * min(used, *nics) / min(nics) if used else rate

    def ceiling(self, metric: Metric) -> float | None:
        """Return the upper limit of a rate; None: unknown, or not bounded by NICs."""
        rate = self.nic_rate
        if (
            rate is None
            or metric.unit != "B/s"
            or self.fabric in {"nvlink", "shm"}
            or self.nodes == 1
        ):
            return None
        unsure = not self.fabric and (self.system.nvlink_domain or self.benchmark == "nvshmem")
        link = (
            not self.system.gpus and not self.system.is_ec2
        )  # one NIC, of a node of which nothing else is known
        if unsure or (link and not self.one_nic):
            return None
        if metric.name == "bandwidth":
            return rate * (1 if self.direction == "uni" else 2)
        if metric.name != "busbw" or not self.collective or not self.nodes or not self.gpus:
            return None
        if self.collective == "sendrecv":
            rate /= max(min(self.gpus, *self.system.nics), 1) if self.system.nics else 1
        return CEILINGS[self.collective](rate, self.nodes, self.gpus)

    def alternatives(self) -> Sequence["Setting"]:
        """Return what it may be.

        The hosts of a rack may use NVLink or NICs, if the log does not show which.
        """
        either = not self.fabric and self.system.nvlink_domain and self.nodes != 1
        return (replace(self, fabric="nvlink"), self) if either else (self,)

    @property
    def is_bound_by_link(self) -> bool:
        """Whether it is a test of bandwidth that comes close to the rate of its NIC, without published figures."""
        return self.one_nic and "_bw" in self.case and bool(self.direction) and self.fabric != "tcp"

    def is_own(self, figure: Published, *, alike: bool = False) -> bool:
        """Return whether a figure is of this system, or of one with the same GPUs and NICs."""
        other = system(figure.system)
        return other == self.system or (
            alike and other is not None and other.kind == self.system.kind
        )

    def fits(self, figure: Published, metric: Metric) -> bool:
        """Return whether a published figure applies to this setting, nodes aside."""
        if self.fabric:
            fabrics = {"", self.fabric}
        else:  # a log that shows no fabric is compared with the best
            fabrics = {"", figure.fabric} - ({"tcp"} if self.nodes == 1 else {"tcp", "nvlink"})
        return (
            (figure.metric, figure.case) == (metric.name, self.collective or self.case)
            and (
                figure.benchmark == self.benchmark or {figure.benchmark, self.benchmark} <= _ON_NCCL
            )
            and (not self.collective or self.gpus == self.system.gpus)
            and figure.fabric in fabrics
            and (
                self.one_nic
                or figure.nics == (self.nics if self._fewer and self.fabric != "tcp" else None)
            )
            and self.is_own(figure, alike=not self.one_nic)
        )


def setting_of(column: Column, section: ComparisonSection) -> Setting | None:
    """Return what a column's figures in a section were measured on; None: unknown instance type."""
    logs = [
        log for log in column.logs if section.key.get("case", log.case) == log.case and log.points
    ]
    known = next(((log, found) for log in logs if (found := system(log.instance_type))), None)
    if known is None:
        return None
    log, found = known
    nodes = _count(log, "nodes") or _count(log, "hosts") or (log.proof.nodes if log.proof else None)
    ranks = _count(log, "ranks")
    fabric, requested = _fabric(log), log.proof.fabric if log.proof else ""
    sized, case = any(point.size for point in log.points), log.case or ""
    stated = section.key.get("direction") or log.points[0].labels.get("direction")
    unsure = log.benchmark in _MAY_ADD and "Ping" not in case
    direction = stated or ("bi" if "bibw" in case else "" if unsure else "uni")
    return Setting(
        system=found,
        benchmark=log.benchmark or "",
        case=f"{case} -b".strip() if stated == "bi" else case,
        nodes=nodes,
        gpus=ranks // nodes if ranks and nodes else found.gpus,
        nics=_count(log, "nics"),
        fabric=fabric or ("nvlink" if requested == "p2p" else requested),
        is_stated=bool(fabric),
        one_nic=log.benchmark in _PER_NIC and (sized or log.benchmark == "perftest"),
        direction=direction,
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
    accepted, link = benchmark_named(log.benchmark).transports, str(log.facts.get("link", ""))
    if not {"RoCE", "Ethernet"}.isdisjoint(link.split("+")) and transport in accepted("roce"):
        return "roce"
    return next(
        (name for name in (*RDMA, "tcp", "ofi-tcp", "shm") if transport in accepted(name)), ""
    )
