"""Why a figure may be low: the likeliest causes that the log does not exclude, the likeliest first. Pure."""

from collections.abc import Iterator

from fabbench.analysis.setting import Setting
from fabbench.catalog.expectations import published
from fabbench.model.log import Metric

MOST = 3
_SHOWN = {
    "nic-idle": "NICs of the fabric were idle",
    "nic-wrong-network": "other NICs carried the data",
    "nic-errors": "NICs counted drops, retransmissions or link errors",
    "nic-imbalance-tx": "NICs sent unevenly",
    "nic-imbalance-rx": "NICs received unevenly",
    "gdr-disabled": "GPUDirect RDMA is off",
    "write-emulated": "RDMA writes are emulated",
    "nics-disagree": "ranks found different numbers of NICs",
}
"""Findings that explain a low figure."""


def likely_causes(setting: Setting, metric: Metric, value: float) -> tuple[str, ...]:
    """Return up to three causes: those that the log shows, then those that it does not exclude."""
    shown = [words for code, words in _SHOWN.items() if code in setting.findings]
    if metric.lower_is_better:
        others = _of_time(setting)
    elif setting.fabric == "tcp":
        others = _of_sockets()
    else:
        others = _of_rate(setting, value)
    return tuple(dict.fromkeys([*shown, *others]))[:MOST]


def _of_sockets() -> Iterator[str]:
    yield "each flow is limited to 5 Gb/s (10 Gb/s in a cluster placement group)"
    yield "few sockets (NCCL_SOCKET_NTHREADS, NCCL_NSOCKS_PERTHREAD)"
    yield "another interface (NCCL_SOCKET_IFNAME)"


def _of_time(setting: Setting) -> Iterator[str]:
    if not setting.is_stated:
        yield "the data went over TCP: the log does not show the provider"
    yield "the nodes are not in one placement group or zone"
    yield "the figure includes connection set-up: measure with warm-up"
    yield "CPU clocks, or other load"


def _of_rate(setting: Setting, value: float) -> Iterator[str]:
    """Yield causes of a low rate over RDMA."""
    if not setting.is_stated:
        yield f"{_over_tcp(setting, value)}: the log does not show the network (NCCL_DEBUG=INFO)"
    gdr, protocol, nics = (setting.facts.get(name) for name in ("gdr", "protocol", "nics"))
    usual = min(setting.system.nics, default=0)
    if isinstance(nics, int) and usual > nics:
        yield f"{nics} of {usual} NICs were used"
    elif usual > 1 and not isinstance(nics, int):
        yield f"fewer than {usual} NICs"
    if gdr in {"no", "partly"}:
        yield f"GPUDirect RDMA was {'not used' if gdr == 'no' else 'used on some channels only'}"
    elif gdr is None and setting.system.gpus:
        yield "no GPUDirect RDMA"
    if protocol == "SENDRECV" and not setting.system.name.startswith(("p4", "p3", "g5")):
        yield "the plugin used SENDRECV, not RDMA"
    if setting.collective:
        yield "an algorithm or protocol that NCCL_ALGO, NCCL_PROTO or a tuner chose"
        yield "an older NCCL or network plugin"
    yield "one slow node or GPU (measure pairs of nodes)"
    yield "clocks of GPUs or CPUs"


def _over_tcp(setting: Setting, value: float) -> str:
    """Say that it may have been TCP, and what TCP gave others."""
    found = [
        figure.value
        for figure in published()
        if (figure.system, figure.nodes, figure.fabric) == (setting.system.name, setting.nodes, "tcp")
        and figure.case == setting.case
    ]
    if found and value <= max(found) * 1.25:
        low, high = (format(each / 1e9, "g") for each in (min(found), max(found)))
        return f"TCP, which gave {low} to {high} GB/s" if low != high else f"TCP, which gave {high} GB/s"
    return "TCP"
