"""Checks of programs, of what they inherit, and of the host around them."""

import re
from collections.abc import Iterator, Mapping

from fabbench.check.values import About, Check

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


def answer(about: About) -> Check:
    """Check that the host's answer arrived whole and could be read."""
    probe, name = about.probe, "answer"
    if not probe.whole:
        advice = "Check again. If it stays so, see what a login to the host prints, and whether it has sh."
        return about.fail(name, "The host's answer was cut off.", advice)
    if probe.unread:
        more = f" (and {len(probe.unread) - 1} more)" if len(probe.unread) > 1 else ""
        seen = f"A part of the answer could not be read{more}: {probe.unread[0]}"
        return about.warn(
            name, seen, "See what a login to the host prints; what was not read is not checked."
        )
    return about.passed(name, "The whole answer was read.")


def programs(about: About) -> Check:
    """Check that the programs asked for are there."""
    probe, wanted, name = about.probe, about.wanted, "programs"
    asked = [program for program in wanted.programs if program != "mpirun"]
    if not asked:
        return about.skip(
            name, "No program was asked for.", "Name a benchmark to have its programs looked for."
        )
    missing = [program for program in asked if program in probe.missing]
    if missing:
        advice = "Name their folder with --bin-dir" + (
            f", or install them: {wanted.install}" if wanted.install else "."
        )
        return about.fail(name, f"Not found: {', '.join(missing)}.", advice)
    if any(program not in probe.programs for program in asked):
        return about.untold(name)
    return about.passed(name, f"Found {', '.join(probe.programs[program].path for program in asked)}.")


def mpirun(about: About) -> Check:
    """Check that there is an mpirun whose kind is known."""
    probe, name = about.probe, "mpirun"
    wanted = about.wanted.mpi or "mpirun" in about.wanted.programs
    if probe.mpi:
        return about.passed(name, f"{probe.mpi.program} is {probe.mpi.kind}, {probe.mpi.version}.")
    there = probe.programs.get("mpirun")
    if there and probe.mpi_said.status is None:
        return about.untold(name)
    if there:
        said = " ".join(probe.mpi_said.said[:1]) or f"status {probe.mpi_said.status}"
        seen = f"{there.path} --version says nothing that is known: {said}"
        advice = "Name the folder of an mpirun of Open MPI, MPICH or Intel MPI with --bin-dir."
        return about.fail(name, seen, advice) if wanted else about.warn(name, seen, advice)
    if not wanted:
        return about.skip(name, "No mpirun was asked for.", "Nothing to do, unless ranks are to be started.")
    if "mpirun" not in probe.missing:
        return about.untold(name)
    advice = (
        "Install Open MPI on every host: sudo apt-get install openmpi-bin (Debian, Ubuntu); on AWS the EFA "
        "installer has it (/opt/amazon/openmpi). Or name its folder with --bin-dir."
    )
    return about.fail(name, "There is no mpirun, neither in PATH nor in the usual folders.", advice)


def tools(about: About) -> Check:
    """Check the small programs that a run is started with."""
    probe, name = about.probe, "tools"
    missing = [tool for tool in ("stdbuf", "setsid", "timeout") if tool not in probe.tools]
    if missing and not probe.whole:
        return about.untold(name)
    if missing:
        advice = "Install coreutils and util-linux: without stdbuf, rows arrive late and in blocks."
        return about.warn(name, f"Not found: {', '.join(missing)}.", advice)
    return about.passed(name, "stdbuf, setsid and timeout are there.")


def settings(about: About) -> Check:
    """Check what programs on the host inherit: some variables turn a measurement into another one."""
    probe, name = about.probe, "settings"
    if not probe.whole and not probe.interfaces:
        return about.untold(name)
    fatal = list(_fatal(about, probe.settings))
    if fatal:
        return about.fail(
            name, f"Programs will abort: {'; '.join(fatal)}.", "Unset it where the host's shell sets it."
        )
    found = [f"{key}={probe.settings[key]}" for key in _CHANGES_RESULTS if key in probe.settings]
    if probe.settings.get("FI_EFA_USE_DEVICE_RDMA") == "0":
        found.append("FI_EFA_USE_DEVICE_RDMA=0")
    found += probe.files
    others = len(probe.settings)
    if found:
        advice = (
            "Unset them where the host's shell sets them, or move the file: they change what is measured."
        )
        return about.warn(name, f"Inherited: {', '.join(found)}.", advice)
    return about.passed(name, f"Nothing that is inherited changes what is measured (of {others} settings).")


def _fatal(about: About, found: Mapping[str, str]) -> Iterator[str]:
    """Name combinations with which libfabric's EFA provider aborts (fi_efa(7), efa_fork_support.c)."""
    if found.get("FI_EFA_USE_HUGE_PAGE") == found.get("FI_EFA_FORK_SAFE") == "1":
        yield "FI_EFA_USE_HUGE_PAGE=1 with FI_EFA_FORK_SAFE=1"
    if found.get("FI_EFA_IFACE") == "":
        yield "FI_EFA_IFACE is set and empty"
    entry = about.instance
    if found.get("FI_EFA_USE_DEVICE_RDMA") == "1" and entry and not entry.rdma_read:
        yield f"FI_EFA_USE_DEVICE_RDMA=1 on a {entry.instance_type}, which has no RDMA"


def disk(about: About) -> Check:
    """Check that temporary files have room."""
    free, name = about.probe.temporary_free, "disk"
    if free is None:
        return about.untold(name)
    seen = f"{about.probe.temporary} has {free / _GIB:.1f} GiB free."
    advice = "Make room there, or set TMPDIR on the host to a folder that has some."
    if free < _DISK_FAIL:
        return about.fail(name, seen, advice)
    return about.warn(name, seen, advice) if free < _DISK_WARN else about.passed(name, seen)


def load(about: About) -> Check:
    """Check that the host is idle."""
    probe, name = about.probe, "load"
    if probe.load is None or not probe.cpus:
        return about.untold(name)
    seen = f"The load is {probe.load:g} on {probe.cpus} CPUs."
    if probe.load > _BUSY * probe.cpus:
        return about.warn(name, seen, "See what runs there (top), and measure when it is done.")
    return about.passed(name, seen)


def interface(about: About, address: str = "") -> tuple[Check, str]:
    """Check the interface that has the host's address; also give its name, empty if not known.

    `address` is where others reach the host; without it, where it was asked; else the default route counts.
    """
    probe, name = about.probe, "interface"
    address = address or probe.ssh_address
    found = [item for item in probe.interfaces if item.address == address and address]
    if not found and not probe.whole:
        return about.untold(name), ""
    if not found and address and probe.interfaces:
        advice = "Name an address of the host itself, or the interface: NCCL_SOCKET_IFNAME decides for NCCL."
        return about.warn(name, f"No interface of the host has the address {address}.", advice), ""
    chosen = found[0].name if found else probe.default_interface
    if not chosen:
        return about.untold(name), ""
    seen = f"{chosen} ({address})." if address else f"{chosen} has the default route."
    if _VIRTUAL.fullmatch(chosen):
        advice = "Name the host by an address of its real network: such an interface ends at the host."
        return about.warn(name, f"The address is that of a virtual interface: {seen}", advice), chosen
    if any(item.name == chosen and item.up is False for item in probe.interfaces):
        return about.fail(name, f"The interface is down: {seen}", "Bring it up, or name another."), chosen
    return about.passed(name, seen), chosen
