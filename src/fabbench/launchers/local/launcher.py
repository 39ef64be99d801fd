"""The launcher ``local``: this machine only. Linux only."""

import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial

from fabbench.hosts.check import HostRelations, Progress
from fabbench.hosts.discover import inventories, inventory
from fabbench.hosts.probe_result import Probe
from fabbench.launchers import Examined, Launcher, refuse_images
from fabbench.launchers.local import LocalOptions
from fabbench.model.compat import override
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Host, Hosts, Inventory, Needs, Target
from fabbench.model.plan import DEFAULT_VARIANT, Variant
from fabbench.remote.allocation import hold, probe
from fabbench.remote.check_hosts import try_to_open
from fabbench.remote.session import RemoteAllocation
from fabbench.remote.transport import Here

_LOST_AFTER_S = 3600.0  # Programs end with fabbench; one that is stopped for a while goes on


class LocalLauncher(Launcher):
    """The launcher ``local``."""

    name = "local"
    options = LocalOptions
    inherits = True

    @contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[RemoteAllocation]:
        """Find out what this machine has, and run the agent on it."""
        with allocation_here(self.preview(target, needs)) as allocation:
            yield allocation

    @override
    def preview(self, target: Target, needs: Needs) -> Inventory:
        refuse_images(target.variants, "the target local")
        parts = target.options_as(LocalOptions).virtual_nodes
        if parts > 1 and target.interface:
            raise RequestError(
                "--interface has no effect with --virtual-nodes: NCCL connects them over lo.",
                hint="Leave it out.",
            )
        name = socket.gethostname()
        # This host; with virtual nodes, parts of it, each with a share of its GPUs.
        hosts = inventories(
            target, needs, lambda view, variant: {name: _probe(view, needs, variant)}
        )
        return hosts.changed(partial(_parted, parts)) if parts > 1 else hosts

    def examine(self, target: Target, needs: Needs, *, deep: bool, progress: Progress) -> Examined:
        """Probe this machine. There are no connections to try."""
        del deep, progress
        name = socket.gethostname()
        probed = _probe(target, needs)
        # Only its address is wanted: nothing is required of the host.
        (host,) = inventory(target, {name: probed}, Needs()).hosts
        with closing(Here(name)) as here:
            openings = try_to_open({name: here})
        relations = HostRelations(addresses={name: host.address}, openings=openings)
        return Examined(probes={name: probed}, relations=relations)

    @override
    @contextmanager
    def connections(self, target: Target, wait_s: float) -> Iterator[Mapping[str, Here]]:
        del target, wait_s
        with closing(Here(socket.gethostname())) as here:
            yield {here.name: here}


LAUNCHER = LocalLauncher()


@contextmanager
def allocation_here(inventory: Inventory) -> Iterator[RemoteAllocation]:
    """Run the agent on this machine, whose hosts, maybe virtual ones, are known."""
    no_needs = Needs()  # mpirun reaches this machine by itself, and nothing is left out
    with (
        closing(Here(inventory.first.name)) as here,
        hold(
            inventory, {here.name: here}, no_needs, lost_after_s=_LOST_AFTER_S, parent=os.getpid()
        ) as allocation,
    ):
        yield allocation


def _parted(parts: int, hosts: Sequence[Host]) -> Hosts:
    """Split the GPUs of the machine into virtual hosts that NCCL treats as different hosts."""
    (host,) = hosts
    if host.gpus % parts or host.gpus < parts:
        raise RequestError(
            f"{host.name} has {host.gpus} GPUs, which cannot be split into {parts} equal virtual "
            "nodes.",
            hint="Choose a divisor of the number of GPUs, or pass --gpus.",
        )
    part = replace(host, gpus=host.gpus // parts, virtual=True)  # NCCL gets a host id for each
    return tuple(replace(part, name=f"{host.name}-v{number}") for number in range(parts))


def _probe(target: Target, needs: Needs, variant: Variant = DEFAULT_VARIANT) -> Probe:
    if sys.platform != "linux":
        raise MachineError("The target local needs Linux, as libfabric's programs do.")
    if target.hosts:
        hosts = ", ".join(target.hosts)
        raise RequestError(
            f"--host has no effect with --on local, which is this machine: {hosts}.",
            hint="Use --on ssh for hosts.",
        )
    return probe(Here(socket.gethostname()), target, needs, variant)
