"""What a configuration ran on, according to its log and the user.

System, nodes, GPUs, NICs, fabric. Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import ComparisonSection
from fabbench.benchmarks import benchmark_named
from fabbench.catalog.expectations import CEILINGS, SAME_CASE, Published
from fabbench.catalog.systems import GpuLink, System, gpu_links, system
from fabbench.model.fabrics import RDMA
from fabbench.model.log import INSPECTOR, Facts, Log, Metric, fact_text
from fabbench.model.values import frozen

PER_NIC = frozenset({"perftest", "pingpong", "fabtests"})
"""Benchmarks whose rows are of one NIC each."""
_MAY_ADD = frozenset({"perftest", "imb", "ucx_perftest", "nixl"})
"""Benchmarks that may add both directions without showing it."""
_ON_NCCL = frozenset({"nccl", "torch", INSPECTOR})
"""Benchmarks that measure NCCL's collectives in the same way."""
_INSIDE = frozenset({"nvlink", "nvls"})
"""Fabrics of figures that GPUs inside a node have among themselves."""
_OTHER_FIGURES = {"no": "nvls", "yes": "nvlink"}
"""Whether switches reduced → the figures of the other case."""
_WITHOUT_NICS = frozenset({"nvlink", "shm"})
"""Fabrics whose rates are not bounded by NICs."""
_SHOWN = (*RDMA, "tcp", "ofi-tcp", "shm")
"""Fabrics in the order in which they are looked for in a log."""


@frozen
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
        """Return the setting in words, with the nodes and systems of other figures."""
        counts = [str(each) for each in nodes if each] if self.collective else []
        text = " and ".join(systems)
        if counts:
            text = " and ".join(counts) + f" x {text}"
        if self.fabric:
            text += f", {self.fabric}"
        if self._uses_fewer_nics:
            text += f", {self.nics} of {min(self.system.nics)} NICs"
        return text

    @property
    def collective(self) -> str:
        """The collective, as nccl-tests call it; empty: it is not a collective."""
        name = self.case.removesuffix("_latency")
        name = SAME_CASE.get(name, name)
        return name if name in CEILINGS else ""

    @property
    def _uses_fewer_nics(self) -> bool:  # than any node of this kind has
        if not self.nics or not self.system.nics:
            return False
        return self.nics < min(self.system.nics)

    @property
    def nic_rate(self) -> float | None:
        """What the NICs in use carry in one direction; None: unknown.

        All of the node, where the log does not state how many, or is of TCP.
        """
        rate = self.system.rate
        nics = self.system.nics
        used = 1 if self.one_nic else self.nics
        if rate is None or not nics or not used or self.fabric == "tcp":
            return rate
        # Nodes that may have one of several numbers of NICs have this rate with the fewest.
        return rate * min(used, *nics) / min(nics)

    @property
    def link(self) -> GpuLink | None:
        """What connects the GPUs, if nothing leaves the node; None: other things, or unknown."""
        if not self._stays_inside or not self.collective or self.gpus == 1:
            return None
        link = gpu_links().get(self.system.gpu_model)
        return link if link and link.rate else None

    @property
    def _stays_inside(self) -> bool:
        return self.nodes == 1 and self.fabric in {"", "nvlink"}

    @property
    def bound(self) -> str:
        """What bounds the rate, in words."""
        if self.link:
            return self.link.link
        return "the NIC" if self.one_nic else "the NICs"

    def ceiling(self, metric: Metric) -> float | None:
        """Return the upper limit of a rate; None: unknown, or bounded by neither NICs nor links."""
        if self.link:
            return self._link_ceiling(self.link) if metric.name == "busbw" else None
        rate = self.nic_rate
        if rate is None or metric.unit != "B/s" or not self._is_bound_by_nics:
            return None
        if metric.name == "bandwidth":
            # Both ways, or it is not known: the total of both directions is the limit.
            return rate if self.direction == "uni" else 2 * rate
        if metric.name == "busbw" and self.collective:
            return self._collective_ceiling(rate)
        return None

    def _link_ceiling(self, link: GpuLink) -> float:
        """Return what GPUs can do among themselves: nearly twice as much, if switches reduce.

        Then each GPU sends its data once, and busbw counts it 2 (n - 1) / n times.
        """
        may_reduce = link.reduces and self.facts.get("nvls") != "no"
        if not may_reduce or self.collective != "all_reduce":
            return link.rate
        others = self.gpus - 1
        return link.rate * 2 * others / self.gpus

    @property
    def _is_bound_by_nics(self) -> bool:
        """Whether it is known that NICs carried everything, and which.

        Without a fabric, NVLink may have connected the nodes.
        """
        if self.nodes == 1 or self.fabric in _WITHOUT_NICS:
            return False
        may_have_nvlink = self.system.nvlink_domain or self.benchmark == "nvshmem"
        if may_have_nvlink and not self.fabric:
            return False
        # The catalog has single NICs as systems without GPUs. A node may have more of them, so that
        # they bound a rate of one NIC only.
        return self.one_nic or bool(self.system.gpus) or self.system.is_ec2

    def _collective_ceiling(self, rate: float) -> float | None:
        """Return the maximum busbw of the collective between nodes; None: some count is not known.

        `rate`: of the NICs in use of a node, in bytes per second.
        """
        if not self.nodes or not self.gpus:
            return None
        # Its busbw is that of one rank: its share of the NICs, or one NIC where GPUs are more.
        if self.collective == "sendrecv" and self.system.nics:
            rate /= min(self.gpus, *self.system.nics)
        return CEILINGS[self.collective](rate, self.nodes, self.gpus)

    def alternatives(self) -> Sequence["Setting"]:
        """Return what it may be: itself, and before that what else its log does not exclude.

        The hosts of a rack may use NVLink or NICs, if the log does not show which.
        """
        either = not self.fabric and self.system.nvlink_domain and self.nodes != 1
        return (replace(self, fabric="nvlink"), self) if either else (self,)

    @property
    def is_bound_by_link(self) -> bool:
        """Whether it is a test of bandwidth that comes close to the rate of its NIC.

        That holds without published figures.
        """
        if not self.one_nic or self.fabric == "tcp":
            return False
        return "_bw" in self.case and bool(self.direction)

    def is_own(self, figure: Published, *, alike: bool = False) -> bool:
        """Return whether a figure is of this system, or if `alike` of one with the same parts.

        Inside a node only the GPUs need be the same, else GPUs and NICs.
        """
        other = system(figure.system)
        if other is None or not alike:
            return other == self.system
        if figure.nodes == 1 and figure.fabric in _INSIDE:
            return other.inside == self.system.inside
        return other == self.system or other.kind == self.system.kind

    def fits(self, figure: Published, metric: Metric) -> bool:
        """Return whether a published figure applies to this setting, nodes aside."""
        case = self.collective or self.case
        if (figure.metric, figure.case) != (metric.name, case):
            return False
        benchmarks = {figure.benchmark, self.benchmark}
        # Different programs are comparable only where both measure NCCL itself.
        if len(benchmarks) > 1 and not benchmarks <= _ON_NCCL:
            return False
        # Published collectives are of all GPUs of a node.
        if self.collective and self.gpus != self.system.gpus:
            return False
        if not self._fits_fabric(figure) or not self._fits_nics(figure):
            return False
        return self.is_own(figure, alike=not self.one_nic)

    def _fits_fabric(self, figure: Published) -> bool:
        if self._stays_inside and figure.fabric in _INSIDE:
            # With or without switches that reduce; a log that does not say has either.
            nvls = str(self.facts.get("nvls"))
            return figure.fabric != _OTHER_FIGURES.get(nvls)
        if figure.fabric in {"", self.fabric}:
            return True
        # A log that shows no fabric is compared with the best between nodes, or inside one.
        others = {"tcp"} if self.nodes == 1 else {"tcp", *_INSIDE}
        return not self.fabric and figure.fabric not in others

    def _fits_nics(self, figure: Published) -> bool:
        if self.one_nic:  # figures are per NIC then, too
            return True
        if self._uses_fewer_nics and self.fabric != "tcp":
            # Figures without a number of NICs are of all.
            return figure.nics == self.nics
        return figure.nics is None


def setting_of(column: Column, section: ComparisonSection) -> Setting | None:
    """Return what a column's figures in a section were measured on.

    None: its instance type is unknown, or none of its logs has figures of the section.
    """
    for log in column.logs:
        case = section.key.get("case", log.case)
        node_system = system(log.instance_type)
        if log.points and case == log.case and node_system is not None:
            findings = (finding.code for each in column.logs for finding in each.findings)
            stated = section.key.get("direction")
            return _setting(log, node_system, stated, frozenset(findings))
    return None


def _setting(
    log: Log, node_system: System, direction: str | None, findings: frozenset[str]
) -> Setting:
    """Return what a log was measured on.

    `direction` is that of the rows that count, if stated; `node_system` the kind of its nodes;
    `findings` the codes of its findings. GPUs and NICs are per node.
    """
    case = log.case or ""
    stated = direction or log.points[0].labels.get("direction")
    shown = _shown_fabric(log)
    nodes = _nodes(log)
    ranks = _positive_fact(log, "ranks")
    sized = any(point.size for point in log.points)
    return Setting(
        system=node_system,
        benchmark=log.benchmark or "",
        case=f"{case} -b".strip() if stated == "bi" else case,  # perftest's option for both ways
        nodes=nodes,
        gpus=ranks // nodes if ranks and nodes else node_system.gpus,
        nics=_positive_fact(log, "nics"),
        fabric=shown or _requested_fabric(log),
        is_stated=bool(shown),
        # perftest's summaries have no size, and are of one NIC, too.
        one_nic=log.benchmark in PER_NIC and (sized or log.benchmark == "perftest"),
        direction=stated or _usual_direction(log),
        facts=log.facts,
        findings=findings,
    )


def _nodes(log: Log) -> int | None:
    # A count that the log states outranks the one that the user gave.
    counted = _positive_fact(log, "nodes") or _positive_fact(log, "hosts")
    if counted or log.proof is None:
        return counted
    return log.proof.nodes


def _requested_fabric(log: Log) -> str:
    """Return the fabric that was asked for; empty: any."""
    fabric = log.proof.fabric if log.proof else ""
    return "nvlink" if fabric == "p2p" else fabric


def _usual_direction(log: Log) -> str:
    """Return the direction of a case that does not state it; empty: it may be both."""
    case = log.case or ""
    if "bibw" in case:
        return "bi"
    unsure = log.benchmark in _MAY_ADD and "Ping" not in case  # IMB's PingPong: one way
    return "" if unsure else "uni"


def _positive_fact(log: Log, name: str) -> int | None:
    value = log.facts.get(name)
    return value if isinstance(value, int) and value > 0 else None


def _shown_fabric(log: Log) -> str:
    """Return the fabric that a log shows; empty: it shows none."""
    transport = fact_text(log.facts, "transport", "unknown")
    if transport in {"p2p", "mnnvl"}:  # what NVLink is inside a node, and between them
        return "nvlink"
    accepted = benchmark_named(log.benchmark).transports  # fabric → transports that prove it
    links = fact_text(log.facts, "link").split("+")
    # Over Ethernet, NCCL's transport `ib` is RoCE.
    ethernet = "RoCE" in links or "Ethernet" in links
    if ethernet and transport in accepted("roce"):
        return "roce"
    shown = (name for name in _SHOWN if transport in accepted(name))
    return next(shown, "")
