"""The launcher ``ssh``: hosts that ssh reaches. The first one runs mpirun, which reaches the others."""

import contextlib
import secrets
import threading
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
from fabbench.remote import run_key
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
from fabbench.remote.parallel import map_hosts
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
            token, options = secrets.token_hex(6), target.options_as(SshLauncherOptions)
            with_key = needs.mpi and len(connections) > 1 and options.mpi_ssh != "existing"
            if with_key:  # while hosts are probed
                asking = (connections, lambda connection: connection.host_key)
                threading.Thread(target=map_hosts, args=asking, name="fabbench host keys", daemon=True).start()
            hosts = _inventory(target, needs, results)
            wait = options.lost_after
            remotes = tuple(RemoteHost(name, one, token=token, lost_after_s=wait) for name, one in connections.items())
            with agents(remotes):
                if users := sorted({user for remote in remotes for user in remote.others}):
                    busy = listed([remote.name for remote in remotes if remote.others])
                    notify(f"Warning: fabbench already runs on {busy} (as {', '.join(users)}): both get worse figures.")
                agent: tuple[str, ...] = ()
                if with_key:
                    agent = run_key.install(hosts.addresses(), remotes, any_head=needs.divided)
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
