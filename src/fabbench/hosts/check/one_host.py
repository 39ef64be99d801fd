"""The checks of one host.

What its answer, its devices and its software are, and whether they are ready for a run.

A check returns None if the host's answer does not include what it is about.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fabbench.catalog.images import why_unfit
from fabbench.hosts.check.model import RDMA_FABRICS, Check, HostChecks, Status, outcome
from fabbench.hosts.probe_result import UNLIMITED, Link
from fabbench.model.hosts import NodeDevice
from fabbench.model.messages import listed
from fabbench.model.units import format_size

_NAMED = 4
_MISSING, _TIMED_OUT = 127, (124, 137)
_GIB = 1024**3
_MEMLOCK_ENOUGH = 16 * _GIB
"""What AWS's own health check requires."""
_MEMLOCK_TOO_LITTLE = 64 * 1024**2
"""The largest of the usual defaults; memory registration has been seen to fail with all of them."""
_DISK_WARN, _DISK_FAIL = _GIB, 64 * 1024**2
_BUSY = 0.5
"""Load per CPU above which other work disturbs a measurement."""
_CHANGES_RESULTS = (
    "NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE", "NCCL_IB_DISABLE", "NCCL_NET", "NCCL_NET_PLUGIN", "NCCL_ALGO",
    "NCCL_PROTO", "FI_PROVIDER",
)  # fmt: skip
"""Variables that change what is measured if they are inherited."""
_ABORTS = (("FI_EFA_USE_HUGE_PAGE=1", "FI_EFA_FORK_SAFE=1"), ("FI_EFA_IFACE=",))
"""Settings with which libfabric's EFA provider aborts (fi_efa(7), efa_fork_support.c)."""
_VIRTUAL = re.compile(r"lo|docker\d*|veth.*|br-.*|virbr\d*|cni\d*|flannel.*|cali.*|cilium.*")


def answer(checks: HostChecks) -> Check | None:
    """Check that the host's answer is complete and could be read."""
    unread = checks.probe.unread
    if not checks.probe.whole or not unread:
        return outcome("answer.whole" if checks.probe.whole else "answer.cut")
    more = f" (and {len(unread) - 1} more)" if len(unread) > 1 else ""
    return outcome("answer.unread", more=more, first=unread[0])


def libfabric(checks: HostChecks) -> Check | None:
    """Check that ``fi_info`` works, and report what it offers."""
    probe, status = checks.probe, checks.probe.fi_info.status
    if status is None:
        return None
    if status == _MISSING:
        needed = checks.has_rdma or checks.fabric
        return outcome("libfabric.missing", None if needed else Status.SKIP)
    if status in _TIMED_OUT:
        return outcome("libfabric.hangs", path=probe.fi_info_path)
    if probe.domains:
        offered = ", ".join(sorted(probe.providers))
        return outcome(
            "libfabric.offers", version=probe.libfabric or "of unknown version", offered=offered
        )
    line = " ".join(probe.fi_info.lines[:1]) or f"It exited with status {status}."
    return outcome("libfabric.nothing", line=line, path=probe.fi_info_path)


def efa(checks: HostChecks) -> Check | None:
    """Compare the EFA devices that libfabric offers with those in /sys and in the catalog."""
    probe, entry = checks.probe, checks.instance
    offered, there = len(probe.efa_domains), len(probe.devices_of(Link.EFA))
    if probe.verbs_there is None or probe.fi_info.status is None:
        return None
    if not checks.has_efa:
        return outcome("efa.none")
    usual = (
        f"; a {entry.instance_type} has {' or '.join(map(str, entry.efa_counts))}" if entry else ""
    )
    expected = entry.efa_counts if entry else (max(there, offered),)
    if offered:
        found = "all" if offered in expected else "more" if offered > max(expected) else "fewer"
    elif there:
        found = "unchecked" if probe.fi_info.status == _MISSING else "unseen"
    else:
        found = "requested" if checks.fabric == "efa" else "tcp"
    return outcome(
        f"efa.{found}", counts=f"fi_info lists {offered} EFA devices, and /sys has {there}{usual}."
    )


def rdma_ports(checks: HostChecks) -> Check | None:
    """Check that the ports of RDMA devices are up, alike, and of the requested kind."""
    probe, fabric = checks.probe, checks.fabric
    if checks.probe.verbs_there is None:
        return None
    link = RDMA_FABRICS.get(fabric)
    devices = [item for item in probe.devices if link is None or item.link is link]
    if not devices:
        return (
            outcome("rdma-ports.requested", fabric=fabric) if link else outcome("rdma-ports.none")
        )
    kinds = ", ".join(
        f"{len(probe.devices_of(kind))} {kind}" for kind in Link if probe.devices_of(kind)
    )
    down = [item.name for item in devices if item.state not in {"ACTIVE", ""}]
    if down:
        status = Status.FAIL if len(down) == len(devices) else None
        return outcome("rdma-ports.down", status, names=", ".join(down), kinds=kinds)
    bare = [item.name for item in devices if item.link is Link.ROCE and item.roce_v2_gid is None]
    if bare:
        return outcome("rdma-ports.no-gid", names=", ".join(bare))
    rates = sorted({f"{item.rate_gbps:g}" for item in devices if item.rate_gbps})
    return outcome("rdma-ports.active", kinds=kinds, rates=" and ".join(rates) or "unknown")


def verbs(checks: HostChecks) -> Check | None:
    """Check that the device files exist, and that this user can open them."""
    probe = checks.probe
    there, usable, devices = (
        probe.verbs_there,
        probe.verbs or 0,
        len({item.name for item in probe.devices}),
    )
    if there is None:
        return None
    if not checks.has_rdma:
        return outcome("verbs.none")
    if not there:
        needed = probe.devices or checks.fabric in RDMA_FABRICS
        return outcome("verbs.missing", None if needed else Status.WARN)
    found = "closed" if usable < there else "fewer" if there < devices else "usable"
    return outcome(f"verbs.{found}", there=there, usable=usable, devices=devices)


def memlock(checks: HostChecks) -> Check | None:
    """Check how much memory a process may lock: RDMA devices need locked memory."""
    limit = checks.probe.memlock
    if limit is None:
        return None
    enough = limit == UNLIMITED or limit >= _MEMLOCK_ENOUGH
    short = (
        "not-needed"
        if not checks.has_rdma
        else "little"
        if limit <= _MEMLOCK_TOO_LITTLE
        else "below"
    )
    amount = "unlimited" if limit == UNLIMITED else f"limited to {format_size(limit)}"
    return outcome(f"memlock.{'enough' if enough else short}", limit=f"Locked memory is {amount}.")


def huge_pages(checks: HostChecks) -> Check | None:
    """Check that huge pages are free: EFA's provider puts its buffers there."""
    probe = checks.probe
    total, free = probe.huge_pages, probe.huge_pages_free
    if total is None or free is None:
        return None
    size = format_size(probe.huge_page_size) if probe.huge_page_size else "unknown size"
    found = (
        "not-needed" if not checks.has_efa else "none" if not total else "free" if free else "held"
    )
    return outcome(f"huge-pages.{found}", pages=f"{free} of {total} huge pages ({size}) are free.")


def gpus(checks: HostChecks) -> Check | None:
    """Compare the GPUs with the catalog, and check that they are ready."""
    probe, entry = checks.probe, checks.instance
    status, expected = probe.nvidia_smi.status, entry.gpus if entry else 0
    if status is None:
        return None
    if not probe.gpus:
        if status == _MISSING and not expected and not checks.needs.gpus:
            return outcome("gpus.not-needed")
        found = "missing" if status == _MISSING else "hangs" if status in _TIMED_OUT else "none"
        line = " ".join(probe.nvidia_smi.lines[:1]) or f"status {status}"
        usual = f" A {probe.instance_type} has {expected} GPUs." if expected else ""
        return outcome(f"gpus.{found}", line=line, expected=usual)
    models = ", ".join(dict.fromkeys(gpu.name for gpu in probe.gpus))
    seen = f"{len(probe.gpus)} GPUs ({models})."
    if expected and len(probe.gpus) != expected:
        return outcome("gpus.lost", gpus=seen, type=probe.instance_type, expected=expected)
    waiting = [gpu.fabric for gpu in probe.gpus if gpu.fabric not in {"Completed", ""}]
    why, advice = why_unfit(checks.image, models, probe.gpus[0].driver)
    model = entry.gpu_model if entry else ""
    other = model and model.split()[0] not in models
    found = "fabric" if waiting else "other" if other else "unfit" if why else "ready"
    words = {"type": probe.instance_type, "model": model, "why": why, "advice": advice}
    return outcome(
        f"gpus.{found}", None, gpus=seen, waiting=len(waiting), state="".join(waiting[:1]), **words
    )


def gpu_work(checks: HostChecks) -> Check | None:
    """Check that nothing else uses the GPUs."""
    probe = checks.probe
    if probe.nvidia_smi.status is None:
        return None
    count = probe.gpu_processes
    found = "none" if not probe.gpus else "hidden" if count is None else "busy" if count else "idle"
    return outcome(f"gpu-work.{found}", count=count)


def plugin(checks: HostChecks) -> Check | None:
    """Check that NCCL finds the plugin aws-ofi-nccl, if there are GPUs and EFA."""
    probe = checks.probe
    if probe.nvidia_smi.status is None or probe.verbs_there is None:
        return None
    if not probe.gpus or not checks.has_efa:
        return outcome("plugin.not-needed", lacking="EFA" if probe.gpus else "GPU")
    if probe.plugins:
        return outcome("plugin.found", path=probe.plugins[0])
    needed = bool(probe.devices_of(Link.EFA) or probe.efa_domains) or checks.fabric == "efa"
    return outcome("plugin.missing", None if needed else Status.WARN)


def programs(checks: HostChecks) -> Check | None:
    """Check that the requested programs were found."""
    probe, needs = checks.probe, checks.needs
    requested = [program for program in needs.programs if program != "mpirun"]
    if not requested:
        return outcome("programs.none")
    missing = [program for program in requested if program in probe.missing]
    if missing:
        install = f", or install them: {needs.install}" if needs.install else "."
        return outcome("programs.missing", names=", ".join(missing), install=install)
    if any(program not in probe.programs for program in requested):
        return None
    return outcome(
        "programs.found", paths=", ".join(probe.programs[program].path for program in requested)
    )


def mpirun(checks: HostChecks) -> Check | None:
    """Check that there is a supported mpirun."""
    probe, program = checks.probe, checks.probe.programs.get("mpirun")
    required = checks.needs.mpi or "mpirun" in checks.needs.programs
    if mpi := probe.mpi:
        return outcome("mpirun.found", program=mpi.program, kind=mpi.kind, version=mpi.version)
    if program and probe.mpirun_version.status is None:
        return None
    if program:
        line = " ".join(probe.mpirun_version.lines[:1]) or f"status {probe.mpirun_version.status}"
        return outcome(
            "mpirun.unknown", None if required else Status.WARN, program=program.path, line=line
        )
    if not required:
        return outcome("mpirun.not-needed")
    return outcome("mpirun.missing") if "mpirun" in probe.missing else None


def tools(checks: HostChecks) -> Check | None:
    """Check the small programs that are needed to start a run."""
    missing = [tool for tool in ("stdbuf", "setsid", "timeout") if tool not in checks.probe.tools]
    if missing and not checks.probe.whole:
        return None
    return outcome("tools.missing" if missing else "tools.found", names=", ".join(missing))


def settings(checks: HostChecks) -> Check | None:
    """Check what programs on the host inherit: some variables change what is measured."""
    probe = checks.probe
    if not probe.whole and not probe.interfaces:
        return None
    inherited = {f"{key}={value}" for key, value in probe.settings.items()}
    fatal = [" with ".join(each) for each in _ABORTS if inherited.issuperset(each)]
    if (
        "FI_EFA_USE_DEVICE_RDMA=1" in inherited
        and checks.instance
        and not checks.instance.rdma_read
    ):
        fatal.append(f"FI_EFA_USE_DEVICE_RDMA=1 on a {probe.instance_type}, which has no RDMA")
    if fatal:
        return outcome("settings.abort", names="; ".join(fatal))
    changes = [f"{key}={probe.settings[key]}" for key in _CHANGES_RESULTS if key in probe.settings]
    changes += [*inherited & {"FI_EFA_USE_DEVICE_RDMA=0"}, *probe.files]
    found = "changes" if changes else "fine"
    return outcome(f"settings.{found}", names=", ".join(changes), count=len(probe.settings))


def disk(checks: HostChecks) -> Check | None:
    """Check that there is room for temporary files."""
    free = checks.probe.temporary_free
    if free is None:
        return None
    found, status = (
        "little" if free < _DISK_WARN else "free",
        Status.FAIL if free < _DISK_FAIL else None,
    )
    return outcome(f"disk.{found}", status, folder=checks.probe.temporary, free=free / _GIB)


def load(checks: HostChecks) -> Check | None:
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


def interface(checks: HostChecks) -> Check | None:
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


# ---------------------------------------------------------------- how GPUs and RDMA devices are
# attached


@dataclass(frozen=True, slots=True)
class Fact:
    """Something of each device that may cost bandwidth."""

    name: str
    shown: Callable[[NodeDevice], str]
    """In words; empty: not known, or not of this kind of device."""
    costs: Callable[[NodeDevice], bool]

    def of(self, devices: Mapping[str, NodeDevice]) -> dict[str, list[str]]:
        """Return what is known of devices, each fact with the names of those that have it in common."""
        found: dict[str, list[str]] = {}
        for name, device in devices.items():
            if shown := self.shown(device):
                found.setdefault(shown, []).append(name)
        return found

    def check(self, checks: HostChecks) -> Check | None:
        """Check a host: name the devices of which it costs bandwidth."""
        devices = checks.probe.topology
        if checks.probe.verbs_there is None:
            return None
        if slow := self.of({name: each for name, each in devices.items() if self.costs(each)}):
            return outcome(f"{self.name.replace(' ', '-')}.costs", devices=_sentence(slow))
        known = self.of(devices)
        return outcome("topology.fine" if known else "topology.unknown", devices=_sentence(known))

    def summary(self, devices: Mapping[str, NodeDevice]) -> str:
        """Return what a host has, without the names of its devices."""
        return ", ".join(
            sorted(f"{len(names)} × {shown}" for shown, names in self.of(devices).items())
        )


def _sentence(found: Mapping[str, Iterable[str]]) -> str:
    return "; ".join(f"{listed(list(names), _NAMED)}: {shown}" for shown, names in found.items())


def _link(device: NodeDevice) -> str:
    if not device.width or not device.max_width:
        return ""
    lanes = f"x{device.width} of x{device.max_width}"
    if device.kind == "gpu" or not device.speed or not device.max_speed:
        return lanes  # A GPU lowers its speed while it idles
    carried, port = _carried(device), device.rate_gbps or 0
    short = f", which carries {carried:.0f} of the port's {port:g} Gb/s" if carried < port else ""
    return f"{lanes} at {device.speed:g} of {device.max_speed:g} GT/s{short}"


def _carried(device: NodeDevice) -> float:
    """Return what a PCIe link carries, in Gb/s, without its line code.

    8b/10b up to 5 GT/s, then 128b/130b.
    """
    return (
        (device.width or 0) * (device.speed or 0) * (0.8 if (device.speed or 0) <= 5 else 128 / 130)
    )


def _slow(device: NodeDevice) -> bool:
    """Return whether a link has fewer lanes than it could, or a NIC's is too slow for its port."""
    slower = device.kind != "gpu" and (device.speed or 0) < (device.max_speed or 0)
    return (device.width or 0) < (device.max_width or 0) or (
        slower and _carried(device) < (device.rate_gbps or 1e9)
    )


def _nearest(device: NodeDevice) -> str:
    return next(
        (
            f"{far} to {len(names)} NIC{'s' * (len(names) > 1)}"
            for far, names in device.nics.items()
        ),
        "",
    )


FACTS = (
    Fact("pcie links", _link, _slow),
    Fact("gpu to nic", _nearest, lambda device: next(iter(device.nics), "") == "SYS"),
    Fact(
        "acs",
        lambda device: (
            "" if device.acs is None else f"on at {listed(device.acs, 2)}" if device.acs else "off"
        ),
        lambda device: bool(device.acs),
    ),
    Fact(
        "mtu",
        lambda device: f"{device.mtu} of {device.max_mtu}" if device.mtu and device.max_mtu else "",
        lambda device: device.mtu is not None and device.mtu < (device.max_mtu or 0),
    ),
)
CHECKS: Mapping[str, Callable[[HostChecks], Check | None]] = {
    **{
        each.__name__.replace("_", " "): each
        for each in (answer, libfabric, efa, rdma_ports, verbs, memlock)
    },
    **{each.__name__.replace("_", " "): each for each in (huge_pages, gpus, gpu_work, plugin)},
    **{fact.name: fact.check for fact in FACTS},
    **{each.__name__: each for each in (programs, mpirun, tools, settings, disk, load, interface)},
}
"""By name, in order."""
