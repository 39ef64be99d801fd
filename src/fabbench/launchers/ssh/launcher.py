"""The launcher ``ssh``: hosts that ssh reaches, of which the first one runs mpirun."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace

from fabbench.execution.worker_pool import Results, failed, map_hosts, succeeded
from fabbench.hosts.check import Progress
from fabbench.hosts.discover import arguments_for, inventories
from fabbench.hosts.probe_result import Probes
from fabbench.launchers import Connections, Examined, Launcher, refuse_images
from fabbench.launchers.ssh import SshLauncherOptions
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.model.mappings import Names, gathered, map_values
from fabbench.model.plan import Variant
from fabbench.remote import SshOptions
from fabbench.remote.allocation import connected, failures, hold, probe, usable, without
from fabbench.remote.check_hosts import host_relations, in_one_line, probe_in_shell, try_to_open
from fabbench.remote.session import RemoteAllocation
from fabbench.remote.ssh_transport import SshTransport


class SshLauncher(Launcher):
    """The launcher ``ssh``."""

    name = "ssh"
    options = SshLauncherOptions
    inherits = True

    @contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[RemoteAllocation]:
        """Connect to all hosts, probe them and install the agent on them."""
        refuse_images(target.variants, "the launcher ssh")
        names = _host_names(target)
        with connected(target, names) as results:
            hosts, connections = _probe_usable(target, needs, results)
            wait = target.options_as(SshOptions).lost_after
            with hold(hosts, connections, needs, lost_after_s=wait) as allocation:
                yield allocation

    @override
    def preview(self, target: Target, needs: Needs) -> Inventory:
        refuse_images(target.variants, "the launcher ssh")
        with connected(target, _host_names(target)) as results:
            return _probe_usable(target, needs, results)[0]  # without the connections

    def examine(self, target: Target, needs: Needs, *, deep: bool, progress: Progress) -> Examined:
        """Probe all hosts in parallel, and have them connect to each other."""
        del deep
        names = _host_names(target)
        arguments = arguments_for(target, needs)

        def on_connected(done: int) -> None:
            progress("connecting", done, len(names))

        with connected(target, names, on_connected) as results:
            connections = succeeded(results)
            answers = map_hosts(
                connections,
                lambda host: probe_in_shell(host, host.name, arguments),
                workers=len(names),
                on_progress=lambda done: progress("probing", done, len(connections)),
            )
            probed = succeeded(answers)
            probes = of_different_machines({name: answer.probe for name, answer in probed.items()})
            progress("writing files", 0, len(probed))
            openings = try_to_open({name: connections[name] for name in probed})
            progress("testing connections between them", 0, len(probed))
            relations = host_relations(target, probed)
        # A host without a connection has no answer.
        last = {name: answers.get(name, results[name]) for name in names}
        whys = failed(last)
        unreachable = map_values(in_one_line, whys)
        return Examined(
            probes=probes, relations=replace(relations, unreachable=unreachable, openings=openings)
        )

    @override
    def connections(self, target: Target, wait_s: float) -> Connections:
        del wait_s  # The hosts are there
        return connected(target, _host_names(target))


LAUNCHER = SshLauncher()


def _host_names(target: Target) -> Names:
    """Choose the hosts. Raise RequestError if none or too few are named, or one is named twice."""
    if not target.hosts:
        raise RequestError(
            "No hosts specified.",
            hint="Pass --host once per host, or --on with a target of fabbench.yaml.",
        )
    twice = {name for name in target.hosts if target.hosts.count(name) > 1}
    if twice:
        names = ", ".join(sorted(twice))
        raise RequestError(f"{names} is given twice.", hint="List every host once.")
    if target.nodes is not None and target.nodes > len(target.hosts):
        raise RequestError(
            f"--nodes is {target.nodes}, but only {len(target.hosts)} hosts were given."
        )
    return target.hosts[: target.nodes]


def _probe_usable(
    target: Target, needs: Needs, results: Results[SshTransport]
) -> tuple[Inventory, Mapping[str, SshTransport]]:
    """Return the inventory of the hosts that can be used, and their connections.

    Raise MachineError for one that cannot, unless those that can are enough.
    """
    connections = usable(results, needs)
    lost = failures(results)

    def probe_all(target: Target, variant: Variant) -> Probes:
        nonlocal connections  # those that fail for one variant are not probed for the next
        answers = map_hosts(connections, lambda host: probe(host, target, needs, variant))
        probes = usable(answers, needs)
        lost.update(failures(answers))
        connections = {name: connections[name] for name in probes}
        return of_different_machines(probes)

    inventory = inventories(target, needs, probe_all)
    return without(inventory, lost), connections


def of_different_machines(probes: Probes) -> Probes:
    """Return the probes unchanged. Raise RequestError if two names lead to one machine."""
    # One that does not tell its identity counts as another.
    machines = {name: each.identity or name for name, each in probes.items()}
    names_of_machine = gathered((machine, name) for name, machine in machines.items())
    for same in names_of_machine.values():
        if len(same) > 1:
            names = " and ".join(same)
            hostname = probes[same[0]].hostname
            raise RequestError(
                f"{names} are the same machine ({hostname}).",
                hint="Name each machine once.",
            )
    return probes
