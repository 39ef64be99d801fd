"""Checks of RDMA devices, of what libfabric offers on them, and of GPUs and their path to the network."""

from fabbench.catalog.images import why_unfit
from fabbench.hosts.check.model import RDMA_FABRICS, HostChecks, Result, fail, passed, skip, warn
from fabbench.hosts.probe_result import UNLIMITED, Link

_MISSING, _TIMED_OUT = 127, (124, 137)
_MEMLOCK_ENOUGH = 16 * 1024**3
"""What AWS's own health check requires."""
_MEMLOCK_TOO_LITTLE = 64 * 1024**2
"""The largest of the usual defaults; memory registration has been seen to fail with all of them."""
_NO_DEVICES = "In Kubernetes request vpc.amazonaws.com/efa; on EC2 attach EFA interfaces when launching."


def libfabric(checks: HostChecks) -> Result | None:
    """Check that ``fi_info`` works, and report what it offers."""
    probe = checks.probe
    status = probe.fi_info.status
    if status is None:
        return None
    if status == _MISSING:
        seen = "fi_info was not found in PATH or the usual directories."
        advice = (
            "Install libfabric's tools: sudo apt-get install libfabric-bin (Debian, Ubuntu); on AWS "
            "they come with the EFA installer (/opt/amazon/efa/bin)."
        )
        needed = checks.has_rdma or checks.requirements.fabric
        return warn(seen, advice) if needed else skip(seen, advice)
    if status in _TIMED_OUT:
        seen = f"{probe.fi_info_path} timed out after 10 s."
        return fail(seen, "Run fi_info there by hand: a driver or device may be hanging.")
    if probe.domains:
        offered = ", ".join(sorted(probe.providers))
        return passed(f"libfabric {probe.libfabric or 'of unknown version'} offers {offered}.")
    line = " ".join(probe.fi_info.lines[:1]) or f"It exited with status {status}."
    seen = f"fi_info lists no providers: {line}"
    advice = "On EFA hosts, use the EFA installer's libfabric (/opt/amazon/efa); elsewhere, reinstall libfabric."
    return fail(f"{seen} ({probe.fi_info_path})", advice)


def efa(checks: HostChecks) -> Result | None:
    """Compare the EFA devices that libfabric offers with those in /sys and in the catalog."""
    probe = checks.probe
    offered, there = len(probe.efa_domains), len(probe.devices_of(Link.EFA))
    if not checks.devices_reported or probe.fi_info.status is None:
        return None
    if not checks.has_efa:
        return skip("No EFA device was found.", "Nothing to do unless you expect EFA; then attach it.")
    entry = checks.instance
    usual = f"; a {entry.instance_type} has {' or '.join(map(str, entry.efa_counts))}" if entry else ""
    seen = f"fi_info lists {offered} EFA devices, and /sys has {there}{usual}."
    if not offered:
        return _no_efa(checks, seen, there)
    expected = entry.efa_counts if entry else (max(there, offered),)
    if offered in expected:
        return passed(seen)
    if offered > max(expected):
        return warn(seen, "Check the host's instance type; the catalog may be out of date.")
    advice = f"Give the host all its EFA devices; otherwise you measure fewer. {_NO_DEVICES}"
    return warn(seen, advice)


def _no_efa(checks: HostChecks, seen: str, there: int) -> Result:
    if there and checks.probe.fi_info.status == _MISSING:
        return skip(seen, "Install the EFA installer's libfabric: without fi_info the devices cannot be checked.")
    if there:
        advice = (
            "libfabric does not see the devices. Use the EFA installer's libfabric (/opt/amazon/efa), "
            "and check that /dev/infiniband/uverbs* can be opened."
        )
        return fail(seen, advice)
    if checks.requirements.fabric == "efa":
        return fail(seen, f"The host has no EFA device. {_NO_DEVICES}")
    return warn(seen, f"A run would use TCP. {_NO_DEVICES}")


def ports(checks: HostChecks) -> Result | None:
    """Check that the ports of RDMA devices are up, alike, and of the requested kind."""
    probe = checks.probe
    if not checks.devices_reported:
        return None
    link = RDMA_FABRICS.get(checks.requirements.fabric)
    devices = [item for item in probe.devices if link is None or item.link is link]
    if not devices:
        if link is not None:
            advice = "Choose an available fabric, or check why its driver found no device (dmesg)."
            return fail(f"No {checks.requirements.fabric} device was found.", advice)
        return skip("No RDMA device was found.", "Nothing to do unless you expect an RDMA network.")
    kinds = ", ".join(f"{len(probe.devices_of(kind))} {kind}" for kind in Link if probe.devices_of(kind))
    down = [item.name for item in devices if item.state not in {"ACTIVE", ""}]
    if down:
        seen = f"Not active: {', '.join(down)} (of {kinds})."
        advice = "Check the cable, the switch port and the subnet manager, or leave these devices out."
        return fail(seen, advice) if len(down) == len(devices) else warn(seen, advice)
    bare = [item.name for item in devices if item.link is Link.ROCE and item.roce_v2_gid is None]
    if bare:
        advice = "Assign an IPv4 address to the device's interface: RoCE v2 needs its GID."
        return warn(f"No RoCE v2 GID: {', '.join(bare)}.", advice)
    rates = sorted({f"{item.rate_gbps:g}" for item in devices if item.rate_gbps})
    return passed(f"Active: {kinds}, at {' and '.join(rates) or 'unknown'} Gb/s each.")


def verbs(checks: HostChecks) -> Result | None:
    """Check that the device files exist, and that this user can open them."""
    probe = checks.probe
    there, usable = probe.verbs_there, probe.verbs or 0
    if there is None:
        return None
    if not checks.has_rdma:
        return skip("No RDMA device was found.", "Nothing to do unless you expect an RDMA network.")
    if not there:
        seen = "/dev/infiniband/uverbs* was not found."
        advice = f"Pass the devices to the container. {_NO_DEVICES} On a host, load the module ib_uverbs."
        needed = probe.devices or checks.requirements.fabric in RDMA_FABRICS
        return fail(seen, advice) if needed else warn(seen, advice)
    if usable < there:
        seen = f"This user can open {usable} of {there} /dev/infiniband/uverbs*."
        advice = "Allow the user to read and write /dev/infiniband/* (group rdma, or a udev rule)."
        return fail(seen, advice)
    devices = len({item.name for item in probe.devices})
    if there < devices:
        seen = f"There are {there} /dev/infiniband/uverbs* for {devices} devices."
        return warn(seen, f"The container was given fewer. {_NO_DEVICES}")
    return passed(f"All {there} /dev/infiniband/uverbs* can be opened.")


def memlock(checks: HostChecks) -> Result | None:
    """Check how much memory a process may lock: RDMA devices need locked memory."""
    limit = checks.probe.memlock
    if limit is None:
        return None
    seen = "Locked memory is unlimited." if limit == UNLIMITED else f"A process can lock {_amount(limit)} of memory."
    if limit == UNLIMITED or limit >= _MEMLOCK_ENOUGH:
        return passed(seen)
    if not checks.has_rdma:
        return skip(seen, "Nothing to do: no RDMA device here needs more.")
    advice = (
        "Set memlock to unlimited: over ssh in /etc/security/limits.conf (and log in again), in Kubernetes "
        "with IPC_LOCK, under Slurm with PropagateResourceLimitsExcept=MEMLOCK and the limits of slurmd."
    )
    if limit <= _MEMLOCK_TOO_LITTLE:
        return fail(seen, advice)
    return warn(f"{seen} AWS recommends 16 GiB.", advice)


def huge_pages(checks: HostChecks) -> Result | None:
    """Check that huge pages are free: EFA's provider puts its buffers there."""
    probe = checks.probe
    total, free = probe.huge_pages, probe.huge_pages_free
    if total is None or free is None:
        return None
    size = _amount(probe.huge_page_size) if probe.huge_page_size else "unknown size"
    seen = f"{free} of {total} huge pages ({size}) are free."
    if not checks.has_efa:
        return skip(seen, "Nothing to do: no EFA device here uses them.")
    if not total:
        advice = "Set vm.nr_hugepages=5128, as the EFA driver does, or request hugepages-2Mi for the pod."
        return warn(f"{seen} libfabric uses regular pages, which are slower to register.", advice)
    if not free:
        advice = "Stop what holds them: with none free, programs fail with `fork: Cannot allocate memory`."
        return warn(seen, advice)
    return passed(seen)


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
        advice = "Look for Xid errors (dmesg | grep Xid) and for a limit of the container; replace the node."
        return fail(f"{seen} A {probe.instance_type} has {expected}.", advice)
    waiting = [gpu for gpu in probe.gpus if gpu.fabric not in {"Completed", ""}]
    if waiting:
        seen = f"{seen} The NVLink fabric of {len(waiting)} is not ready: {waiting[0].fabric}."
        advice = "Wait for nvidia-fabricmanager, or start it: until then every program fails with CUDA error 802."
        return fail(seen, advice)
    if entry and entry.gpu_model and entry.gpu_model.split()[0] not in models:
        advice = "Check the host's instance type; the catalog may be out of date."
        return warn(f"{seen} A {probe.instance_type} has {entry.gpu_model}.", advice)
    why, advice = why_unfit(checks.requirements.image, models, probe.gpus[0].driver)
    return fail(f"{seen} {why}", advice) if why else passed(seen)


def _no_gpus(checks: HostChecks, status: int, expected: int) -> Result:
    line = " ".join(checks.probe.nvidia_smi.lines[:1])
    if status == _MISSING:
        seen = "nvidia-smi was not found."
    elif status in _TIMED_OUT:
        seen = "nvidia-smi timed out after 10 s."
    else:
        seen = f"nvidia-smi shows no GPU: {line or f'status {status}'}"
    advice = "Install the NVIDIA driver, and give a container its GPUs (nvidia.com/gpu, --gpus all)."
    if status in _TIMED_OUT:
        advice = "A GPU may have fallen off the bus (dmesg | grep Xid): reset or replace the node."
    if expected:
        return fail(f"{seen} A {checks.probe.instance_type} has {expected} GPUs.", advice)
    if checks.requirements.gpus or status != _MISSING:
        return fail(seen, advice)
    return skip(seen, "Nothing to do unless you expect GPUs; then install the NVIDIA driver.")


def work(checks: HostChecks) -> Result | None:
    """Check that nothing else uses the GPUs."""
    probe = checks.probe
    if probe.nvidia_smi.status is None:
        return None
    if not probe.gpus:
        return skip("No GPU was found.", "Nothing to do unless you expect GPUs.")
    if probe.gpu_processes is None:
        return skip("nvidia-smi does not show which processes use the GPUs.", "Run nvidia-smi there by hand.")
    if probe.gpu_processes:
        seen = f"Processes using the GPUs: {probe.gpu_processes}."
        advice = "Stop them, or wait until they finish: nvidia-smi --query-compute-apps=pid,name lists them."
        return warn(seen, advice)
    return passed("No process uses the GPUs.")


def plugin(checks: HostChecks) -> Result | None:
    """Check that NCCL finds the plugin aws-ofi-nccl, if there are GPUs and EFA."""
    probe = checks.probe
    if probe.nvidia_smi.status is None or not checks.devices_reported:
        return None
    if not probe.gpus or not checks.has_efa:
        seen = f"NCCL's plugin has no {'EFA' if probe.gpus else 'GPU'} to use here."
        return skip(seen, "Nothing to do unless you expect NCCL over EFA.")
    if probe.plugins:
        return passed(f"aws-ofi-nccl is {probe.plugins[0]}.")
    seen = "The aws-ofi-nccl plugin (libnccl-net) was not found."
    advice = (
        "Install it with the EFA installer, and add its directory (/opt/amazon/ofi-nccl/lib) to "
        "LD_LIBRARY_PATH: without it NCCL silently uses sockets."
    )
    needed = bool(probe.devices_of(Link.EFA) or probe.efa_domains) or checks.requirements.fabric == "efa"
    return fail(seen, advice) if needed else warn(seen, advice)
