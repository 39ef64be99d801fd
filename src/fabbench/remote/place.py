"""Hosts with fabbench's agent on each, as a place to run: over ssh, or in pods."""

import contextlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from fabbench.drive import drive
from fabbench.errors import MachineError
from fabbench.machines import Inventory
from fabbench.model import Ending, Trial
from fabbench.remote.host import RemoteHost
from fabbench.remote.pool import each
from fabbench.remote.reach import all_well
from fabbench.remote.session import Allocation, RemoteSession
from fabbench.remote.way import GoneError
from fabbench.rendering import Job

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class RemotePlace:
    """Machines that are connected, with fabbench's agent on each; see `fabbench.launchers.Place`."""

    inventory: Inventory
    allocation: Allocation
    made: Mapping[str, str] = field(default_factory=dict)
    """What was made to have these machines, for the record: name of a file → document."""

    @property
    def remote(self) -> bool:
        """True: channels of one connection do not wait for each other."""
        return True

    def begin(self, job: Job) -> Mapping[str, str]:
        """Give what was made. There is no document of the run: each trial is carried out by itself."""
        del job
        return self.made

    def execute(self, trial: Trial) -> Generator[str, None, Ending]:
        """Run a trial over the hosts."""
        allocation = replace(self.allocation, hosts=self.inventory.seen_by(trial.arm.variant))
        return drive(lambda step: RemoteSession(allocation, step), trial)

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Read the NIC counters of every host that answers."""
        read = each({remote.name: remote for remote in self.allocation.remotes}, _counters)
        return {name: lines for name, lines in read.items() if not isinstance(lines, MachineError)}


@contextlib.contextmanager
def agents(remotes: Sequence[RemoteHost]) -> Iterator[None]:
    """Have the agent on all hosts, and nothing at the end; raises MachineError where something is left."""
    try:
        all_well(each({remote.name: remote for remote in remotes}, RemoteHost.start))
        yield
    except BaseException as error:
        for sentence in _cleaned(remotes):
            error.add_note(sentence)
        raise
    left = _cleaned(remotes)
    for remote in remotes:
        if isinstance(remote.lost, GoneError):
            raise remote.lost
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


def _counters(remote: RemoteHost) -> list[str]:
    return remote.run("counters").out
