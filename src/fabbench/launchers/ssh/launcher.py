"""The launcher ``ssh``: hosts that ssh reaches. The first one runs mpirun, which reaches the others."""

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace

from fabbench.hosts.check import Progress
from fabbench.hosts.discover import inventories
from fabbench.hosts.probe_result import Probe
from fabbench.launchers import Examined, Launcher, notify
from fabbench.launchers.ssh import SshLauncherOptions
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.model.messages import listed
from fabbench.model.plan import Variant
from fabbench.plan.request import refuse_images
from fabbench.remote.allocation import (
    RemoteAllocation,
    agents,
    answering,
    connected,
    distinct,
    host_names,
    probe,
    require_all,
)
from fabbench.remote.check_hosts import examine
from fabbench.remote.host import RemoteHost
from fabbench.remote.options import SshOptions
from fabbench.remote.parallel import map_hosts
from fabbench.remote.relay import relay
from fabbench.remote.session import HeldHosts
from fabbench.remote.ssh_transport import SshTransport


class SshLauncher(Launcher):
    """The launcher ``ssh``."""

    name = "ssh"
    options = SshLauncherOptions
    inherits = True

    @contextlib.contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[RemoteAllocation]:
        """Connect to all hosts, probe them and install the agent on them."""
        refuse_images(target.variants, "the launcher ssh")
        names = host_names(target)
        with connected(target, names) as results:
            connections = {name: each for name, each in results.items() if isinstance(each, SshTransport)}
            hosts = _inventory(target, needs, results)
            token, wait = secrets.token_hex(6), target.options_as(SshOptions).lost_after
            remotes = tuple(RemoteHost(name, one, token=token, lost_after_s=wait) for name, one in connections.items())
            with contextlib.ExitStack() as stack:
                stack.enter_context(agents(remotes))
                if users := sorted({user for remote in remotes for user in remote.others}):
                    busy = listed([remote.name for remote in remotes if remote.others])
                    notify(f"Warning: fabbench already runs on {busy} (as {', '.join(users)}): both get worse figures.")
                agent = stack.enter_context(relay(hosts, remotes, any_head=needs.divided)) if needs.mpi else ()
                yield RemoteAllocation(hosts, HeldHosts(hosts=hosts.hosts, remotes=remotes, agent=agent))

    @override
    def preview(self, target: Target, needs: Needs) -> Inventory:
        refuse_images(target.variants, "the launcher ssh")
        with connected(target, host_names(target)) as results:
            return _inventory(target, needs, results)

    def examine(self, target: Target, needs: Needs, *, deep: bool, progress: Progress) -> Examined:
        """Probe all hosts in parallel, and have them connect to each other."""
        del deep
        probes, relations = examine(target, needs, progress=progress)
        return Examined(probes=probes, relations=relations)


LAUNCHER = SshLauncher()


def _inventory(target: Target, needs: Needs, results: Mapping[str, SshTransport | MachineError]) -> Inventory:
    connections = answering(results) if needs.divided else require_all(results)

    def probe_all(target: Target, variant: Variant) -> Mapping[str, Probe]:
        probes = map_hosts(connections, lambda connection: probe(connection, target, needs, variant))
        return distinct(require_all(probes))

    left_out = {name: str(error) for name, error in results.items() if isinstance(error, MachineError)}
    return replace(inventories(target, needs, probe_all), unreachable=left_out)
