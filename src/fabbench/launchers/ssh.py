"""The launcher ``ssh``: machines that one can ssh to. The first one runs mpirun, which reaches the others."""

import contextlib
import secrets
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabbench.drive import drive
from fabbench.errors import MachineError
from fabbench.inventory import inventory
from fabbench.launchers import Examined, Progress
from fabbench.model import Ending, Trial
from fabbench.plan import Inventory, Needs, Where
from fabbench.remote import keys
from fabbench.remote.examine import examine
from fabbench.remote.host import RemoteHost
from fabbench.remote.pool import each
from fabbench.remote.reach import all_well, connected, host_names, probe
from fabbench.remote.session import Allocation, RemoteSession

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class SshPlace:
    """Machines that are connected, with fabbench's agent on each; see `fabbench.launchers.Place`."""

    inventory: Inventory
    allocation: Allocation

    @property
    def remote(self) -> bool:
        """True: channels of one connection do not wait for each other."""
        return True

    def execute(self, trial: Trial) -> Generator[str, None, Ending]:
        """Run a trial over the hosts."""
        return drive(lambda step: RemoteSession(self.allocation, step), trial)

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Read the NIC counters of every host that answers."""
        read = each({remote.name: remote for remote in self.allocation.remotes}, _counters)
        return {name: lines for name, lines in read.items() if not isinstance(lines, MachineError)}


class Ssh:
    """The launcher ``ssh``."""

    name = "ssh"

    @contextlib.contextmanager
    def open(self, where: Where, needs: Needs) -> Iterator[SshPlace]:
        """Connect to all hosts, look what they have, and put the agent on them."""
        names = host_names(where)
        with connected(where, names) as found:
            connections = all_well(found)
            probes = all_well(each(connections, lambda connection: probe(connection, where, needs)))
            hosts = inventory(where, probes, needs)
            token = secrets.token_hex(6)
            lost_after_s = float(where.settings.get("lost_after") or 60)
            remotes = tuple(
                RemoteHost(name, connection, token=token, lost_after_s=lost_after_s)
                for name, connection in connections.items()
            )
            with _agents(remotes):
                agent = _mpi_ssh(where, hosts, remotes) if needs.mpi else ()
                yield SshPlace(hosts, Allocation(hosts=hosts.hosts, remotes=remotes, agent=agent))

    def examine(self, where: Where, needs: Needs, *, full: bool, progress: Progress) -> Examined:
        """Ask all hosts at once, and let them connect to each other."""
        probes, around = examine(where, needs, full=full, progress=progress)
        return Examined(probes=probes, around=around)


LAUNCHER = Ssh()


@contextlib.contextmanager
def _agents(remotes: Sequence[RemoteHost]) -> Iterator[None]:
    """Have the agent on all hosts, and nothing at the end; raises MachineError where something is left."""
    try:
        all_well(each({remote.name: remote for remote in remotes}, RemoteHost.start))
        yield
    except BaseException as error:
        for sentence in _cleaned(remotes):
            error.add_note(sentence)
        raise
    left = _cleaned(remotes)
    if left:
        raise MachineError(" ".join(left[:_SHOWN]), hint="Look for it there, and end or remove it.")


def _cleaned(remotes: Sequence[RemoteHost]) -> list[str]:
    """Remove everything from all hosts, interrupted or not. Gives sentences that say what is left."""
    try:
        return _removed(remotes)
    except KeyboardInterrupt as interrupt:
        for sentence in _removed(remotes):
            interrupt.add_note(sentence)
        raise


def _removed(remotes: Sequence[RemoteHost]) -> list[str]:
    # The first one first: where hosts share a home, the key is then gone for all.
    # In threads, which go on with it when this one is interrupted.
    cleaned = each({remote.name: remote for remote in remotes[:1]}, RemoteHost.clean)
    cleaned |= each({remote.name: remote for remote in remotes[1:]}, RemoteHost.clean)
    return [text for texts in cleaned.values() if not isinstance(texts, MachineError) for text in texts]


def _mpi_ssh(where: Where, found: Inventory, remotes: Sequence[RemoteHost]) -> tuple[str, ...]:
    """Say how mpirun reaches the other hosts, and make it so."""
    if len(remotes) == 1 or where.settings.get("mpi_ssh") == "existing":
        return ()
    return keys.install([host.address for host in found.hosts], remotes)


def _counters(remote: RemoteHost) -> list[str]:
    return remote.run("counters").out
