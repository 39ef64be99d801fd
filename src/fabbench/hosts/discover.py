"""Probe results of hosts → the inventory from which plans are made. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from fabbench.catalog.images import program_folders
from fabbench.hosts.check.model import HostChecks
from fabbench.hosts.check.one_host import mpirun
from fabbench.hosts.probe_result import Probe
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hostlist import compress_hostlist
from fabbench.model.hosts import Host, Inventory, Needs, Target
from fabbench.model.plan import DEFAULT_VARIANT, Variant

MPIRUN = "mpirun"


ProbeHosts = Callable[[Target, Variant], Mapping[str, Probe]]
"""Probes all hosts in the environment of a variant: name → probe."""


def for_variant(target: Target, variant: Variant) -> Target:
    """Return the target with a variant's settings applied."""
    return replace(
        target,
        variants=(),
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
    probed: dict[object, Mapping[str, Probe]] = {}
    views: dict[str, tuple[Host, ...]] = {}
    for variant in target.variants:
        variant_target = for_variant(target, variant)
        view = (variant.image, variant.paths, variant.mpirun, tuple(variant.env.items()))
        try:
            if view not in probed:
                probed[view] = probe_hosts(variant_target, variant)
            views[variant.name] = inventory(variant_target, probed[view], needs).hosts
        except (MachineError, RequestError) as error:
            error.args = (f"With the variant {variant.name}: {error.args[0]}", *error.args[1:])
            raise
    return Inventory(target=target.name, hosts=next(iter(views.values())), variants=views)


def loaded(inventory: Inventory, variants: Sequence[Variant]) -> Iterator[str]:
    """Yield a sentence for each variant with directories.

    Which programs and libraries come from there.
    """
    for variant in variants:
        if not variant.paths:
            continue
        hosts = [
            host
            for host in inventory.hosts_for_variant(variant.name)
            if host.variant_files is not None
        ]
        if not hosts:
            continue
        names = dict.fromkeys(
            path.rpartition("/")[2] for host in hosts for path in host.variant_files or ()
        )
        without = [host.name for host in hosts if not host.variant_files]
        nothing = "no program, and no library that one links to"
        some = f", but nothing on {', '.join(without)}" if names and without else ""
        yield f"Variant {variant.name} ({variant}) provides {', '.join(names) or nothing}{some}."


def programs(needs: Needs) -> tuple[str, ...]:
    """Return the names of the programs that hosts are to report."""
    return (*needs.programs, MPIRUN) if needs.mpi else needs.programs


def inventory(target: Target, probes: Mapping[str, Probe], needs: Needs) -> Inventory:
    """Return the inventory of hosts, given by name. Raise MachineError if hosts lack something."""
    gone = dict.fromkeys(path for probe in probes.values() for path in probe.absent)
    absent = [
        f"{path} on {compress_hostlist(name for name in probes if path in probes[name].absent)}"
        for path in gone
    ]
    if absent:
        raise MachineError(
            f"Directory not found: {', '.join(absent)}.",
            hint="Nothing was started. All hosts need it at the same path.",
        )
    lacking = (
        (each, [name for name in probes if each not in probes[name].programs])
        for each in needs.programs
    )
    problems = [
        f"{each} not found on {compress_hostlist(names)}." for each, names in lacking if names
    ]
    if problems and not needs.optional:
        raise MachineError(" ".join(problems), hint=f"Install it: {needs.install}.")
    if needs.mpi:
        _require_same_paths(probes, needs)
    hosts = tuple(_host(name, probe, target) for name, probe in probes.items())
    if needs.mpi and not needs.optional:
        for name in list(probes) if needs.divided else list(probes)[:1]:
            _require_mpirun(HostChecks(host=name, probe=probes[name], needs=needs), target.mpirun)
    return Inventory(target=target.name, hosts=hosts)


def folders(target: Target) -> tuple[str, ...]:
    """Return where hosts look for programs first.

    In the target's mpirun itself, and in directories.
    """
    if target.mpirun is None:
        return target.bin_dirs
    return (target.mpirun, target.mpirun.rpartition("/")[0], *target.bin_dirs)


def _require_same_paths(probes: Mapping[str, Probe], needs: Needs) -> None:
    """Raise MachineError if hosts have a program at different paths.

    All ranks are started by one path.
    """
    for program in needs.programs:
        paths = {
            name: probe.programs[program].path
            for name, probe in probes.items()
            if program in probe.programs
        }
        if len(set(paths.values())) > 1:
            named = ", ".join(f"{path} on {name}" for name, path in list(paths.items())[:4])
            raise MachineError(
                f"{program} is not at the same path on all hosts: {named}.",
                hint="mpirun needs one path: pass a directory that all hosts have with --bin-dir.",
            )


def _require_mpirun(checks: HostChecks, requested: str | None) -> None:
    """Raise MachineError if the requested mpirun, or any if none was requested, is missing or unsupported."""
    known, name = checks.probe.programs, checks.host
    path = known[MPIRUN].path if MPIRUN in known else ""
    if requested is not None and path != requested:
        raise MachineError(
            f"{requested} not found on {name}, but {path or 'none'}.", hint="Pass another --mpirun."
        )
    if checks.probe.mpi is None:
        check = checks.check(MPIRUN, mpirun(checks))
        raise MachineError(f"{name}: {check.seen}", hint=check.advice)


def _host(name: str, probe: Probe, target: Target) -> Host:
    address, interface = _address(probe, target)
    domains: dict[str, dict[str, None]] = {}
    for domain in probe.domains:
        domains.setdefault(domain.provider, {})[domain.name] = None
    versions = {
        "libfabric": probe.libfabric,
        "efa_installer": probe.efa_installer,
        "efa_driver": probe.efa_driver,
        "nvidia_driver": probe.gpu_driver,
        "nic_driver": probe.of_nics("driver"),
        "nic_firmware": probe.of_nics("firmware"),
        "mpi": f"{probe.mpi.kind} {probe.mpi.version}" if probe.mpi else "",
        "kernel": probe.kernel,
    }
    timed_out = probe.fi_info.status in {124, 137}
    providers = ", ".join(sorted(probe.providers)) or (
        "nothing, it timed out" if timed_out else "none"
    )
    devices = ", ".join(device.name for device in probe.devices) or "none"
    return Host(
        name=name,
        address=address,
        interface=interface,
        providers=probe.providers,
        domains={provider: tuple(names) for provider, names in domains.items()},
        devices={device.name: str(device.link) for device in probe.devices},
        gids={
            device.name: device.roce_v2_gid
            for device in probe.devices
            if device.roce_v2_gid is not None
        },
        topology=probe.topology,
        gpus=len(probe.gpus) if target.gpus is None else target.gpus,
        gpu_model=next((gpu.name for gpu in probe.gpus), ""),
        instance_type=probe.instance_type,
        serials=probe.serials,
        programs={name: program.path for name, program in probe.programs.items()},
        variant_files=probe.variant_files,
        mpi=probe.mpi,
        versions={key: text for key, text in versions.items() if text},
        search_notes=(
            (
                f"Looked for libfabric providers on {name} with "
                f"{probe.fi_info_path or 'no fi_info'}: found {providers}."
            ),
            f"Looked for RDMA devices in /sys/class/infiniband: found {devices}.",
        ),
    )


def _address(probe: Probe, target: Target) -> tuple[str, str]:
    """Choose the address and interface for the other hosts.

    As requested, else where ssh came in.
    """
    with_address = [interface for interface in probe.interfaces if interface.address]
    if target.interface:
        on = [interface for interface in with_address if interface.name == target.interface]
        if not on:
            names = ", ".join(dict.fromkeys(interface.name for interface in with_address)) or "none"
            raise MachineError(
                (
                    f"{probe.hostname} has no interface {target.interface} with an IPv4 address, "
                    "but "
                    f"{names}."
                ),
                hint="Choose one that every host has.",
            )
        return on[0].address, target.interface
    by_ssh = next(
        (interface for interface in with_address if interface.address == probe.ssh_address), None
    )
    by_route = (
        interface for interface in with_address if interface.name == probe.default_interface
    )
    chosen = by_ssh or next(by_route, None)
    return (chosen.address, chosen.name) if chosen else (probe.ssh_address, "")
