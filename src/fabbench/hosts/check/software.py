"""Checks of programs, of the environment that they inherit, and of the host's disk, load and interface."""

import re
from collections.abc import Iterator, Mapping

from fabbench.hosts.check.model import Check, HostChecks

_GIB = 1024**3
_DISK_WARN, _DISK_FAIL = _GIB, 64 * 1024**2
_BUSY = 0.5
"""Load per CPU above which other work disturbs a measurement."""
_CHANGES_RESULTS = (
    "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_ALGO",
    "NCCL_PROTO", "FI_PROVIDER",
)  # fmt: skip
"""Variables that change what is measured if they are inherited."""
_VIRTUAL = re.compile(r"lo|docker\d*|veth.*|br-.*|virbr\d*|cni\d*|flannel.*|cali.*|cilium.*")


def answer(checks: HostChecks) -> Check:
    """Check that the host's answer is complete and could be read."""
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
    """Check that the requested programs were found."""
    probe, requirements, name = checks.probe, checks.requirements, "programs"
    requested = [program for program in requirements.programs if program != "mpirun"]
    if not requested:
        return checks.skip(name, "No programs to look for.", "Pass --benchmark to look for its programs.")
    missing = [program for program in requested if program in probe.missing]
    if missing:
        advice = "Pass their directory with --bin-dir" + (
            f", or install them: {requirements.install}" if requirements.install else "."
        )
        return checks.fail(name, f"Not found: {', '.join(missing)}.", advice)
    if any(program not in probe.programs for program in requested):
        return checks.not_reported(name)
    return checks.passed(name, f"Found {', '.join(probe.programs[program].path for program in requested)}.")


def mpirun(checks: HostChecks) -> Check:
    """Check that there is a supported mpirun."""
    probe, name = checks.probe, "mpirun"
    required = checks.requirements.mpi or "mpirun" in checks.requirements.programs
    if probe.mpi:
        return checks.passed(name, f"{probe.mpi.program} is {probe.mpi.kind}, {probe.mpi.version}.")
    program = probe.programs.get("mpirun")
    if program and probe.mpirun_version.status is None:
        return checks.not_reported(name)
    if program:
        line = " ".join(probe.mpirun_version.lines[:1]) or f"status {probe.mpirun_version.status}"
        seen = f"{program.path} --version is not recognized: {line}"
        advice = "Pass the directory of an Open MPI, MPICH or Intel MPI mpirun with --bin-dir."
        return checks.fail(name, seen, advice) if required else checks.warn(name, seen, advice)
    if not required:
        return checks.skip(name, "mpirun is not needed.", "Nothing to do unless you start ranks.")
    if "mpirun" not in probe.missing:
        return checks.not_reported(name)
    advice = (
        "Install Open MPI on every host: sudo apt-get install openmpi-bin (Debian, Ubuntu); on AWS it "
        "comes with the EFA installer (/opt/amazon/openmpi). Or pass its directory with --bin-dir."
    )
    return checks.fail(name, "mpirun was not found in PATH or the usual directories.", advice)


def tools(checks: HostChecks) -> Check:
    """Check the small programs that are needed to start a run."""
    probe, name = checks.probe, "tools"
    missing = [tool for tool in ("stdbuf", "setsid", "timeout") if tool not in probe.tools]
    if missing and not probe.whole:
        return checks.not_reported(name)
    if missing:
        advice = "Install coreutils and util-linux: without stdbuf, rows arrive late and in bursts."
        return checks.warn(name, f"Not found: {', '.join(missing)}.", advice)
    return checks.passed(name, "stdbuf, setsid and timeout were found.")


def settings(checks: HostChecks) -> Check:
    """Check what programs on the host inherit: some variables change what is measured."""
    probe, name = checks.probe, "settings"
    if not probe.whole and not probe.interfaces:
        return checks.not_reported(name)
    fatal = list(_fatal(checks, probe.settings))
    if fatal:
        return checks.fail(name, f"Programs will abort: {'; '.join(fatal)}.", "Unset it in the host's shell profile.")
    changes = [f"{key}={probe.settings[key]}" for key in _CHANGES_RESULTS if key in probe.settings]
    if probe.settings.get("FI_EFA_USE_DEVICE_RDMA") == "0":
        changes.append("FI_EFA_USE_DEVICE_RDMA=0")
    changes += probe.files
    if changes:
        advice = "Unset them in the host's shell profile, or move the file: they change what is measured."
        return checks.warn(name, f"Inherited: {', '.join(changes)}.", advice)
    seen = f"No inherited setting changes what is measured (checked {len(probe.settings)} settings)."
    return checks.passed(name, seen)


def _fatal(checks: HostChecks, settings: Mapping[str, str]) -> Iterator[str]:
    """Yield combinations with which libfabric's EFA provider aborts (fi_efa(7), efa_fork_support.c)."""
    if settings.get("FI_EFA_USE_HUGE_PAGE") == settings.get("FI_EFA_FORK_SAFE") == "1":
        yield "FI_EFA_USE_HUGE_PAGE=1 with FI_EFA_FORK_SAFE=1"
    if settings.get("FI_EFA_IFACE") == "":
        yield "FI_EFA_IFACE is set and empty"
    entry = checks.instance
    if settings.get("FI_EFA_USE_DEVICE_RDMA") == "1" and entry and not entry.rdma_read:
        yield f"FI_EFA_USE_DEVICE_RDMA=1 on a {entry.instance_type}, which has no RDMA"


def disk(checks: HostChecks) -> Check:
    """Check that there is room for temporary files."""
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
    """Check the interface that has the host's address; also return its name, empty if not known.

    `address` is where others reach the host. Without it, the address of the ssh connection counts, else the
    default route.
    """
    probe, name = checks.probe, "interface"
    address = address or probe.ssh_address
    matching = [item for item in probe.interfaces if item.address == address and address]
    if not matching and not probe.whole:
        return checks.not_reported(name), ""
    if not matching and address and probe.interfaces:
        advice = "Specify an address of the host itself, or its --interface: NCCL uses NCCL_SOCKET_IFNAME."
        return checks.warn(name, f"No interface of the host has the address {address}.", advice), ""
    chosen = matching[0].name if matching else probe.default_interface
    if not chosen:
        return checks.not_reported(name), ""
    seen = f"{chosen} ({address})." if address else f"{chosen} has the default route."
    if _VIRTUAL.fullmatch(chosen):
        advice = "Use an address on the host's physical network: a virtual interface does not leave the host."
        return checks.warn(name, f"The address is that of a virtual interface: {seen}", advice), chosen
    if any(item.name == chosen and item.up is False for item in probe.interfaces):
        return checks.fail(name, f"The interface is down: {seen}", "Bring it up, or specify another."), chosen
    return checks.passed(name, seen), chosen
