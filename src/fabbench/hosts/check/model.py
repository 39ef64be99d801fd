"""Inputs and results of host checks."""

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from enum import StrEnum
from functools import cache, partial
from typing import NamedTuple, TypeAlias

import msgspec

from fabbench.catalog.systems import System, instance
from fabbench.hosts.probe_result import Link, Probe
from fabbench.model import records
from fabbench.model.errors import FabbenchError
from fabbench.model.hosts import Needs
from fabbench.model.mappings import Reasons, first_of
from fabbench.model.values import frozen

Progress = Callable[[str, int, int], None]
"""Called from any thread while hosts are probed: what is being done, hosts done, of how many."""

RDMA_FABRICS = {"efa": Link.EFA, "ib": Link.INFINIBAND, "roce": Link.ROCE}


class Status(StrEnum):
    """The result of one check. Skip means that it found nothing out, which is not a pass."""

    PASS = "pass"  # noqa: S105 - not a password
    WARN = "warn"
    FAIL = "fail"
    SKIP = "skip"


@frozen
class Check:
    """The check of one thing on one host."""

    host: str = ""
    name: str = ""
    status: Status
    seen: str  # One sentence
    advice: str = ""  # What to do next; empty if the status is pass

    def of(self, host: str, name: str) -> "Check":
        """Return it as the check `name` of a host."""
        return replace(self, host=host, name=name)


def refusal(error: FabbenchError, advice: str = "") -> Check:
    """Return the failure that an error is; `advice`, if the error has none of its own."""
    hint = error.hint or advice
    return Check(status=Status.FAIL, seen=str(error), advice=hint)


class CheckOutcome(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a check comes to: a record of outcomes.toml, or of a launcher's node_checks.toml."""

    code: str
    """``CHECK.OUTCOME``."""
    status: Status
    seen: str
    advice: str = ""


class HostDifference(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that should be the same on all hosts: a record of differences.toml."""

    what: str
    advice: str  # What to do where hosts differ
    value: str = ""  # Where it is in `HostChecks`; empty: it stands for several things
    always: bool = False  # Whether it is checked even if no host reports it


@cache
def outcomes(package: str, file: str) -> Mapping[str, CheckOutcome]:
    """Return the outcomes in a file of a package by their codes."""
    loaded = records.load(package, file, CheckOutcome)
    return {each.code: each for each in loaded}


@cache
def differences() -> Mapping[str, HostDifference]:
    """Return what should be the same on all hosts, by its name."""
    loaded = records.load("fabbench.hosts.check", "differences.toml", HostDifference)
    return {each.what: each for each in loaded}


def outcome_in(
    package: str, file: str, name: str, status: Status | None = None, **values: object
) -> Check:
    """Return an outcome in a file, ``CHECK.OUTCOME``, with values in its sentences.

    A status replaces the usual one.
    """
    record = outcomes(package, file)[name]
    return Check(
        status=status or record.status,
        seen=record.seen.format(**values),
        advice=record.advice.format(**values),
    )


outcome = partial(outcome_in, "fabbench.hosts.check", "outcomes.toml")
"""Returns an outcome of the checks of a host."""


class Connection(NamedTuple):
    """A connection that one host was to make to another."""

    made: bool | None  # None: not tried
    why: str = ""  # A few words; empty if it was made


Attempts: TypeAlias = Mapping[tuple[str, str], Connection]
"""(from, to) → what became of the connection."""


class Opening(NamedTuple):
    """Whether fabbench's agent was written to a host, and started there, as runs do first."""

    writes: bool = True
    starts: bool = True
    why: str = ""  # In a few words; empty if it did


@frozen
class HostRelations:
    """How hosts are reached, by this machine and by each other.

    What is missing was not tried: its check is skipped.
    """

    unreachable: Reasons = field(default_factory=dict)
    """Hosts that gave no answer, each with the reason in a few words."""
    addresses: Mapping[str, str] = field(default_factory=dict)
    """Where the hosts reach each other."""
    connections: Attempts = field(default_factory=dict)
    openings: Mapping[str, Opening] = field(default_factory=dict)
    clocks: Mapping[str, float] = field(default_factory=dict)
    """By how many seconds the clocks of hosts are ahead of this machine's, as far as is certain."""


@frozen
class HostChecks:
    """One host, as it is checked."""

    host: str
    probe: Probe
    needs: Needs = field(default_factory=Needs)
    image: str = ""  # Of pods; empty: none
    address: str = ""  # Where the others reach it
    nodes: int = 1  # How many are checked

    @property
    def fabric(self) -> str:
        """The requested fabric; empty: any."""
        return first_of(self.needs.fabrics, "")

    @property
    def instance(self) -> System | None:
        """The catalog's entry; None: no EC2 instance with EFA, or its type is not reported."""
        return instance(self.probe.instance_type)

    @property
    def expected_gpus(self) -> int:
        """How many GPUs the instance type has; 0: none, or not known."""
        return self.instance.gpus if self.instance else 0

    @property
    def reached_at(self) -> str:
        """Where the others reach the host, else where ssh came in; empty: not known."""
        return self.address or self.probe.ssh_address

    @property
    def interface(self) -> str:
        """The interface with the address where others reach the host; empty: not known.

        Without that address, the one of the ssh connection counts, else the default route.
        """
        probe = self.probe
        if not self.reached_at:
            return probe.default_interface if probe.whole else ""
        for each in probe.interfaces:
            if each.address == self.reached_at:
                return each.name
        if not probe.whole or probe.interfaces:
            return ""  # The address is of none of them, or of one that was not reported
        return probe.default_interface  # The host lists no interfaces at all

    @property
    def mpirun(self) -> str:
        """The mpirun; which number of Open MPI it is shows in its version."""
        mpi = self.probe.mpi
        if mpi is None:
            return ""
        kind = mpi.kind.rstrip(" 45")  # `Open MPI 4` and `Open MPI 5`
        return f"{kind} {mpi.version} at {mpi.program}"

    @property
    def reports_efa(self) -> bool:
        """Return whether /sys or libfabric has an EFA device."""
        return bool(self.probe.devices_of(Link.EFA) or self.probe.efa_domains)

    @property
    def has_efa(self) -> bool:
        """Return whether there is EFA, or should be."""
        return self.reports_efa or self.instance is not None or self.fabric == "efa"

    @property
    def has_rdma(self) -> bool:
        """Return whether there are RDMA devices, or should be."""
        return bool(self.probe.devices) or self.has_efa or self.fabric in RDMA_FABRICS

    def check(self, name: str, result: Check | None) -> Check:
        """Return an outcome as a check of this host. None: its answer does not include it."""
        return (result or outcome("answer.not-reported")).of(self.host, name)
