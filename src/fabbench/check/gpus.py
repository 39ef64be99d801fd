"""Checks of GPUs, and of NCCL's way from them to the network."""

from fabbench.check.values import About, Check
from fabbench.hosts.found import Link

_MISSING, _TIMED_OUT = 127, (124, 137)
_READY = {"Completed", ""}
"""States of the NVLink fabric with which programs can start."""


def gpus(about: About) -> Check:
    """Compare the GPUs with the catalogue, and check that they are ready."""
    probe, name, entry = about.probe, "gpus", about.instance
    status, expected = probe.nvidia_smi.status, entry.gpus if entry else 0
    if status is None:
        return about.untold(name)
    if not probe.gpus:
        return _none(about, status, expected)
    models = ", ".join(dict.fromkeys(gpu.name for gpu in probe.gpus))
    seen = f"{len(probe.gpus)} GPUs ({models})."
    if expected and len(probe.gpus) != expected:
        advice = "Look for Xid errors (dmesg | grep Xid) and for a limit of the container; replace the node."
        return about.fail(name, f"{seen} A {probe.instance_type} has {expected}.", advice)
    waiting = [gpu for gpu in probe.gpus if gpu.fabric not in _READY]
    if waiting:
        seen = f"{seen} The NVLink fabric of {len(waiting)} is not ready: {waiting[0].fabric}."
        advice = (
            "Wait for nvidia-fabricmanager, or start it: until then every program ends with CUDA error 802."
        )
        return about.fail(name, seen, advice)
    if entry and entry.gpu_model and entry.gpu_model.split()[0] not in models:
        advice = "See whether the host is what it says; the catalogue may be too old."
        return about.warn(name, f"{seen} A {probe.instance_type} has {entry.gpu_model}.", advice)
    return about.passed(name, seen)


def _none(about: About, status: int, expected: int) -> Check:
    """Say why there is no GPU."""
    said = " ".join(about.probe.nvidia_smi.said[:1])
    if status == _MISSING:
        seen = "There is no nvidia-smi."
    elif status in _TIMED_OUT:
        seen = "nvidia-smi did not end within 10 s."
    else:
        seen = f"nvidia-smi shows no GPU: {said or f'status {status}'}"
    advice = "Install the NVIDIA driver, and give a container its GPUs (nvidia.com/gpu, --gpus all)."
    if status in _TIMED_OUT:
        advice = "A GPU may have fallen off the bus (dmesg | grep Xid): reset or replace the node."
    if expected:
        return about.fail("gpus", f"{seen} A {about.probe.instance_type} has {expected} GPUs.", advice)
    if about.wanted.gpus or status != _MISSING:
        return about.fail("gpus", seen, advice)
    return about.skip("gpus", seen, "Nothing to do, unless GPUs were meant: then install the NVIDIA driver.")


def work(about: About) -> Check:
    """Check that nobody else uses the GPUs."""
    probe, name = about.probe, "gpu work"
    if probe.nvidia_smi.status is None:
        return about.untold(name)
    if not probe.gpus:
        return about.skip(name, "There is no GPU to be used.", "Nothing to do, unless GPUs were meant.")
    if probe.gpu_processes is None:
        return about.skip(
            name, "nvidia-smi does not say who uses the GPUs.", "Run nvidia-smi there and look."
        )
    if probe.gpu_processes:
        seen = f"Processes that use the GPUs: {probe.gpu_processes}."
        advice = (
            "End them, or measure when they are done: nvidia-smi --query-compute-apps=pid,name names them."
        )
        return about.warn(name, seen, advice)
    return about.passed(name, "No process uses the GPUs.")


def plugin(about: About) -> Check:
    """Check that NCCL finds the plugin aws-ofi-nccl, where there are GPUs and EFA."""
    probe, name = about.probe, "plugin"
    if probe.nvidia_smi.status is None or not about.told_of_devices:
        return about.untold(name)
    if not probe.gpus or not about.has_efa:
        seen = f"There is no {'EFA' if probe.gpus else 'GPU'} here for NCCL's plugin."
        return about.skip(name, seen, "Nothing to do, unless NCCL over EFA was meant.")
    if probe.plugins:
        return about.passed(name, f"aws-ofi-nccl is {probe.plugins[0]}.")
    seen = "No libnccl-net of aws-ofi-nccl was found."
    advice = (
        "Install it with the EFA installer, and put its folder (/opt/amazon/ofi-nccl/lib) into "
        "LD_LIBRARY_PATH: without it NCCL uses sockets and says nothing."
    )
    needed = bool(probe.devices_of(Link.EFA) or probe.efa_domains) or about.wanted.fabric == "efa"
    return about.fail(name, seen, advice) if needed else about.warn(name, seen, advice)
