"""Checks of RDMA devices, of what libfabric offers on them, of GPUs, and of how both are attached."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fabbench.catalog.images import why_unfit
from fabbench.hosts.check.model import RDMA_FABRICS, HostChecks, Result, Status, outcome
from fabbench.hosts.probe_result import UNLIMITED, Link
from fabbench.model.hosts import NodeDevice
from fabbench.model.messages import listed

_NAMED = 4
_MISSING, _TIMED_OUT = 127, (124, 137)
_MEMLOCK_ENOUGH = 16 * 1024**3
"""What AWS's own health check requires."""
_MEMLOCK_TOO_LITTLE = 64 * 1024**2
"""The largest of the usual defaults; memory registration has been seen to fail with all of them."""


def libfabric(checks: HostChecks) -> Result | None:
    """Check that ``fi_info`` works, and report what it offers."""
    probe, status = checks.probe, checks.probe.fi_info.status
    if status is None:
        return None
    if status == _MISSING:
        needed = checks.has_rdma or checks.requirements.fabric
        return outcome("libfabric.missing", None if needed else Status.SKIP)
    if status in _TIMED_OUT:
        return outcome("libfabric.hangs", path=probe.fi_info_path)
    if probe.domains:
        offered = ", ".join(sorted(probe.providers))
        return outcome("libfabric.offers", version=probe.libfabric or "of unknown version", offered=offered)
    line = " ".join(probe.fi_info.lines[:1]) or f"It exited with status {status}."
    return outcome("libfabric.nothing", line=line, path=probe.fi_info_path)


def efa(checks: HostChecks) -> Result | None:
    """Compare the EFA devices that libfabric offers with those in /sys and in the catalog."""
    probe, entry = checks.probe, checks.instance
    offered, there = len(probe.efa_domains), len(probe.devices_of(Link.EFA))
    if not checks.devices_reported or probe.fi_info.status is None:
        return None
    if not checks.has_efa:
        return outcome("efa.none")
    usual = f"; a {entry.instance_type} has {' or '.join(map(str, entry.efa_counts))}" if entry else ""
    expected = entry.efa_counts if entry else (max(there, offered),)
    if offered:
        found = "all" if offered in expected else "more" if offered > max(expected) else "fewer"
    elif there:
        found = "unchecked" if probe.fi_info.status == _MISSING else "unseen"
    else:
        found = "requested" if checks.requirements.fabric == "efa" else "tcp"
    return outcome(f"efa.{found}", counts=f"fi_info lists {offered} EFA devices, and /sys has {there}{usual}.")


def ports(checks: HostChecks) -> Result | None:
    """Check that the ports of RDMA devices are up, alike, and of the requested kind."""
    probe, fabric = checks.probe, checks.requirements.fabric
    if not checks.devices_reported:
        return None
    link = RDMA_FABRICS.get(fabric)
    devices = [item for item in probe.devices if link is None or item.link is link]
    if not devices:
        return outcome("rdma-ports.requested", fabric=fabric) if link else outcome("rdma-ports.none")
    kinds = ", ".join(f"{len(probe.devices_of(kind))} {kind}" for kind in Link if probe.devices_of(kind))
    down = [item.name for item in devices if item.state not in {"ACTIVE", ""}]
    if down:
        status = Status.FAIL if len(down) == len(devices) else None
        return outcome("rdma-ports.down", status, names=", ".join(down), kinds=kinds)
    bare = [item.name for item in devices if item.link is Link.ROCE and item.roce_v2_gid is None]
    if bare:
        return outcome("rdma-ports.no-gid", names=", ".join(bare))
    rates = sorted({f"{item.rate_gbps:g}" for item in devices if item.rate_gbps})
    return outcome("rdma-ports.active", kinds=kinds, rates=" and ".join(rates) or "unknown")


def verbs(checks: HostChecks) -> Result | None:
    """Check that the device files exist, and that this user can open them."""
    probe = checks.probe
    there, usable, devices = probe.verbs_there, probe.verbs or 0, len({item.name for item in probe.devices})
    if there is None:
        return None
    if not checks.has_rdma:
        return outcome("verbs.none")
    if not there:
        needed = probe.devices or checks.requirements.fabric in RDMA_FABRICS
        return outcome("verbs.missing", None if needed else Status.WARN)
    found = "closed" if usable < there else "fewer" if there < devices else "usable"
    return outcome(f"verbs.{found}", there=there, usable=usable, devices=devices)


def memlock(checks: HostChecks) -> Result | None:
    """Check how much memory a process may lock: RDMA devices need locked memory."""
    limit = checks.probe.memlock
    if limit is None:
        return None
    enough = limit == UNLIMITED or limit >= _MEMLOCK_ENOUGH
    short = "not-needed" if not checks.has_rdma else "little" if limit <= _MEMLOCK_TOO_LITTLE else "below"
    seen = "Locked memory is unlimited." if limit == UNLIMITED else f"A process can lock {_amount(limit)} of memory."
    return outcome(f"memlock.{'enough' if enough else short}", limit=seen)


def huge_pages(checks: HostChecks) -> Result | None:
    """Check that huge pages are free: EFA's provider puts its buffers there."""
    probe = checks.probe
    total, free = probe.huge_pages, probe.huge_pages_free
    if total is None or free is None:
        return None
    size = _amount(probe.huge_page_size) if probe.huge_page_size else "unknown size"
    found = "not-needed" if not checks.has_efa else "none" if not total else "free" if free else "held"
    return outcome(f"huge-pages.{found}", pages=f"{free} of {total} huge pages ({size}) are free.")


def _amount(size: int) -> str:
    """Format a number of bytes in the largest unit that fits."""
    for unit, one in (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)):
        if size >= one:
            return f"{size / one:.3g} {unit}"
    return f"{size} B"


def gpus(checks: HostChecks) -> Result | None:
    """Compare the GPUs with the catalog, and check that they are ready."""
    probe, entry = checks.probe, checks.instance
    status, expected = probe.nvidia_smi.status, entry.gpus if entry else 0
    if status is None:
        return None
    if not probe.gpus:
        return _no_gpus(checks, status, expected)
    models = ", ".join(dict.fromkeys(gpu.name for gpu in probe.gpus))
    seen = f"{len(probe.gpus)} GPUs ({models})."
    if expected and len(probe.gpus) != expected:
        return outcome("gpus.lost", gpus=seen, type=probe.instance_type, expected=expected)
    waiting = [gpu for gpu in probe.gpus if gpu.fabric not in {"Completed", ""}]
    if waiting:
        return outcome("gpus.fabric", gpus=seen, waiting=len(waiting), state=waiting[0].fabric)
    if entry and entry.gpu_model and entry.gpu_model.split()[0] not in models:
        return outcome("gpus.other", gpus=seen, type=probe.instance_type, model=entry.gpu_model)
    why, advice = why_unfit(checks.requirements.image, models, probe.gpus[0].driver)
    return outcome("gpus.unfit" if why else "gpus.ready", gpus=seen, why=why, advice=advice)


def _no_gpus(checks: HostChecks, status: int, expected: int) -> Result:
    if status == _MISSING and not expected and not checks.requirements.gpus:
        return outcome("gpus.not-needed")
    found = "missing" if status == _MISSING else "hangs" if status in _TIMED_OUT else "none"
    line = " ".join(checks.probe.nvidia_smi.lines[:1]) or f"status {status}"
    usual = f" A {checks.probe.instance_type} has {expected} GPUs." if expected else ""
    return outcome(f"gpus.{found}", line=line, expected=usual)


def work(checks: HostChecks) -> Result | None:
    """Check that nothing else uses the GPUs."""
    probe = checks.probe
    if probe.nvidia_smi.status is None:
        return None
    count = probe.gpu_processes
    found = "none" if not probe.gpus else "hidden" if count is None else "busy" if count else "idle"
    return outcome(f"gpu-work.{found}", count=count)


def plugin(checks: HostChecks) -> Result | None:
    """Check that NCCL finds the plugin aws-ofi-nccl, if there are GPUs and EFA."""
    probe = checks.probe
    if probe.nvidia_smi.status is None or not checks.devices_reported:
        return None
    if not probe.gpus or not checks.has_efa:
        return outcome("plugin.not-needed", lacking="EFA" if probe.gpus else "GPU")
    if probe.plugins:
        return outcome("plugin.found", path=probe.plugins[0])
    needed = bool(probe.devices_of(Link.EFA) or probe.efa_domains) or checks.requirements.fabric == "efa"
    return outcome("plugin.missing", None if needed else Status.WARN)


# ---------------------------------------------------------------- how GPUs and RDMA devices are attached


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

    def check(self, checks: HostChecks) -> Result | None:
        """Check a host: name the devices of which it costs bandwidth."""
        devices = checks.probe.topology
        if not checks.devices_reported:
            return None
        if slow := self.of({name: each for name, each in devices.items() if self.costs(each)}):
            return outcome(f"{self.name.replace(' ', '-')}.costs", devices=_sentence(slow))
        known = self.of(devices)
        return outcome("topology.fine" if known else "topology.unknown", devices=_sentence(known))

    def summary(self, devices: Mapping[str, NodeDevice]) -> str:
        """Return what a host has, without the names of its devices."""
        return ", ".join(sorted(f"{len(names)} × {shown}" for shown, names in self.of(devices).items()))


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
    """Return what a PCIe link carries, in Gb/s, without its line code: 8b/10b up to 5 GT/s, then 128b/130b."""
    return (device.width or 0) * (device.speed or 0) * (0.8 if (device.speed or 0) <= 5 else 128 / 130)


def _slow(device: NodeDevice) -> bool:
    """Return whether a link has fewer lanes than it could, or a NIC's is too slow for its port."""
    slower = device.kind != "gpu" and (device.speed or 0) < (device.max_speed or 0)
    return (device.width or 0) < (device.max_width or 0) or (slower and _carried(device) < (device.rate_gbps or 1e9))


def _nearest(device: NodeDevice) -> str:
    return next((f"{far} to {len(names)} NIC{'s' * (len(names) > 1)}" for far, names in device.nics.items()), "")


FACTS = (
    Fact("pcie links", _link, _slow),
    Fact("gpu to nic", _nearest, lambda device: next(iter(device.nics), "") == "SYS"),
    Fact(
        "acs",
        lambda device: "" if device.acs is None else f"on at {listed(device.acs, 2)}" if device.acs else "off",
        lambda device: bool(device.acs),
    ),
    Fact(
        "mtu",
        lambda device: f"{device.mtu} of {device.max_mtu}" if device.mtu and device.max_mtu else "",
        lambda device: device.mtu is not None and device.mtu < (device.max_mtu or 0),
    ),
)
