"""Checks of programs, of the environment that they inherit, and of the host's disk, load and interface."""

import re
from collections.abc import Iterator, Mapping

from fabbench.hosts.check.model import HostChecks, Result, Status, outcome

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
    unread = checks.probe.unread
    if not checks.probe.whole or not unread:
        return outcome("answer.whole" if checks.probe.whole else "answer.cut")
    more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
    return outcome("answer.unread", more=more, first=unread[0])


def programs(checks: HostChecks) -> Result | None:
    """Check that the requested programs were found."""
    probe, requirements = checks.probe, checks.requirements
    requested = [program for program in requirements.programs if program != "mpirun"]
    if not requested:
        return outcome("programs.none")
    missing = [program for program in requested if program in probe.missing]
    if missing:
        install = f", or install them: {requirements.install}" if requirements.install else "."
        return outcome("programs.missing", names=", ".join(missing), install=install)
    if any(program not in probe.programs for program in requested):
        return None
    return outcome("programs.found", paths=", ".join(probe.programs[program].path for program in requested))


def mpirun(checks: HostChecks) -> Result | None:
    """Check that there is a supported mpirun."""
    probe, program = checks.probe, checks.probe.programs.get("mpirun")
    required = checks.requirements.mpi or "mpirun" in checks.requirements.programs
    if mpi := probe.mpi:
        return outcome("mpirun.found", program=mpi.program, kind=mpi.kind, version=mpi.version)
    if program and probe.mpirun_version.status is None:
        return None
    if program:
        line = " ".join(probe.mpirun_version.lines[:1]) or f"status {probe.mpirun_version.status}"
        return outcome("mpirun.unknown", None if required else Status.WARN, program=program.path, line=line)
    if not required:
        return outcome("mpirun.not-needed")
    return outcome("mpirun.missing") if "mpirun" in probe.missing else None


def tools(checks: HostChecks) -> Result | None:
    """Check the small programs that are needed to start a run."""
    missing = [tool for tool in ("stdbuf", "setsid", "timeout") if tool not in checks.probe.tools]
    if missing and not checks.probe.whole:
        return None
    return outcome("tools.missing" if missing else "tools.found", names=", ".join(missing))


def settings(checks: HostChecks) -> Result | None:
    """Check what programs on the host inherit: some variables change what is measured."""
    probe = checks.probe
    if not probe.whole and not probe.interfaces:
        return None
    fatal = list(_fatal(checks, probe.settings))
    if fatal:
        return outcome("settings.abort", names="; ".join(fatal))
    changes = [f"{key}={probe.settings[key]}" for key in _CHANGES_RESULTS if key in probe.settings]
    if probe.settings.get("FI_EFA_USE_DEVICE_RDMA") == "0":
        changes.append("FI_EFA_USE_DEVICE_RDMA=0")
    changes += probe.files
    found = "changes" if changes else "fine"
    return outcome(f"settings.{found}", names=", ".join(changes), count=len(probe.settings))


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
    status = Status.FAIL if free < _DISK_FAIL else None
    found = "little" if free < _DISK_WARN else "free"
    return outcome(f"disk.{found}", status, folder=checks.probe.temporary, free=free / _GIB)


def load(checks: HostChecks) -> Result | None:
    """Check that the host is idle."""
    probe = checks.probe
    if probe.load is None or not probe.cpus:
        return None
    found = "busy" if probe.load > _BUSY * probe.cpus else "idle"
    return outcome(f"load.{found}", load=probe.load, cpus=probe.cpus)


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
    if not chosen:
        elsewhere = probe.whole and address and probe.interfaces
        return outcome("interface.other", address=address) if elsewhere else None
    down = any(item.name == chosen and item.up is False for item in probe.interfaces)
    found = "virtual" if _VIRTUAL.fullmatch(chosen) else "down" if down else "up"
    where = f"{chosen} ({address})." if address else f"{chosen} has the default route."
    return outcome(f"interface.{found}", where=where)
