"""Probe results of hosts → the inventory from which plans are made. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from fabbench.catalog.images import program_folders
from fabbench.hosts.check.model import HostChecks
from fabbench.hosts.check.one_host import mpirun
from fabbench.hosts.probe import probe_arguments
from fabbench.hosts.probe_result import Probe, Probes
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hostlist import compress_hostlist
from fabbench.model.hosts import Host, Hosts, Inventory, Needs, Target
from fabbench.model.mappings import (
    Paths,
    distinct,
    gathered,
    map_values,
    without_empty,
    without_none,
)
from fabbench.model.plan import DEFAULT_VARIANT, Variant, Words

MPIRUN = "mpirun"
_MAX_SHOWN = 4  # Hosts with their paths, in an error


ProbeHosts = Callable[[Target, Variant], Probes]
"""Probes all hosts in the environment of a variant: name → probe."""


def for_variant(target: Target, variant: Variant) -> Target:
    """Return the target with a variant's settings applied."""
    return replace(
        target,
        variants=(),  # It has them applied, and no others
        bin_dirs=(*program_folders(variant.paths), *target.bin_dirs),
        interface=variant.interface or target.interface,
        mpirun=variant.mpirun or target.mpirun,
    )


def inventories(target: Target, needs: Needs, probe_hosts: ProbeHosts) -> Inventory:
    """Return the inventory of hosts as each variant sees them.

    Variants with the same view share a probe.

    Raise MachineError if hosts lack something.
    """
    if not target.variants:
        return inventory(target, probe_hosts(target, DEFAULT_VARIANT), needs)
    probed: dict[object, Probes] = {}
    views: dict[str, Hosts] = {}
    for variant in target.variants:
        variant_target = for_variant(target, variant)
        environment = tuple(variant.env.items())
        # What a probe depends on; an interface is chosen from what it reports.
        view = (variant.image, variant.paths, variant.mpirun, environment)
        try:
            if view not in probed:
                probed[view] = probe_hosts(variant_target, variant)
            views[variant.name] = inventory(variant_target, probed[view], needs).hosts
        except (MachineError, RequestError) as error:
            sentence, *others = error.args
            error.args = (f"With the variant {variant.name}: {sentence}", *others)
            raise
    first = next(iter(views.values()))  # Hosts are shown as the first variant sees them
    return Inventory(target=target.name, hosts=first, variants=views)


_NOTHING = "no program, and no library that one links to"


def provided_by_variants(inventory: Inventory, variants: Sequence[Variant]) -> Iterator[str]:
    """Yield for each variant with directories which programs and libraries come from there.

    A sentence each; none for a variant whose hosts were not probed.
    """
    for variant in variants:
        hosts = inventory.hosts_for_variant(variant.name) if variant.paths else ()
        probed = [host for host in hosts if host.variant_files is not None]
        if not probed:
            continue
        files = [PurePosixPath(path).name for host in probed for path in host.variant_files or ()]
        provided = ", ".join(distinct(files)) or _NOTHING
        without = ", ".join(host.name for host in probed if not host.variant_files)
        some = f", but nothing on {without}" if files and without else ""
        yield f"Variant {variant.name} ({variant}) provides {provided}{some}."


def arguments_for(target: Target, needs: Needs, required: Paths = ()) -> Words:
    """Return the probe's arguments for a target's hosts; `required`: see `probe_arguments`."""
    mpirun = (MPIRUN,) if needs.mpi else ()
    return probe_arguments((*needs.programs, *mpirun), _folders(target), required)


def missing_programs(probes: Probes, needed: Mapping[str, Needs]) -> list[str]:
    """Return which of some programs hosts lack, as sentences; `needed`: program → what needs it."""
    lacking = gathered(
        (name, host)  # program → hosts
        for host, probe in probes.items()
        for name in probe.missing
    )
    named = [name for name in needed if name in lacking]
    return [not_found(name, lacking[name], needed[name]) for name in named]


def unmet(needs: Needs, hosts: Sequence[Host]) -> Iterator[str]:
    """Yield which programs hosts lack, as sentences.

    A program whose directory is searched only when it is started may be there.
    """
    for program in needs.programs:
        without = [host for host in hosts if program not in host.programs]
        lacking = [host.name for host in without if program not in host.searched]
        if lacking:
            yield not_found(program, lacking, needs)


def not_found(program: str, hosts: Sequence[str], needs: Needs) -> str:
    """Say that hosts lack a program, and how it is installed."""
    return f"{_not_found(program, hosts)} Install it: {needs.install}."


def _not_found(program: str, hosts: Sequence[str]) -> str:
    return f"{program} not found on {compress_hostlist(hosts)}."


def inventory(target: Target, probes: Probes, needs: Needs) -> Inventory:
    """Return the inventory of hosts, given by name. Raise MachineError if hosts lack something."""
    _require_directories(probes)
    _require_programs(probes, needs)
    if needs.mpi:
        _require_same_paths(probes, needs)
    hosts = tuple(_host(name, probe, target) for name, probe in probes.items())
    if needs.mpi and not needs.optional:  # Optional: a host may lack mpirun, too
        # Where mpirun is started: on the first host of each part, which may be any host.
        starting = list(probes) if needs.divided else list(probes)[:1]
        for name in starting:
            checks = HostChecks(host=name, probe=probes[name], needs=needs)
            _require_mpirun(checks, target.mpirun)
    return Inventory(target=target.name, hosts=hosts)


def _require_directories(probes: Probes) -> None:
    """Raise MachineError if hosts lack a directory that must exist."""
    lacking = gathered(
        (path, name)  # directory → hosts
        for name, probe in probes.items()
        for path in probe.absent
    )
    absent = [f"{path} on {compress_hostlist(names)}" for path, names in lacking.items()]
    if absent:
        listed = ", ".join(absent)
        raise MachineError(
            f"Directory not found: {listed}.",
            hint="Nothing was started. All hosts need it at the same path.",
        )


def _require_programs(probes: Probes, needs: Needs) -> None:
    """Raise MachineError if hosts lack a program, unless the programs are optional."""
    if needs.optional:
        return
    lacking = gathered(
        (program, name)
        for program in needs.programs
        for name, probe in probes.items()
        if program not in probe.programs
    )
    if lacking:
        sentences = [_not_found(program, names) for program, names in lacking.items()]
        raise MachineError(" ".join(sentences), hint=f"Install it: {needs.install}.")


def _folders(target: Target) -> Paths:
    """Return where hosts look for programs first: the target's mpirun itself, and directories.

    The probe takes the path of a program, in place of a directory, as that of mpirun.
    """
    if target.mpirun is None:
        return target.bin_dirs
    of_mpirun, _, _ = target.mpirun.rpartition("/")
    return (target.mpirun, of_mpirun, *target.bin_dirs)


def _require_same_paths(probes: Probes, needs: Needs) -> None:
    """Raise MachineError if hosts have a program at different paths: ranks are started by one."""
    for program in needs.programs:
        paths = {
            name: probe.programs[program].path
            for name, probe in probes.items()
            if program in probe.programs
        }
        if len(set(paths.values())) > 1:
            places = [f"{path} on {name}" for name, path in paths.items()]
            named = ", ".join(places[:_MAX_SHOWN])
            raise MachineError(
                f"{program} is not at the same path on all hosts: {named}.",
                hint="mpirun needs one path: pass a directory that all hosts have with --bin-dir.",
            )


def _require_mpirun(checks: HostChecks, requested: str | None) -> None:
    """Raise MachineError if the requested mpirun, else any, is missing or unsupported."""
    installed = checks.probe.programs
    path = installed[MPIRUN].path if MPIRUN in installed else "none"
    if requested is not None and path != requested:
        raise MachineError(
            f"{requested} not found on {checks.host}, but {path}.", hint="Pass another --mpirun."
        )
    if checks.probe.mpi is None:
        check = checks.check(MPIRUN, mpirun(checks))
        raise MachineError(f"{checks.host}: {check.seen}", hint=check.advice)


def _host(name: str, probe: Probe, target: Target) -> Host:
    # What was probed, unless the target says otherwise: the interface, and the number of GPUs.
    address, interface = _address(probe, target)
    domains = gathered((each.provider, each.name) for each in probe.domains)
    gids = {port.name: port.roce_v2_gid for port in probe.devices}
    return Host(
        name=name,
        address=address,
        interface=interface,
        providers=probe.providers,
        domains=map_values(distinct, domains),
        devices={port.name: str(port.link) for port in probe.devices},
        gids=without_none(gids),
        topology=probe.topology,
        gpus=len(probe.gpus) if target.gpus is None else target.gpus,
        gpu_model=probe.gpus[0].name if probe.gpus else "",
        instance_type=probe.instance_type,
        serials=probe.serials,
        programs={program: found.path for program, found in probe.programs.items()},
        variant_files=probe.variant_files,
        mpi=probe.mpi,
        versions=_versions(probe),
        search_notes=_search_notes(name, probe),
    )


def _versions(probe: Probe) -> dict[str, str]:
    mpi = probe.mpi
    versions = {
        "libfabric": probe.libfabric,
        "efa_installer": probe.efa_installer,
        "efa_driver": probe.efa_driver,
        "nvidia_driver": probe.gpu_driver,
        "nic_driver": probe.nic_driver,
        "nic_firmware": probe.nic_firmware,
        "mpi": f"{mpi.kind} {mpi.version}" if mpi else "",
        "kernel": probe.kernel,
    }
    return without_empty(versions)  # Those that are known


def _search_notes(name: str, probe: Probe) -> tuple[str, ...]:
    """Return where fabrics were looked for on a host, and what was found."""
    providers = ", ".join(sorted(probe.providers))
    if not providers:
        timed_out = probe.fi_info.status in {124, 137}  # statuses of `timeout`
        providers = "nothing, it timed out" if timed_out else "none"
    fi_info = probe.fi_info_path or "no fi_info"
    devices = ", ".join(port.name for port in probe.devices) or "none"
    return (
        f"Looked for libfabric providers on {name} with {fi_info}: found {providers}.",
        f"Looked for RDMA devices in /sys/class/infiniband: found {devices}.",
    )


def _address(probe: Probe, target: Target) -> tuple[str, str]:
    """Return address and interface for the other hosts: as requested, else where ssh came in.

    Else those of the default route. The interface is empty if none has that address.
    """
    with_address = [interface for interface in probe.interfaces if interface.address]
    if target.interface:
        for interface in with_address:
            if interface.name == target.interface:
                return interface.address, interface.name
        names = distinct(interface.name for interface in with_address)
        others = ", ".join(names) or "none"
        raise MachineError(
            f"{probe.hostname} has no interface {target.interface} with an IPv4 address, "
            f"but {others}.",
            hint="Choose one that every host has.",
        )
    by_ssh = [each for each in with_address if each.address == probe.ssh_address]
    by_route = [each for each in with_address if each.name == probe.default_interface]
    for interface in (*by_ssh, *by_route):
        return interface.address, interface.name
    return probe.ssh_address, ""
