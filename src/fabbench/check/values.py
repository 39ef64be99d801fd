"""What a check is made of, and what it comes to."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from fabbench.hosts.found import Link, Probe
from fabbench.instances import Instance, instance

RDMA_FABRICS = {"efa": Link.EFA, "ib": Link.INFINIBAND, "roce": Link.ROCE}


class Status(StrEnum):
    """What came of one check. Skip says that nothing was found out: it is not pass."""

    PASS = "pass"  # noqa: S105 - no password
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing checked on one host."""

    host: str
    name: str
    status: Status
    seen: str
    """One sentence."""
    advice: str = ""
    """What to do next; empty where the status is pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What hosts are checked for."""

    programs: tuple[str, ...] = ()
    install: str = ""
    """The command that installs them."""
    mpi: bool = False
    """Whether an mpirun is needed."""
    gpus: bool = False
    """Whether GPUs are needed."""
    fabric: str = ""
    """The fabric asked for; empty: whatever is there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How far a host's clock is ahead of the one here, in seconds, give or take half the round trip."""

    offset_s: float
    uncertainty_s: float


class Contact(StrEnum):
    """What came of connecting one host to another."""

    OK = "ok"
    FAILED = "failed"
    UNTRIED = "untried"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """A connection that one host tried to make to another. `why` is a few words where it was not ok."""

    contact: Contact
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """What was found out about hosts from outside. What is not here was not tried, and is a skip."""

    unreachable: Mapping[str, str] = field(default_factory=dict)
    """Hosts that gave no answer, each with the reason in a few words."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Where the hosts reach each other."""
    clocks: Mapping[str, Clock] = field(default_factory=dict)
    connections: Mapping[tuple[str, str], Connection] = field(default_factory=dict)
    """(from, to) → what came of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """One host and what is wanted of it; makes the checks that are named after it."""

    host: str
    probe: Probe
    wanted: Wanted = field(default_factory=Wanted)

    @property
    def instance(self) -> Instance | None:
        """The catalogue's entry; None: this is no EC2 instance with EFA, or it is not told."""
        return instance(self.probe.instance_type)

    @property
    def told_of_devices(self) -> bool:
        """Whether the answer got as far as the RDMA devices."""
        return self.probe.verbs_there is not None

    @property
    def has_efa(self) -> bool:
        """Whether there is EFA, or should be."""
        there = self.probe.devices_of(Link.EFA) or self.probe.efa_domains
        return bool(there) or self.instance is not None or self.wanted.fabric == "efa"

    @property
    def has_rdma(self) -> bool:
        """Whether there are RDMA devices, or should be."""
        return bool(self.probe.devices) or self.has_efa or self.wanted.fabric in RDMA_FABRICS

    def passed(self, name: str, seen: str) -> Check:
        """Give a check that is passed."""
        return Check(host=self.host, name=name, status=Status.PASS, seen=seen)

    def warn(self, name: str, seen: str, advice: str) -> Check:
        """Give a check that found something to look at."""
        return Check(host=self.host, name=name, status=Status.WARN, seen=seen, advice=advice)

    def fail(self, name: str, seen: str, advice: str) -> Check:
        """Give a check that found what will stop or spoil a run."""
        return Check(host=self.host, name=name, status=Status.FAIL, seen=seen, advice=advice)

    def skip(self, name: str, seen: str, advice: str) -> Check:
        """Give a check that found nothing out."""
        return Check(host=self.host, name=name, status=Status.SKIP, seen=seen, advice=advice)

    def untold(self, name: str) -> Check:
        """Give the check of something that the host's answer leaves out."""
        return self.skip(
            name, "The host's answer does not say.", "Check again; see the check named answer for why."
        )
