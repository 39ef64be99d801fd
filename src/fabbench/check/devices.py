"""Checks of RDMA devices, and of what libfabric makes of them."""

from fabbench.check.values import RDMA_FABRICS, About, Check
from fabbench.hosts.found import UNLIMITED, Link

_MISSING, _TIMED_OUT = 127, (124, 137)
_MEMLOCK_ENOUGH = 16 * 1024**3
"""What AWS's own health check asks for."""
_MEMLOCK_TOO_LITTLE = 64 * 1024**2
"""The largest of the usual defaults, with all of which registering memory has been seen to fail."""
_MIB = 1024**2
_NO_DEVICES = "In Kubernetes request vpc.amazonaws.com/efa; on EC2 attach EFA interfaces when launching."


def libfabric(about: About) -> Check:
    """Check that ``fi_info`` answers, and say what it offers."""
    probe, name = about.probe, "libfabric"
    status = probe.fi_info.status
    if status is None:
        return about.untold(name)
    if status == _MISSING:
        seen = "There is no fi_info, neither in PATH nor in the usual folders."
        advice = (
            "Install libfabric's programs: sudo apt-get install libfabric-bin (Debian, Ubuntu); on AWS the "
            "EFA installer has them (/opt/amazon/efa/bin)."
        )
        needed = about.has_rdma or about.wanted.fabric
        return about.warn(name, seen, advice) if needed else about.skip(name, seen, advice)
    if status in _TIMED_OUT:
        seen = f"{probe.fi_info_path} did not end within 10 s."
        return about.fail(name, seen, "Run fi_info there by hand: a driver or a device may hang.")
    if probe.domains:
        offered = ", ".join(sorted(probe.providers))
        return about.passed(name, f"libfabric {probe.libfabric or 'of unknown version'} offers {offered}.")
    said = " ".join(probe.fi_info.said[:1]) or f"It ended with status {status}."
    seen = f"fi_info offers no provider at all: {said}"
    advice = "Where EFA is, use the EFA installer's libfabric (/opt/amazon/efa); elsewhere install it anew."
    return about.fail(name, f"{seen} ({probe.fi_info_path})", advice)


def efa(about: About) -> Check:
    """Compare the EFA devices that libfabric offers with those in /sys, and with the catalogue."""
    probe, name = about.probe, "efa"
    offered, there = len(probe.efa_domains), len(probe.devices_of(Link.EFA))
    if not about.told_of_devices or probe.fi_info.status is None:
        return about.untold(name)
    if not about.has_efa:
        return about.skip(
            name, "There is no EFA here.", "Nothing to do, unless EFA was meant: then attach it."
        )
    entry = about.instance
    usual = f"; a {entry.instance_type} has {' or '.join(map(str, entry.efa_counts))}" if entry else ""
    seen = f"fi_info offers {offered} EFA devices, and /sys has {there}{usual}."
    if not offered:
        return _no_efa(about, seen, there)
    expected = entry.efa_counts if entry else (max(there, offered),)
    if offered in expected:
        return about.passed(name, seen)
    if offered > max(expected):
        return about.warn(name, seen, "See whether the host is what it says; the catalogue may be too old.")
    advice = f"Give the host all its EFA devices, or the numbers are those of fewer. {_NO_DEVICES}"
    return about.warn(name, seen, advice)


def _no_efa(about: About, seen: str, there: int) -> Check:
    """Say what is wrong where libfabric offers no EFA."""
    if there and about.probe.fi_info.status == _MISSING:
        return about.skip(
            "efa", seen, "Install the EFA installer's libfabric: without fi_info nothing is known."
        )
    if there:
        advice = (
            "libfabric does not see the devices. Use the EFA installer's (/opt/amazon/efa), and see that "
            "/dev/infiniband/uverbs* can be opened."
        )
        return about.fail("efa", seen, advice)
    if about.wanted.fabric == "efa":
        return about.fail("efa", seen, f"No EFA device is on the host. {_NO_DEVICES}")
    return about.warn("efa", seen, f"A run would go over TCP. {_NO_DEVICES}")


def ports(about: About) -> Check:
    """Check that the ports of RDMA devices are up, alike, and of the kind asked for."""
    probe, name = about.probe, "rdma ports"
    if not about.told_of_devices:
        return about.untold(name)
    link = RDMA_FABRICS.get(about.wanted.fabric)
    devices = [item for item in probe.devices if link is None or item.link is link]
    if not devices:
        if link is not None:
            advice = "Name a fabric that is there, or see why its driver found no device (dmesg)."
            return about.fail(name, f"There is no device for {about.wanted.fabric}.", advice)
        return about.skip(
            name, "There is no RDMA device here.", "Nothing to do, unless an RDMA network was meant."
        )
    kinds = ", ".join(f"{len(probe.devices_of(kind))} {kind}" for kind in Link if probe.devices_of(kind))
    down = [item.name for item in devices if item.state not in {"ACTIVE", ""}]
    if down:
        seen = f"Not active: {', '.join(down)} (of {kinds})."
        advice = "Look at the cable, the switch port and the subnet manager; leave these devices out."
        return about.fail(name, seen, advice) if len(down) == len(devices) else about.warn(name, seen, advice)
    bare = [item.name for item in devices if item.link is Link.ROCE and item.roce_v2_gid is None]
    if bare:
        advice = "Give the interface of the device an IPv4 address: RoCE v2 needs its GID."
        return about.warn(name, f"No GID for RoCE v2: {', '.join(bare)}.", advice)
    rates = sorted({f"{item.rate_gbps:g}" for item in devices if item.rate_gbps})
    return about.passed(name, f"Active: {kinds}, at {' and '.join(rates) or 'unknown'} Gb/s each.")


def verbs(about: About) -> Check:
    """Check that the devices' files are there, and that this user may open them."""
    probe, name = about.probe, "verbs"
    there, usable = probe.verbs_there, probe.verbs or 0
    if there is None:
        return about.untold(name)
    if not about.has_rdma:
        return about.skip(
            name, "There is no RDMA device here.", "Nothing to do, unless an RDMA network was meant."
        )
    if not there:
        seen = "There is no /dev/infiniband/uverbs*."
        advice = f"A container must be given the devices. {_NO_DEVICES} On a host load the module ib_uverbs."
        needed = probe.devices or about.wanted.fabric in RDMA_FABRICS
        return about.fail(name, seen, advice) if needed else about.warn(name, seen, advice)
    if usable < there:
        seen = f"This user may open {usable} of {there} /dev/infiniband/uverbs*."
        advice = "Let the user read and write /dev/infiniband/* (group rdma, or a udev rule)."
        return about.fail(name, seen, advice)
    devices = len({item.name for item in probe.devices})
    if there < devices:
        seen = f"There are {there} /dev/infiniband/uverbs* for {devices} devices."
        return about.warn(name, seen, f"The container has been given fewer. {_NO_DEVICES}")
    return about.passed(name, f"All {there} of /dev/infiniband/uverbs* can be opened.")


def memlock(about: About) -> Check:
    """Check how much memory a process may lock: RDMA devices need theirs locked."""
    limit, name = about.probe.memlock, "memlock"
    if limit is None:
        return about.untold(name)
    shown = "unlimited" if limit == UNLIMITED else _amount(limit)
    seen = f"A process may lock {shown} of memory." if limit != UNLIMITED else "Locked memory is unlimited."
    if limit == UNLIMITED or limit >= _MEMLOCK_ENOUGH:
        return about.passed(name, seen)
    if not about.has_rdma:
        return about.skip(name, seen, "Nothing to do: there is no RDMA device here that needs more.")
    advice = (
        "Set memlock to unlimited: over ssh in /etc/security/limits.conf (and log in again), in Kubernetes "
        "with IPC_LOCK, under Slurm with PropagateResourceLimitsExcept=MEMLOCK and the limits of slurmd."
    )
    if limit <= _MEMLOCK_TOO_LITTLE:
        return about.fail(name, seen, advice)
    return about.warn(name, f"{seen} AWS asks for 16 GiB.", advice)


def huge_pages(about: About) -> Check:
    """Check that huge pages are free: EFA's provider puts its buffers there."""
    memory, name = about.probe.memory, "huge pages"
    total, free = memory.huge_pages, memory.huge_pages_free
    if total is None or free is None:
        return about.untold(name)
    size = _amount(memory.huge_page_size) if memory.huge_page_size else "unknown size"
    seen = f"{free} of {total} huge pages ({size}) are free."
    if not about.has_efa:
        return about.skip(name, seen, "Nothing to do: there is no EFA here that uses them.")
    if not total:
        advice = "Set vm.nr_hugepages=5128, as the EFA driver does, or request hugepages-2Mi for the pod."
        return about.warn(name, f"{seen} libfabric takes ordinary pages: slower to register.", advice)
    if not free:
        advice = "End what holds them: with none free, programs end with `fork: Cannot allocate memory`."
        return about.warn(name, seen, advice)
    return about.passed(name, seen)


def _amount(size: int) -> str:
    """Write a number of bytes in the largest unit that keeps it readable."""
    for unit, one in (("GiB", 1024**3), ("MiB", _MIB), ("KiB", 1024)):
        if size >= one:
            return f"{size / one:.3g} {unit}"
    return f"{size} B"
