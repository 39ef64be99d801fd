"""Checks of programs, of the environment that they inherit, and of the host's disk, load and interface."""

import re
from collections.abc import Iterator, Mapping

from fabbench.hosts.check.model import HostChecks, Result, fail, passed, skip, warn

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


def answer(checks: HostChecks) -> Result | None:
    """Check that the host's answer is complete and could be read."""
    probe = checks.probe
    if not probe.whole:
        advice = "Check again. If it persists, check what a login to the host prints, and that it has sh."
        return fail("The host's answer was cut off.", advice)
    if probe.unread:
        more = f" (and {len(probe.unread) - 1} more)" if len(probe.unread) > 1 else ""
        seen = f"Part of the answer could not be read{more}: {probe.unread[0]}"
        return warn(seen, "Check what a login to the host prints; parts that could not be read are not checked.")
    return passed("The answer is complete.")


def programs(checks: HostChecks) -> Result | None:
    """Check that the requested programs were found."""
    probe, requirements = checks.probe, checks.requirements
    requested = [program for program in requirements.programs if program != "mpirun"]
    if not requested:
        return skip("No programs to look for.", "Pass --benchmark to look for its programs.")
    missing = [program for program in requested if program in probe.missing]
    if missing:
        advice = "Pass their directory with --bin-dir" + (
            f", or install them: {requirements.install}" if requirements.install else "."
        )
        return fail(f"Not found: {', '.join(missing)}.", advice)
    if any(program not in probe.programs for program in requested):
        return None
    return passed(f"Found {', '.join(probe.programs[program].path for program in requested)}.")


def mpirun(checks: HostChecks) -> Result | None:
    """Check that there is a supported mpirun."""
    probe = checks.probe
    required = checks.requirements.mpi or "mpirun" in checks.requirements.programs
    if probe.mpi:
        return passed(f"{probe.mpi.program} is {probe.mpi.kind}, {probe.mpi.version}.")
    program = probe.programs.get("mpirun")
    if program and probe.mpirun_version.status is None:
        return None
    if program:
        line = " ".join(probe.mpirun_version.lines[:1]) or f"status {probe.mpirun_version.status}"
        seen = f"{program.path} --version is not recognized: {line}"
        advice = "Pass the directory of an Open MPI, MPICH or Intel MPI mpirun with --bin-dir."
        return fail(seen, advice) if required else warn(seen, advice)
    if not required:
        return skip("mpirun is not needed.", "Nothing to do unless you start ranks.")
    if "mpirun" not in probe.missing:
        return None
    advice = (
        "Install Open MPI on every host: sudo apt-get install openmpi-bin (Debian, Ubuntu); on AWS it "
        "comes with the EFA installer (/opt/amazon/openmpi). Or pass its directory with --bin-dir."
    )
    return fail("mpirun was not found in PATH or the usual directories.", advice)


def tools(checks: HostChecks) -> Result | None:
    """Check the small programs that are needed to start a run."""
    probe = checks.probe
    missing = [tool for tool in ("stdbuf", "setsid", "timeout") if tool not in probe.tools]
    if missing and not probe.whole:
        return None
    if missing:
        advice = "Install coreutils and util-linux: without stdbuf, rows arrive late and in bursts."
        return warn(f"Not found: {', '.join(missing)}.", advice)
    return passed("stdbuf, setsid and timeout were found.")


def settings(checks: HostChecks) -> Result | None:
    """Check what programs on the host inherit: some variables change what is measured."""
    probe = checks.probe
    if not probe.whole and not probe.interfaces:
        return None
    fatal = list(_fatal(checks, probe.settings))
    if fatal:
        return fail(f"Programs will abort: {'; '.join(fatal)}.", "Unset it in the host's shell profile.")
    changes = [f"{key}={probe.settings[key]}" for key in _CHANGES_RESULTS if key in probe.settings]
    if probe.settings.get("FI_EFA_USE_DEVICE_RDMA") == "0":
        changes.append("FI_EFA_USE_DEVICE_RDMA=0")
    changes += probe.files
    if changes:
        advice = "Unset them in the host's shell profile, or move the file: they change what is measured."
        return warn(f"Inherited: {', '.join(changes)}.", advice)
    seen = f"No inherited setting changes what is measured (checked {len(probe.settings)} settings)."
    return passed(seen)


def _fatal(checks: HostChecks, settings: Mapping[str, str]) -> Iterator[str]:
    """Yield combinations with which libfabric's EFA provider aborts (fi_efa(7), efa_fork_support.c)."""
    if settings.get("FI_EFA_USE_HUGE_PAGE") == settings.get("FI_EFA_FORK_SAFE") == "1":
        yield "FI_EFA_USE_HUGE_PAGE=1 with FI_EFA_FORK_SAFE=1"
    if settings.get("FI_EFA_IFACE") == "":
        yield "FI_EFA_IFACE is set and empty"
    entry = checks.instance
    if settings.get("FI_EFA_USE_DEVICE_RDMA") == "1" and entry and not entry.rdma_read:
        yield f"FI_EFA_USE_DEVICE_RDMA=1 on a {entry.instance_type}, which has no RDMA"


def disk(checks: HostChecks) -> Result | None:
    """Check that there is room for temporary files."""
    free = checks.probe.temporary_free
    if free is None:
        return None
    seen = f"{checks.probe.temporary} has {free / _GIB:.1f} GiB free."
    advice = "Free some space there, or set TMPDIR on the host to a directory that has some."
    if free < _DISK_FAIL:
        return fail(seen, advice)
    return warn(seen, advice) if free < _DISK_WARN else passed(seen)


def load(checks: HostChecks) -> Result | None:
    """Check that the host is idle."""
    probe = checks.probe
    if probe.load is None or not probe.cpus:
        return None
    seen = f"The load is {probe.load:g} on {probe.cpus} CPUs."
    if probe.load > _BUSY * probe.cpus:
        return warn(seen, "Check what is running there (top), and measure when it is done.")
    return passed(seen)


def interface_of(checks: HostChecks) -> str:
    """Return the interface with the address where others reach the host; empty: not known.

    Without that address, the one of the ssh connection counts, else the default route.
    """
    probe, address = checks.probe, checks.address or checks.probe.ssh_address
    matching = [item.name for item in probe.interfaces if item.address == address and address]
    if not matching and (not probe.whole or (address and probe.interfaces)):
        return ""
    return matching[0] if matching else probe.default_interface


def interface(checks: HostChecks) -> Result | None:
    """Check the interface that has the host's address."""
    probe, chosen = checks.probe, interface_of(checks)
    address = checks.address or probe.ssh_address
    if not chosen and probe.whole and address and probe.interfaces:
        advice = "Specify an address of the host itself, or its --interface: NCCL uses NCCL_SOCKET_IFNAME."
        return warn(f"No interface of the host has the address {address}.", advice)
    if not chosen:
        return None
    seen = f"{chosen} ({address})." if address else f"{chosen} has the default route."
    if _VIRTUAL.fullmatch(chosen):
        advice = "Use an address on the host's physical network: a virtual interface does not leave the host."
        return warn(f"The address is that of a virtual interface: {seen}", advice)
    if any(item.name == chosen and item.up is False for item in probe.interfaces):
        return fail(f"The interface is down: {seen}", "Bring it up, or specify another.")
    return passed(seen)
