"""Hosts that a user names: connected, probed, and with the agent on each, to run on."""

import logging
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import TypeAlias

from fabbench.catalog.images import with_libraries
from fabbench.execution.worker_pool import Results, failed, map_hosts, require_all, succeeded
from fabbench.hosts.discover import arguments_for
from fabbench.hosts.probe import read_probe, script
from fabbench.hosts.probe_result import Probe
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.model.mappings import Reasons, map_values
from fabbench.model.messages import listed
from fabbench.model.plan import DEFAULT_VARIANT, Variant, Words
from fabbench.model.values import T
from fabbench.remote import SshOptions
from fabbench.remote.host import RemoteHost, neighbors
from fabbench.remote.relay import relay
from fabbench.remote.session import RemoteAllocation
from fabbench.remote.ssh_transport import SshHost, SshTransport
from fabbench.remote.transport import HostGoneError, Transport

OnProgress: TypeAlias = Callable[[int], None]
"""Gets the number of hosts done."""
_PROBE_S = 60.0
_MAX_SHOWN = 5


@contextmanager
def connected(
    target: Target, names: Sequence[str], on_progress: OnProgress | None = None
) -> Iterator[Results[SshTransport]]:
    """Connect to hosts. All are closed at the end."""
    options = target.options_as(SshOptions)
    if not all(names):
        raise RequestError("A host name is empty.", hint="Use the name you would pass to ssh.")
    client = _client(options.ssh_client)
    connections = [client(SshHost(name=name, options=options)) for name in names]
    with ExitStack() as closing:
        # Before they connect: an interrupt meanwhile leaves none open.
        for connection in connections:
            closing.callback(connection.close)
        yield connect_all(connections, on_progress)


def connect_all(
    hosts: Sequence[SshTransport], on_progress: OnProgress | None = None
) -> dict[str, SshTransport | MachineError]:
    """Connect to hosts: name → connection or error.

    Ctrl-C (any exception in this thread) closes all connections at once and is passed on.
    """
    by_name = {host.name: host for host in hosts}

    def stop() -> None:
        for host in hosts:
            host.close()

    done = map_hosts(by_name, SshTransport.connect, on_progress=on_progress, stop=stop)
    # `connect` returns nothing: what is there is an error.
    return {name: error or by_name[name] for name, error in done.items()}


def _client(chosen: str) -> Callable[[SshHost], SshTransport]:
    """Return the client that connects. Raise RequestError if OpenSSH is chosen and missing."""
    if chosen == "paramiko" or (chosen == "auto" and shutil.which("ssh") is None):
        from fabbench.remote.paramiko_client import Paramiko

        return Paramiko
    from fabbench.remote.openssh import OpenSsh

    if shutil.which("ssh") is None:
        raise RequestError(
            "ssh-client is openssh, but ssh was not found on this machine.",
            hint="Install it (openssh-client), or use --set ssh-client=paramiko.",
        )
    return OpenSsh


def probe(
    connection: Transport, target: Target, needs: Needs, variant: Variant = DEFAULT_VARIANT
) -> Probe:
    """Probe a host. Raise MachineError if it does not answer."""
    # The script goes to standard input: the command line stays short and readable for any login
    # shell. It runs with the variant's variables and libraries: what a run of it would find.
    shell = ("sh", "-s", "--", *arguments_for(target, needs, variant.paths))
    settings = (f"{name}={value}" for name, value in variant.env.items())
    argv = ("env", *settings, *with_libraries(shell, variant.paths))
    done = connection.run(argv, stdin=script().encode(), timeout_s=_PROBE_S)
    return read_probe(done.out)


def usable(results: Results[T], needs: Needs) -> dict[str, T]:
    """Return the hosts of which a step of opening them succeeded.

    Of hosts that may be divided, those that can be used are enough: the plan takes what is there.
    Otherwise each is needed: raise MachineError if one failed.
    """
    fine = succeeded(results)
    # A ladder, whose programs are optional, tests a node alone, too; a sweep needs a pair
    fewest = 1 if needs.optional else 2
    if needs.divided and len(fine) >= fewest:
        return fine
    return require_all(results)


def failures(results: Results[object]) -> dict[str, str]:
    """Return the hosts of which a step of opening them failed → why."""
    return map_values(str, failed(results))


@contextmanager
def hold(
    inventory: Inventory,
    connections: Mapping[str, Transport],
    needs: Needs,
    *,
    lost_after_s: float,
    parent: int | None = None,
) -> Iterator[RemoteAllocation]:
    """Run the agent on all machines, and clean up at the end. Raise MachineError if any is left.

    Where hosts may be divided, one on which it does not start is left out.

    `connections`: name of each host, in the inventory's order → its connection; one alone is that
    of all hosts. See `RemoteHost` for the rest.
    """
    token = secrets.token_hex(6)
    machines = [
        RemoteHost(name, each, token=token, lost_after_s=lost_after_s, parent=parent)
        for name, each in connections.items()
    ]
    try:
        by_name = {machine.name: machine for machine in machines}
        lost = _start_agents(by_name, needs)
        machines = [each for each in machines if each.name not in lost]
        inventory = without(inventory, lost)
        if busy := neighbors(machines):
            logging.getLogger(__name__).warning(
                "Warning: fabbench already runs on %s: both get worse figures.", listed(busy)
            )
        with _agent_for_mpirun(inventory, machines, needs) as agent:
            # More than one host of each machine: they are virtual, and it is the only machine.
            hosts_each = len(inventory.hosts) // len(machines)
            remotes = tuple(machines) * hosts_each
            yield RemoteAllocation(inventory=inventory, remotes=remotes, agent=agent)
    except BaseException as error:
        for sentence in clean_up(machines):
            error.add_note(sentence)
        raise
    _require_clean(machines)


def _require_clean(machines: Sequence[RemoteHost]) -> None:
    """Remove everything. Raise HostGoneError for a host that is gone, MachineError for the rest."""
    leftovers = clean_up(machines)
    # Before leftovers: by this error the run knows that programs failed with their host.
    for machine in machines:
        if isinstance(machine.lost, HostGoneError):
            raise machine.lost
    if leftovers:
        raise MachineError(
            " ".join(leftovers[:_MAX_SHOWN]), hint="Look for it there, and stop or remove it."
        )


def _start_agents(machines: Mapping[str, RemoteHost], needs: Needs) -> Reasons:
    """Start the agent on machines, and return those that are left out → why.

    Raise MachineError if the others are not enough.
    """
    started = map_hosts(machines, RemoteHost.start)
    usable(started, needs)  # Only to raise
    lost = failures(started)
    # A start whose answer was lost may have left something.
    clean_up([machines[name] for name in lost])
    return lost


def without(inventory: Inventory, lost: Reasons) -> Inventory:
    """Return the inventory without hosts that cannot be used: name → why."""
    if not lost:
        return inventory
    left = [at for at, name in enumerate(inventory.names) if name not in lost]
    unreachable = {**inventory.unreachable, **lost}
    return replace(inventory.part(left), unreachable=unreachable)


def _agent_for_mpirun(
    inventory: Inventory, machines: Sequence[RemoteHost], needs: Needs
) -> AbstractContextManager[Words]:
    """Return how mpirun reaches the other hosts, if it is needed."""
    # Each part of divided hosts starts mpirun on its own first host, which may be any.
    if needs.mpi:
        return relay(inventory, machines, any_head=needs.divided)
    return nullcontext(())


def clean_up(remotes: Sequence[RemoteHost]) -> list[str]:
    """Remove everything from all hosts, interrupted or not. Return sentences about what is left."""

    def clean_all() -> list[str]:
        # In threads, which continue when this one is interrupted.
        cleaned = map_hosts({remote.name: remote for remote in remotes}, RemoteHost.clean)
        # `clean` makes sentences of its errors.
        return list(chain.from_iterable(succeeded(cleaned).values()))

    try:
        return clean_all()
    except KeyboardInterrupt as interrupt:
        # Waits for the hosts in progress, and returns what those that are done left.
        for sentence in clean_all():
            interrupt.add_note(sentence)
        raise
