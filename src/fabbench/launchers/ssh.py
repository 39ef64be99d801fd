"""The launcher ``ssh``: machines that one can ssh to. The first one runs mpirun, which reaches the others."""

import contextlib
import secrets
from collections.abc import Iterator, Sequence

from fabbench.inventory import inventories
from fabbench.launchers import Examined, Progress
from fabbench.machines import Inventory, Needs, Where
from fabbench.remote import keys
from fabbench.remote.examine import examine
from fabbench.remote.host import RemoteHost
from fabbench.remote.place import RemotePlace, agents
from fabbench.remote.pool import each
from fabbench.remote.reach import all_well, connected, host_names, probe
from fabbench.remote.session import Allocation
from fabbench.variants import refuse_images


class Ssh:
    """The launcher ``ssh``."""

    name = "ssh"

    @contextlib.contextmanager
    def open(self, where: Where, needs: Needs) -> Iterator[RemotePlace]:
        """Connect to all hosts, look what they have, and put the agent on them."""
        refuse_images(where.variants, "the launcher ssh")
        names = host_names(where)
        with connected(where, names) as found:
            connections = all_well(found)
            hosts = inventories(
                where,
                needs,
                lambda here, variant: all_well(
                    each(connections, lambda connection: probe(connection, here, needs, variant))
                ),
            )
            token = secrets.token_hex(6)
            lost_after_s = float(where.settings.get("lost_after") or 60)
            remotes = tuple(
                RemoteHost(name, connection, token=token, lost_after_s=lost_after_s)
                for name, connection in connections.items()
            )
            with agents(remotes):
                agent = _mpi_ssh(where, hosts, remotes) if needs.mpi else ()
                yield RemotePlace(hosts, Allocation(hosts=hosts.hosts, remotes=remotes, agent=agent))

    def examine(self, where: Where, needs: Needs, *, full: bool, progress: Progress) -> Examined:
        """Ask all hosts at once, and let them connect to each other."""
        probes, around = examine(where, needs, full=full, progress=progress)
        return Examined(probes=probes, around=around)


LAUNCHER = Ssh()


def _mpi_ssh(where: Where, found: Inventory, remotes: Sequence[RemoteHost]) -> tuple[str, ...]:
    """Say how mpirun reaches the other hosts, and make it so."""
    if len(remotes) == 1 or where.settings.get("mpi_ssh") == "existing":
        return ()
    return keys.install(found.addresses(), remotes)
