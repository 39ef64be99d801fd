"""The launcher ``ssh``: hosts that ssh reaches, of which the first one runs mpirun."""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from fabbench.execution.worker_pool import map_hosts, require_all
from fabbench.hosts.check import Progress
from fabbench.hosts.discover import folders, inventories, programs
from fabbench.hosts.probe import probe_arguments
from fabbench.hosts.probe_result import Probe
from fabbench.launchers import Examined, Launcher, notify, refuse_images
from fabbench.launchers.ssh import SshLauncherOptions
from fabbench.model.compat import override
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.model.messages import listed
from fabbench.model.plan import Variant
from fabbench.remote import SshOptions
from fabbench.remote.allocation import connected, hold, probe
from fabbench.remote.check_hosts import host_relations, in_one_line, probe_in_shell
from fabbench.remote.host import RemoteHost
from fabbench.remote.session import RemoteAllocation
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
        names = _host_names(target)
        with connected(target, names) as results:
            hosts = _inventory(target, needs, results)
            wait = target.options_as(SshOptions).lost_after
            with hold(hosts, _made(results), needs, lost_after_s=wait) as allocation:
                _warn_of_others(allocation.remotes)
                yield allocation

    @override
    def preview(self, target: Target, needs: Needs) -> Inventory:
        refuse_images(target.variants, "the launcher ssh")
        with connected(target, _host_names(target)) as results:
            return _inventory(target, needs, results)

    def examine(self, target: Target, needs: Needs, *, deep: bool, progress: Progress) -> Examined:
        """Probe all hosts in parallel, and have them connect to each other."""
        del deep
        names = _host_names(target)
        arguments = probe_arguments(programs(needs), folders(target))

        def on_connected(done: int) -> None:
            progress("connecting", done, len(names))

        with connected(target, names, on_connected) as results:
            connections = _made(results)
            answers = map_hosts(
                connections,
                lambda one: probe_in_shell(one, one.name, arguments),
                len(names),
                lambda done: progress("probing", done, len(connections)),
            )
            probed = {
                name: one for name, one in answers.items() if not isinstance(one, MachineError)
            }
            probes = distinct({name: one.probe for name, one in probed.items()})
            progress("testing connections between them", 0, len(probed))
            relations = host_relations(target, probed)
        unreachable: dict[str, str] = {}
        for name in names:
            result = answers.get(name, results[name])
            if isinstance(result, MachineError):
                unreachable[name] = in_one_line(result)
        return Examined(probes=probes, relations=replace(relations, unreachable=unreachable))


LAUNCHER = SshLauncher()


def _made(results: Mapping[str, SshTransport | MachineError]) -> dict[str, SshTransport]:
    """Return the connections that could be made."""
    return {name: each for name, each in results.items() if isinstance(each, SshTransport)}


def _warn_of_others(remotes: Sequence[RemoteHost]) -> None:
    """Notify the user of other runs of fabbench on the hosts."""
    busy = [remote for remote in remotes if remote.others]
    if busy:
        names = listed([remote.name for remote in busy])
        others = set(chain.from_iterable(remote.others for remote in busy))
        users = ", ".join(sorted(others))
        notify(f"Warning: fabbench already runs on {names} (as {users}): both get worse figures.")


def _host_names(target: Target) -> tuple[str, ...]:
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


def _inventory(
    target: Target, needs: Needs, results: Mapping[str, SshTransport | MachineError]
) -> Inventory:
    known = _made(results)
    # Of hosts that may be divided, those that answer are enough.
    connections = known if needs.divided and len(known) > 1 else require_all(results)

    def probe_all(target: Target, variant: Variant) -> Mapping[str, Probe]:
        probes = map_hosts(connections, lambda each: probe(each, target, needs, variant))
        return distinct(require_all(probes))

    left_out = {name: str(each) for name, each in results.items() if name not in known}
    return replace(inventories(target, needs, probe_all), unreachable=left_out)


def distinct(probes: Mapping[str, Probe]) -> Mapping[str, Probe]:
    """Return the probes unchanged. Raise RequestError if two names lead to one machine."""
    by_machine: dict[str, list[str]] = {}
    for name, result in probes.items():
        by_machine.setdefault(result.identity or name, []).append(name)
    for same in by_machine.values():
        if len(same) > 1:
            names = " and ".join(same)
            hostname = probes[same[0]].hostname
            raise RequestError(
                f"{names} are the same machine ({hostname}).",
                hint="Name each machine once.",
            )
    return probes
