"""Hosts that a user names: connected, probed, and with the agent on each an allocation to run on."""

import contextlib
import shutil
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import TypeVar

from fabbench.execution.runner import run_steps
from fabbench.hosts.discover import folders, programs
from fabbench.hosts.probe import probe_arguments, read_probe, script
from fabbench.hosts.probe_result import Probe
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.model.log import Ending
from fabbench.model.plan import DEFAULT_VARIANT, Execution, Variant
from fabbench.plan.request import with_libraries
from fabbench.remote.host import RemoteHost
from fabbench.remote.options import SshOptions
from fabbench.remote.parallel import connect_all, map_hosts
from fabbench.remote.session import HeldHosts, RemoteSession
from fabbench.remote.ssh_transport import SshHost, SshTransport
from fabbench.remote.transport import HostGoneError, Transport

T = TypeVar("T")

_PROBE_S = 60.0
_MAX_SHOWN = 5


@contextlib.contextmanager
def connected(
    target: Target, names: Sequence[str], on_progress: Callable[[int], None] | None = None
) -> Iterator[Mapping[str, SshTransport | MachineError]]:
    """Connect to hosts; `on_progress` gets the number of hosts done. All are closed at the end."""
    options = target.options_as(SshOptions)
    if not all(names):
        raise RequestError("A host name is empty.", hint="Use the name you would pass to ssh.")
    client = _client(options.ssh_client)
    connections = [
        client(
            SshHost(
                name=name,
                user=options.user,
                port=options.port,
                identity=str(options.identity) if options.identity else None,
                config=str(options.ssh_config) if options.ssh_config else None,
                accept_new=options.accept_new_host_keys,
            )
        )
        for name in names
    ]
    try:
        yield connect_all(connections, on_progress)
    finally:
        for connection in connections:
            connection.close()


def _client(chosen: str) -> Callable[[SshHost], SshTransport]:
    """Return the client that connects. Raise RequestError if OpenSSH is chosen and missing."""
    if chosen == "paramiko" or (chosen == "auto" and shutil.which("ssh") is None):
        from fabbench.remote.paramiko_client import Paramiko

        return Paramiko
    from fabbench.remote.openssh import OpenSsh

    if shutil.which("ssh") is None:
        raise RequestError(
            "--ssh-client is openssh, but ssh was not found on this machine.",
            hint="Install it (openssh-client), or use --ssh-client paramiko.",
        )
    return OpenSsh


def probe(connection: Transport, target: Target, needs: Needs, variant: Variant = DEFAULT_VARIANT) -> Probe:
    """Probe a host. Raise MachineError if it does not answer."""
    # The script goes to standard input: the command line stays short and readable for any login shell.
    shell = ("sh", "-s", "--", *probe_arguments(programs(needs), folders(target), variant.paths))
    settings = (f"{name}={value}" for name, value in variant.env.items())
    argv = ("env", *settings, *with_libraries(shell, variant.paths))
    done = connection.run(argv, stdin=script().encode(), timeout_s=_PROBE_S)
    return read_probe(done.out)


def host_names(target: Target) -> tuple[str, ...]:
    """Choose the hosts. Raise RequestError if none or too few are named, or one is named twice."""
    if not target.hosts:
        raise RequestError(
            "No hosts specified.", hint="Pass --host once per host, or --on with a target of fabbench.yaml."
        )
    twice = {name for name in target.hosts if target.hosts.count(name) > 1}
    if twice:
        raise RequestError(f"{', '.join(sorted(twice))} is given twice.", hint="List every host once.")
    if target.nodes is not None and target.nodes > len(target.hosts):
        raise RequestError(f"--nodes is {target.nodes}, but only {len(target.hosts)} hosts were given.")
    return target.hosts[: target.nodes]


def require_all(results: Mapping[str, T | MachineError]) -> dict[str, T]:
    """Return the results, or raise MachineError with the errors and hints of all hosts that failed."""
    failed = {name: result for name, result in results.items() if isinstance(result, MachineError)}
    if failed:
        shown = list(failed.items())[:_MAX_SHOWN]
        more = f" And {len(failed) - _MAX_SHOWN} more hosts." if len(failed) > _MAX_SHOWN else ""
        hints = {name: error.hint for name, error in shown if error.hint}
        if len(set(hints.values())) > 1:
            hints = {name: f"For {name}: {hint}" for name, hint in hints.items()}
        hint = " ".join(dict.fromkeys(hints.values()))
        raise MachineError(" ".join(str(error) for _, error in shown) + more, hint=hint or None)
    return {name: result for name, result in results.items() if not isinstance(result, MachineError)}


def answering(results: Mapping[str, T | MachineError]) -> dict[str, T]:
    """Return the results of hosts that answer, where two are enough; raise as `require_all` does if fewer do."""
    known = {name: result for name, result in results.items() if not isinstance(result, MachineError)}
    return known if len(known) > 1 else require_all(results)


def distinct(probes: Mapping[str, Probe]) -> Mapping[str, Probe]:
    """Return the probes unchanged. Raise RequestError if two names lead to one machine."""
    by_machine: dict[str, list[str]] = {}
    for name, result in probes.items():
        by_machine.setdefault(result.identity or name, []).append(name)
    for same in by_machine.values():
        if len(same) > 1:
            raise RequestError(
                f"{' and '.join(same)} are the same machine ({probes[same[0]].hostname}).",
                hint="Name each machine once.",
            )
    return probes


@dataclass(frozen=True, slots=True)
class RemoteAllocation:
    """Connected machines, with fabbench's agent on each; see `fabbench.launchers.Allocation`."""

    inventory: Inventory
    held: HeldHosts
    documents: Mapping[str, str] = field(default_factory=dict)
    """What was created to allocate these machines, for the record: file name → document."""
    concurrent: bool = True

    def part(self, hosts: Sequence[int], ended: Event) -> "RemoteAllocation":
        """Return some of the machines. If `Needs.divided` is set, mpirun starts on the first of them."""
        held = replace(
            self.held,
            hosts=tuple(self.held.hosts[index] for index in hosts),
            remotes=tuple(self.held.remotes[index] for index in hosts),
            ended=ended,
        )
        return RemoteAllocation(self.inventory.part(hosts), held, concurrent=self.concurrent)

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        """Run an execution over the hosts."""
        held = replace(self.held, hosts=self.inventory.hosts_for_variant(execution.configuration.variant))
        return run_steps(lambda step: RemoteSession(held, step), execution)

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Read the NIC counters of every host that answers."""
        read = map_hosts({remote.name: remote for remote in self.held.machines}, _counters)
        return {name: lines for name, lines in read.items() if not isinstance(lines, MachineError)}


@contextlib.contextmanager
def agents(remotes: Sequence[RemoteHost]) -> Iterator[None]:
    """Run the agent on all hosts, and clean up at the end. Raise MachineError if anything is left."""
    try:
        require_all(map_hosts({remote.name: remote for remote in remotes}, RemoteHost.start))
        yield
    except BaseException as error:
        for sentence in _clean_up(remotes):
            error.add_note(sentence)
        raise
    leftovers = _clean_up(remotes)
    for remote in remotes:
        if isinstance(remote.lost, HostGoneError):
            raise remote.lost
    if leftovers:
        raise MachineError(" ".join(leftovers[:_MAX_SHOWN]), hint="Look for it there, and stop or remove it.")


def _clean_up(remotes: Sequence[RemoteHost]) -> list[str]:
    """Remove everything from all hosts, interrupted or not. Return sentences about what is left."""
    try:
        return _remove_all(remotes)
    except KeyboardInterrupt as interrupt:
        for sentence in _remove_all(remotes):
            interrupt.add_note(sentence)
        raise


def _remove_all(remotes: Sequence[RemoteHost]) -> list[str]:
    # The first one first: if hosts share a home, this removes the key for all.
    # In threads, which continue when this one is interrupted.
    cleaned = map_hosts({remote.name: remote for remote in remotes[:1]}, RemoteHost.clean)
    cleaned |= map_hosts({remote.name: remote for remote in remotes[1:]}, RemoteHost.clean)
    return [text for texts in cleaned.values() if not isinstance(texts, MachineError) for text in texts]


def _counters(remote: RemoteHost) -> list[str]:
    return remote.run("counters").out
