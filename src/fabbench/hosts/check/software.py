"""Checks of programs, of what they inherit, and of the host around them."""

import re
from collections.abc import Iterator, Mapping

from fabbench.hosts.check.model import Check, HostChecks

_GIB = 1024**3
_DISK_WARN, _DISK_FAIL = _GIB, 64 * 1024**2
_BUSY = 0.5
"""Load for each CPU from which on other work disturbs a measurement."""
_CHANGES_RESULTS = (
    "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_ALGO",
    "NCCL_PROTO", "FI_PROVIDER",
)  # fmt: skip
"""Variables that, inherited, turn a measurement into another one."""
_VIRTUAL = re.compile(r"lo|docker\d*|veth.*|br-.*|virbr\d*|cni\d*|flannel.*|cali.*|cilium.*")


def answer(checks: HostChecks) -> Check:
    """Check that the host's answer arrived whole and could be read."""
    probe, name = checks.probe, "answer"
    if not probe.whole:
        advice = "Check again. If it persists, check what a login to the host prints, and that it has sh."
        return checks.fail(name, "The host's answer was cut off.", advice)
    if probe.unread:
        more = f" (and {len(probe.unread) - 1} more)" if len(probe.unread) > 1 else ""
        seen = f"Part of the answer could not be read{more}: {probe.unread[0]}"
        return checks.warn(
            name, seen, "Check what a login to the host prints; parts that could not be read are not checked."
        )
    return checks.passed(name, "The answer is complete.")


def programs(checks: HostChecks) -> Check:
    """Check that the programs asked for are there."""
    probe, requirements, name = checks.probe, checks.requirements, "programs"
    asked = [program for program in requirements.programs if program != "mpirun"]
    if not asked:
        return checks.skip(name, "No programs to look for.", "Pass --benchmark to look for its programs.")
    missing = [program for program in asked if program in probe.missing]
    if missing:
        advice = "Pass their directory with --bin-dir" + (
            f", or install them: {requirements.install}" if requirements.install else "."
        )
        return checks.fail(name, f"Not found: {', '.join(missing)}.", advice)
    if any(program not in probe.programs for program in asked):
        return checks.not_reported(name)
    return checks.passed(name, f"Found {', '.join(probe.programs[program].path for program in asked)}.")


def mpirun(checks: HostChecks) -> Check:
    """Check that there is an mpirun whose kind is known."""
    probe, name = checks.probe, "mpirun"
    wanted = checks.requirements.mpi or "mpirun" in checks.requirements.programs
    if probe.mpi:
        return checks.passed(name, f"{probe.mpi.program} is {probe.mpi.kind}, {probe.mpi.version}.")
    there = probe.programs.get("mpirun")
    if there and probe.mpi_said.status is None:
        return checks.not_reported(name)
    if there:
        said = " ".join(probe.mpi_said.said[:1]) or f"status {probe.mpi_said.status}"
        seen = f"{there.path} --version is not recognized: {said}"
        advice = "Pass the directory of an Open MPI, MPICH or Intel MPI mpirun with --bin-dir."
        return checks.fail(name, seen, advice) if wanted else checks.warn(name, seen, advice)
    if not wanted:
        return checks.skip(name, "mpirun is not needed.", "Nothing to do unless you start ranks.")
    if "mpirun" not in probe.missing:
        return checks.not_reported(name)
    advice = (
        "Install Open MPI on every host: sudo apt-get install openmpi-bin (Debian, Ubuntu); on AWS it "
        "comes with the EFA installer (/opt/amazon/openmpi). Or pass its directory with --bin-dir."
    )
    return checks.fail(name, "mpirun was not found in PATH or the usual directories.", advice)


def tools(checks: HostChecks) -> Check:
    """Check the small programs that a run is started with."""
    probe, name = checks.probe, "tools"
    missing = [tool for tool in ("stdbuf", "setsid", "timeout") if tool not in probe.tools]
    if missing and not probe.whole:
        return checks.not_reported(name)
    if missing:
        advice = "Install coreutils and util-linux: without stdbuf, rows arrive late and in bursts."
        return checks.warn(name, f"Not found: {', '.join(missing)}.", advice)
    return checks.passed(name, "stdbuf, setsid and timeout were found.")


def settings(checks: HostChecks) -> Check:
    """Check what programs on the host inherit: some variables turn a measurement into another one."""
    probe, name = checks.probe, "settings"
    if not probe.whole and not probe.interfaces:
        return checks.not_reported(name)
    fatal = list(_fatal(checks, probe.settings))
    if fatal:
        return checks.fail(
            name, f"Programs will abort: {'; '.join(fatal)}.", "Unset it in the host's shell profile."
        )
    found = [f"{key}={probe.settings[key]}" for key in _CHANGES_RESULTS if key in probe.settings]
    if probe.settings.get("FI_EFA_USE_DEVICE_RDMA") == "0":
        found.append("FI_EFA_USE_DEVICE_RDMA=0")
    found += probe.files
    others = len(probe.settings)
    if found:
        advice = "Unset them in the host's shell profile, or move the file: they change what is measured."
        return checks.warn(name, f"Inherited: {', '.join(found)}.", advice)
    return checks.passed(name, f"No inherited setting changes what is measured (checked {others} settings).")


def _fatal(checks: HostChecks, found: Mapping[str, str]) -> Iterator[str]:
    """Yield combinations with which libfabric's EFA provider aborts (fi_efa(7), efa_fork_support.c)."""
    if found.get("FI_EFA_USE_HUGE_PAGE") == found.get("FI_EFA_FORK_SAFE") == "1":
        yield "FI_EFA_USE_HUGE_PAGE=1 with FI_EFA_FORK_SAFE=1"
    if found.get("FI_EFA_IFACE") == "":
        yield "FI_EFA_IFACE is set and empty"
    entry = checks.instance
    if found.get("FI_EFA_USE_DEVICE_RDMA") == "1" and entry and not entry.rdma_read:
        yield f"FI_EFA_USE_DEVICE_RDMA=1 on a {entry.instance_type}, which has no RDMA"


def disk(checks: HostChecks) -> Check:
    """Check that temporary files have room."""
    free, name = checks.probe.temporary_free, "disk"
    if free is None:
        return checks.not_reported(name)
    seen = f"{checks.probe.temporary} has {free / _GIB:.1f} GiB free."
    advice = "Free some space there, or set TMPDIR on the host to a directory that has some."
    if free < _DISK_FAIL:
        return checks.fail(name, seen, advice)
    return checks.warn(name, seen, advice) if free < _DISK_WARN else checks.passed(name, seen)


def load(checks: HostChecks) -> Check:
    """Check that the host is idle."""
    probe, name = checks.probe, "load"
    if probe.load is None or not probe.cpus:
        return checks.not_reported(name)
    seen = f"The load is {probe.load:g} on {probe.cpus} CPUs."
    if probe.load > _BUSY * probe.cpus:
        return checks.warn(name, seen, "Check what is running there (top), and measure when it is done.")
    return checks.passed(name, seen)


def interface(checks: HostChecks, address: str = "") -> tuple[Check, str]:
    """Check the interface that has the host's address; also give its name, empty if not known.

    `address` is where others reach the host; without it, where it was asked; else the default route counts.
    """
    probe, name = checks.probe, "interface"
    address = address or probe.ssh_address
    found = [item for item in probe.interfaces if item.address == address and address]
    if not found and not probe.whole:
        return checks.not_reported(name), ""
    if not found and address and probe.interfaces:
        advice = "Specify an address of the host itself, or its --interface: NCCL uses NCCL_SOCKET_IFNAME."
        return checks.warn(name, f"No interface of the host has the address {address}.", advice), ""
    chosen = found[0].name if found else probe.default_interface
    if not chosen:
        return checks.not_reported(name), ""
    seen = f"{chosen} ({address})." if address else f"{chosen} has the default route."
    if _VIRTUAL.fullmatch(chosen):
        advice = "Use an address on the host's physical network: a virtual interface does not leave the host."
        return checks.warn(name, f"The address is that of a virtual interface: {seen}", advice), chosen
    if any(item.name == chosen and item.up is False for item in probe.interfaces):
        return checks.fail(name, f"The interface is down: {seen}", "Bring it up, or specify another."), chosen
    return checks.passed(name, seen), chosen
