"""The checks of one host: its answer, its devices and its software, and whether it is idle.

A check returns None if the host's answer does not include what it is about.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabbench.catalog.images import why_unfit
from fabbench.hosts.check.model import RDMA_FABRICS, Check, HostChecks, Status, outcome
from fabbench.hosts.measured_elsewhere import measured_elsewhere
from fabbench.hosts.probe_result import UNLIMITED, Link, Probe
from fabbench.model.hosts import NodeDevice
from fabbench.model.mappings import distinct, first_of, gathered, map_values
from fabbench.model.messages import listed, tally
from fabbench.model.units import format_size

_NAMED = 4  # Devices that a sentence names
_MISSING = 127  # A shell's status of a program that was not found
_TIMED_OUT = (124, 137)  # Statuses of timeout(1): by SIGTERM, by SIGKILL
_GIB = 1024**3
_MEMLOCK_ENOUGH = 16 * _GIB
"""What AWS's own health check requires."""
_MEMLOCK_TOO_LITTLE = 64 * 1024**2
"""The largest of the usual defaults; memory registration has been seen to fail with all of them."""
_DISK_WARN = _GIB
_DISK_FAIL = 64 * 1024**2
_BUSY = 0.5
"""Load per CPU above which other work disturbs a measurement."""
_TOOLS = ("stdbuf", "setsid", "timeout")
_CHANGES_RESULTS = (
    "NCCL_P2P_DISABLE",
    "NCCL_SHM_DISABLE",
    "NCCL_IB_DISABLE",
    "NCCL_NET",
    "NCCL_NET_PLUGIN",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "FI_PROVIDER",
)
"""Variables that change what is measured if they are inherited."""
_ABORTS = (("FI_EFA_USE_HUGE_PAGE=1", "FI_EFA_FORK_SAFE=1"), ("FI_EFA_IFACE=",))
"""Settings with which libfabric's EFA provider aborts (fi_efa(7), efa_fork_support.c)."""
_VIRTUAL = re.compile(r"lo|docker\d*|veth.*|br-.*|virbr\d*|cni\d*|flannel.*|cali.*|cilium.*")


def answer(checks: HostChecks) -> Check | None:
    """Check that the host's answer is complete and could be read."""
    if not checks.probe.whole:
        return outcome("answer.cut")
    unread = checks.probe.unread
    if not unread:
        return outcome("answer.whole")
    others = len(unread) - 1
    more = f" (and {others} more)" if others else ""
    return outcome("answer.unread", more=more, first=unread[0])


def libfabric(checks: HostChecks) -> Check | None:
    """Check that ``fi_info`` works, and report what it offers."""
    probe = checks.probe
    status = probe.fi_info.status
    if status is None:  # it was not run, or its status was not reported
        return None
    if status == _MISSING:
        # status None: the usual one of the outcome. Where nothing asks for it, it may be missing.
        needed = checks.has_rdma or checks.fabric
        return outcome("libfabric.missing", status=None if needed else Status.SKIP)
    if status in _TIMED_OUT:
        return outcome("libfabric.hangs", path=probe.fi_info_path)
    if probe.domains:
        version = probe.libfabric or "of unknown version"
        offered = ", ".join(sorted(probe.providers))
        return outcome("libfabric.offers", version=version, offered=offered)
    line = probe.fi_info.first_line or f"It exited with status {status}."
    return outcome("libfabric.nothing", line=line, path=probe.fi_info_path)


def efa(checks: HostChecks) -> Check | None:
    """Compare the EFA devices that libfabric offers with those in /sys and in the catalog.

    None: the host did not report one of them.
    """
    probe = checks.probe
    # `verbs_there` is reported after the devices in /sys: without it these may be missing.
    if probe.verbs_there is None or probe.fi_info.status is None:
        return None
    if not checks.has_efa:
        return outcome("efa.none")
    offered = len(probe.efa_domains)
    in_sysfs = len(probe.devices_of(Link.EFA))
    counts = (
        f"fi_info lists {offered} EFA devices, and /sys has {in_sysfs}{_usual_efa_count(checks)}."
    )
    return outcome(_efa_outcome(checks, offered, in_sysfs), counts=counts)


def _usual_efa_count(checks: HostChecks) -> str:
    """Return how many EFA devices the catalog knows of for the instance type, in words."""
    entry = checks.instance
    if entry is None:
        return ""
    usual = " or ".join(map(str, entry.nics))
    return f"; a {entry.name} has {usual}"


def _efa_outcome(checks: HostChecks, offered: int, in_sysfs: int) -> str:
    """Return the outcome, by how many EFA devices libfabric offers, and how many /sys has."""
    if not offered and not in_sysfs:  # By its type it could have some: a run would use TCP
        return "efa.requested" if checks.fabric == "efa" else "efa.tcp"
    if not offered:
        return "efa.unchecked" if checks.probe.fi_info.status == _MISSING else "efa.unseen"
    entry = checks.instance
    # Of an unknown type all are expected that are seen anywhere.
    expected = entry.nics if entry else (max(in_sysfs, offered),)
    if offered in expected:
        return "efa.all"
    return "efa.more" if offered > max(expected) else "efa.fewer"


def rdma_ports(checks: HostChecks) -> Check | None:
    """Check that the ports of RDMA devices are up, of the requested kind, and have GIDs for RoCE.

    None: not checked, as the host did not report its devices.
    """
    probe = checks.probe
    if probe.verbs_there is None:
        return None
    link = RDMA_FABRICS.get(checks.fabric)  # None: no fabric of RDMA devices was requested
    ports = [port for port in probe.devices if link is None or port.link is link]
    if not ports and link:
        return outcome("rdma-ports.requested", fabric=checks.fabric)
    if not ports:
        return outcome("rdma-ports.none")
    kinds = _kinds_of_devices(probe)
    down = [port.name for port in ports if port.state not in {"ACTIVE", ""}]  # Empty: not known
    if down:
        # No port is left to measure with; else the outcome's usual status.
        status = Status.FAIL if len(down) == len(ports) else None
        return outcome("rdma-ports.down", status, names=", ".join(down), kinds=kinds)
    roce = (port for port in ports if port.link is Link.ROCE)
    without_gid = [port.name for port in roce if port.roce_v2_gid is None]
    if without_gid:
        return outcome("rdma-ports.no-gid", names=", ".join(without_gid))
    rates = {f"{port.rate_gbps:g}" for port in ports if port.rate_gbps}
    rates_in_words = " and ".join(sorted(rates)) or "unknown"
    return outcome("rdma-ports.active", kinds=kinds, rates=rates_in_words)


def _kinds_of_devices(probe: Probe) -> str:
    return tally({kind: len(probe.devices_of(kind)) for kind in Link})


def verbs(checks: HostChecks) -> Check | None:
    """Check that the device files exist, and that this user can open them."""
    probe = checks.probe
    device_files = probe.verbs_there
    if device_files is None:
        return None
    if not checks.has_rdma:
        return outcome("verbs.none")
    if not device_files:
        needed = probe.devices or checks.fabric in RDMA_FABRICS  # else it is a mere warning
        return outcome("verbs.missing", status=None if needed else Status.WARN)
    usable = probe.verbs or 0
    if usable < device_files:
        return outcome("verbs.closed", there=device_files, usable=usable)
    devices = len({port.name for port in probe.devices})
    if device_files < devices:
        return outcome("verbs.fewer", there=device_files, devices=devices)
    return outcome("verbs.usable", there=device_files)


def memlock(checks: HostChecks) -> Check | None:
    """Check how much memory a process may lock: RDMA devices need locked memory."""
    limit = checks.probe.memlock
    if limit is None:
        return None
    if limit == UNLIMITED:
        return outcome("memlock.enough", limit="Locked memory is unlimited.")
    if limit >= _MEMLOCK_ENOUGH:
        name = "memlock.enough"
    elif not checks.has_rdma:
        name = "memlock.not-needed"
    elif limit <= _MEMLOCK_TOO_LITTLE:
        name = "memlock.little"
    else:
        name = "memlock.below"
    return outcome(name, limit=f"Locked memory is limited to {format_size(limit)}.")


def huge_pages(checks: HostChecks) -> Check | None:
    """Check that huge pages are free: EFA's provider puts its buffers there.

    None: the host did not report them. Held: there are some, and none is free.
    """
    probe = checks.probe
    total = probe.huge_pages
    free = probe.huge_pages_free
    if total is None or free is None:
        return None
    if not checks.has_efa:
        name = "huge-pages.not-needed"
    elif not total:
        name = "huge-pages.none"
    else:
        name = "huge-pages.free" if free else "huge-pages.held"
    size = format_size(probe.huge_page_size) if probe.huge_page_size else "unknown size"
    return outcome(name, pages=f"{free} of {total} huge pages ({size}) are free.")


def gpus(checks: HostChecks) -> Check | None:
    """Compare the GPUs with the catalog, and check that they are ready."""
    probe = checks.probe
    if probe.nvidia_smi.status is None:  # not known whether there are any
        return None
    if not probe.gpus:
        return _no_gpus(checks)
    models = ", ".join(distinct(gpu.name for gpu in probe.gpus))
    count = len(probe.gpus)
    described = f"{count} GPUs ({models})."
    expected = checks.expected_gpus
    if expected and count != expected:
        return outcome("gpus.lost", gpus=described, type=probe.instance_type, expected=expected)
    # Empty: no NVLink fabric that it would have to join first.
    waiting = [gpu.fabric for gpu in probe.gpus if gpu.fabric not in {"Completed", ""}]
    if waiting:
        return outcome("gpus.fabric", gpus=described, waiting=len(waiting), state=waiting[0])
    return _fit_of_models(checks, models, described)


def _fit_of_models(checks: HostChecks, models: str, described: str) -> Check:
    """Return the check of GPUs that are all there and ready: whether their models fit."""
    probe = checks.probe
    entry = checks.instance
    names = [gpu.name for gpu in probe.gpus]
    if entry and entry.gpus and not all(map(entry.has_gpu, names)):
        model = entry.gpu_model
        return outcome("gpus.other", gpus=described, type=probe.instance_type, model=model)
    why, advice = why_unfit(checks.image, models, probe.gpus[0].driver)
    if why:
        return outcome("gpus.unfit", gpus=described, why=why, advice=advice)
    return outcome("gpus.ready", gpus=described)


def _no_gpus(checks: HostChecks) -> Check:
    """Return the check of a host on which nvidia-smi shows no GPU."""
    probe = checks.probe
    status = probe.nvidia_smi.status
    count = checks.expected_gpus
    expected = f" A {probe.instance_type} has {count} GPUs." if count else ""
    if status == _MISSING:
        needed = count or checks.needs.gpus
        name = "gpus.missing" if needed else "gpus.not-needed"
        return outcome(name, expected=expected)
    if status in _TIMED_OUT:
        return outcome("gpus.hangs", expected=expected)
    line = probe.nvidia_smi.first_line or f"status {status}"
    return outcome("gpus.none", line=line, expected=expected)


def gpu_work(checks: HostChecks) -> Check | None:
    """Check that nothing else uses the GPUs."""
    probe = checks.probe
    if probe.nvidia_smi.status is None:
        return None
    if not probe.gpus:
        return outcome("gpu-work.none")
    if probe.gpu_processes is None:  # nvidia-smi does not show them
        return outcome("gpu-work.hidden")
    name = "gpu-work.busy" if probe.gpu_processes else "gpu-work.idle"
    return outcome(name, count=probe.gpu_processes)


def plugin(checks: HostChecks) -> Check | None:
    """Check that NCCL finds the plugin aws-ofi-nccl, if there are GPUs and EFA.

    None: the host did not report its GPUs, or its RDMA devices.
    """
    probe = checks.probe
    if probe.nvidia_smi.status is None or probe.verbs_there is None:
        return None
    if not probe.gpus or not checks.has_efa:
        return outcome("plugin.not-needed", lacking="EFA" if probe.gpus else "GPU")
    if probe.plugins:
        return outcome("plugin.found", path=probe.plugins[0])
    needed = checks.reports_efa or checks.fabric == "efa"  # else it is a mere warning
    return outcome("plugin.missing", status=None if needed else Status.WARN)


def programs(checks: HostChecks) -> Check | None:
    """Check that the requested programs were found. None: the host did not report all of them."""
    probe = checks.probe
    needs = checks.needs
    # mpirun has a check of its own
    requested = [program for program in needs.programs if program != "mpirun"]
    if not requested:
        return outcome("programs.none")
    missing = [program for program in requested if program in probe.missing]
    if missing:
        install = f", or install them: {needs.install}" if needs.install else "."
        return outcome("programs.missing", names=", ".join(missing), install=install)
    if any(program not in probe.programs for program in requested):
        return None
    paths = ", ".join(probe.programs[program].path for program in requested)
    return outcome("programs.found", paths=paths)


def mpirun(checks: HostChecks) -> Check | None:
    """Check that there is a supported mpirun. None: the host did not say whether there is one."""
    probe = checks.probe
    if mpi := probe.mpi:
        return outcome("mpirun.found", program=mpi.program, kind=mpi.kind, version=mpi.version)
    required = checks.needs.mpi or "mpirun" in checks.needs.programs
    if "mpirun" not in probe.programs:
        if not required:
            return outcome("mpirun.not-needed")
        return outcome("mpirun.missing") if "mpirun" in probe.missing else None
    status = probe.mpirun_version.status
    if status is None:
        return None
    path = probe.programs["mpirun"].path
    line = probe.mpirun_version.first_line or f"status {status}"
    # status None: the usual one of the outcome.
    return outcome(
        "mpirun.unknown", status=None if required else Status.WARN, program=path, line=line
    )


def tools(checks: HostChecks) -> Check | None:
    """Check the small programs that are needed to start a run."""
    missing = [tool for tool in _TOOLS if tool not in checks.probe.tools]
    if not missing:
        return outcome("tools.found")
    if not checks.probe.whole:
        return None  # They may be in what did not arrive
    return outcome("tools.missing", names=", ".join(missing))


def settings(checks: HostChecks) -> Check | None:
    """Check what programs on the host inherit: some variables change what is measured.

    Those with which libfabric aborts come first. None: not all of them are known.
    """
    probe = checks.probe
    if not probe.whole and not probe.interfaces:
        return None  # A host prints its interfaces after its settings: these may not be all
    inherited = {f"{key}={value}" for key, value in probe.settings.items()}
    fatal = [" with ".join(each) for each in _ABORTS if inherited.issuperset(each)]
    without_rdma = checks.instance is not None and not checks.instance.rdma_read
    if without_rdma and "FI_EFA_USE_DEVICE_RDMA=1" in inherited:
        fatal.append(f"FI_EFA_USE_DEVICE_RDMA=1 on a {probe.instance_type}, which has no RDMA")
    if fatal:
        return outcome("settings.abort", names="; ".join(fatal))
    changing = [key for key in _CHANGES_RESULTS if key in probe.settings]
    changes = [f"{key}={probe.settings[key]}" for key in changing]
    changes += inherited & {"FI_EFA_USE_DEVICE_RDMA=0"}  # Of this one only this value does
    changes += probe.nccl_conf  # Files: whatever they set
    if changes:
        elsewhere = "".join(_tuned_elsewhere(checks))
        return outcome("settings.changes", names=", ".join(changes), elsewhere=elsewhere)
    return outcome("settings.fine", count=len(probe.settings))


def _tuned_elsewhere(checks: HostChecks) -> Iterator[str]:
    """Yield a blank and a sentence for each file of settings that was measured elsewhere.

    What is not certain is not compared: how many nodes there are where one alone is checked, and
    NCCL's version where several are installed.
    """
    probe = checks.probe
    here = {
        "nodes": str(checks.nodes) if checks.nodes > 1 else "",
        "type": probe.instance_type,
        "GPU": probe.gpus[0].name if probe.gpus else "",
        "NCCL": "" if "," in probe.nccl else probe.nccl,
    }
    for each in probe.nccl_conf:
        file, _, measured = each.removesuffix(")").partition(" (measured with ")
        if sentence := measured_elsewhere(file, measured, here):
            yield f" {sentence}"


def disk(checks: HostChecks) -> Check | None:
    """Check that there is room for temporary files."""
    free = checks.probe.temporary_free
    if free is None:
        return None
    name = "disk.little" if free < _DISK_WARN else "disk.free"
    status = Status.FAIL if free < _DISK_FAIL else None  # None: that of the outcome
    return outcome(name, status, folder=checks.probe.temporary, free=free / _GIB)


def load(checks: HostChecks) -> Check | None:
    """Check that the host is idle. None: its load or CPUs were not reported."""
    probe = checks.probe
    if probe.load is None or not probe.cpus:
        return None
    name = "load.busy" if probe.load > _BUSY * probe.cpus else "load.idle"
    return outcome(name, load=probe.load, cpus=probe.cpus)


def interface(checks: HostChecks) -> Check | None:
    """Check the interface that has the host's address."""
    probe = checks.probe
    address = checks.reached_at
    chosen = checks.interface
    if not chosen:
        elsewhere = probe.whole and address and probe.interfaces
        return outcome("interface.other", address=address) if elsewhere else None
    where = f"{chosen} ({address})." if address else f"{chosen} has the default route."
    if _VIRTUAL.fullmatch(chosen):
        return outcome("interface.virtual", where=where)
    down = {each.name for each in probe.interfaces if each.up is False}
    return outcome("interface.down" if chosen in down else "interface.up", where=where)


# ------------------------------------------------------ how GPUs and RDMA devices are attached


@dataclass(frozen=True, slots=True)
class Fact:
    """Something of each device that may cost bandwidth."""

    name: str
    costs_outcome: str
    """In outcomes.toml: that it costs bandwidth of some devices."""
    shown: Callable[[NodeDevice], str]
    """In words; empty: not known, or not of this kind of device."""
    costs: Callable[[NodeDevice], bool]

    def of(self, devices: Mapping[str, NodeDevice]) -> dict[str, list[str]]:
        """Return each thing known of devices, with the names of those that have it in common."""
        shown_of = map_values(self.shown, devices)
        names_of = gathered((shown, name) for name, shown in shown_of.items())
        names_of.pop("", None)  # of these it is not known
        return names_of

    def check(self, checks: HostChecks) -> Check | None:
        """Check a host: name the devices of which it costs bandwidth."""
        if checks.probe.verbs_there is None:  # the host did not report its devices
            return None
        devices = checks.probe.topology
        slow = {name: device for name, device in devices.items() if self.costs(device)}
        if shown := self.of(slow):
            return outcome(self.costs_outcome, devices=_devices_in_words(shown))
        if known := self.of(devices):
            return outcome("topology.fine", devices=_devices_in_words(known))
        return outcome("topology.unknown")

    def summary(self, devices: Mapping[str, NodeDevice]) -> str:
        """Return how many devices of a host have each value of this fact, without their names.

        As in `1 × x8 of x16, 7 × x16 of x16`.
        """
        parts: list[str] = []
        for shown, names in self.of(devices).items():
            count = len(names)
            parts.append(f"{count} × {shown}")
        return ", ".join(sorted(parts))


def _devices_in_words(names_of: Mapping[str, Sequence[str]]) -> str:
    named = {shown: listed(names, _NAMED) for shown, names in names_of.items()}
    return "; ".join(f"{devices}: {shown}" for shown, devices in named.items())


def _link_in_words(device: NodeDevice) -> str:
    """Return a PCIe link as it is, and as it could be; of a NIC also if its port is faster."""
    if not device.width or not device.max_width:
        return ""
    lanes = f"x{device.width} of x{device.max_width}"
    if device.kind == "gpu" or not device.speed or not device.max_speed:
        return lanes  # A GPU lowers its speed while it idles
    link = f"{lanes} at {device.speed:g} of {device.max_speed:g} GT/s"
    carried_gbps = _carried_gbps(device)
    port_gbps = device.rate_gbps or 0  # 0: not known, so that the link is not said to be too slow
    if carried_gbps >= port_gbps:
        return link
    return f"{link}, which carries {carried_gbps:.0f} of the port's {port_gbps:g} Gb/s"


_SLOW_CODE_UP_TO = 5  # GT/s


def _carried_gbps(device: NodeDevice) -> float:
    """Return what a PCIe link carries, in Gb/s, without its line code.

    8b/10b up to 5 GT/s, then 128b/130b.
    """
    lanes = device.width or 0
    speed = device.speed or 0
    payload = 0.8 if speed <= _SLOW_CODE_UP_TO else 128 / 130
    return lanes * speed * payload


def _is_slow_link(device: NodeDevice) -> bool:
    """Return whether a link has fewer lanes than it could, or a NIC's is too slow for its port."""
    if (device.width or 0) < (device.max_width or 0):
        return True
    # A GPU lowers its speed while it idles.
    if device.kind == "gpu" or (device.speed or 0) >= (device.max_speed or 0):
        return False
    return _carried_gbps(device) < (device.rate_gbps or _ANY_RATE)


_ANY_RATE = 1e9
"""Gb/s of a port whose rate is not known: every slower link then counts."""


def _nearest_nics_in_words(device: NodeDevice) -> str:
    """Return how near the nearest NICs of a GPU are; empty: none are known."""
    for distance, names in device.nics.items():  # the nearest first
        count = len(names)
        return f"{distance} to {count} {'NICs' if count > 1 else 'NIC'}"
    return ""


def _across_cpus(device: NodeDevice) -> bool:
    # As nvidia-smi writes the distance of the nearest: by way of the link between CPUs
    return first_of(device.nics, "") == "SYS"


def _redirecting_in_words(device: NodeDevice) -> str:
    """Return where ACS sends what a GPU and a NIC exchange up to the CPU; empty: not known."""
    if device.acs is None:
        return ""
    return f"on at {listed(device.acs, limit=2)}" if device.acs else "off"


def _mtu_in_words(device: NodeDevice) -> str:
    return f"{device.mtu} of {device.max_mtu}" if device.mtu and device.max_mtu else ""


def _small_mtu(device: NodeDevice) -> bool:
    return device.mtu is not None and device.mtu < (device.max_mtu or 0)


PCIE_LINKS = Fact("pcie links", "pcie-links.costs", _link_in_words, _is_slow_link)
GPU_TO_NIC = Fact("gpu to nic", "gpu-to-nic.costs", _nearest_nics_in_words, _across_cpus)
ACS = Fact("acs", "acs.costs", _redirecting_in_words, lambda device: bool(device.acs))
MTU = Fact("mtu", "mtu.costs", _mtu_in_words, _small_mtu)
FACTS = (PCIE_LINKS, GPU_TO_NIC, ACS, MTU)
CHECKS: Mapping[str, Callable[[HostChecks], Check | None]] = {
    "answer": answer,
    "libfabric": libfabric,
    "efa": efa,
    "rdma ports": rdma_ports,
    "verbs": verbs,
    "memlock": memlock,
    "huge pages": huge_pages,
    "gpus": gpus,
    "gpu work": gpu_work,
    "plugin": plugin,
    **{fact.name: fact.check for fact in FACTS},
    "programs": programs,
    "mpirun": mpirun,
    "tools": tools,
    "settings": settings,
    "disk": disk,
    "load": load,
    "interface": interface,
}
"""By name, in order."""
