"""Fabrics and their rails: names, and what the layers below benchmarks call them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fabbench.model.errors import RequestError

# Fabric → how NCCL's network lines are named in `transport` (see evidence/transport.py), and the
# providers that libfabric's own tools report, where these are not named after it.
_NAMES = {
    "efa": ("efa", "efa efa-direct"),
    "tcp": ("socket", "tcp tcp;ofi_rxm"),
    "ofi-tcp": ("libfabric-tcp", "tcp tcp;ofi_rxm"),
    "ib": ("ib", "verbs verbs;ofi_rxm"),
    "roce": ("ib gib", "verbs verbs;ofi_rxm"),
    "gib": ("gib", ""),
    "tcpxo": ("fastrak", ""),
    "shm": ("shm", "shm"),
    "p2p": ("p2p", ""),
    "nvlink": ("mnnvl", ""),
}

INTRA_HOST = ("p2p", "shm")  # Fabrics that exist inside one host only, the best first
# Need no NIC; `nvlink` connects the hosts of a GB200 or GB300 rack
NO_NETWORK = frozenset({*INTRA_HOST, "nvlink"})

AB = "ab"  # Stands for two configurations: the best RDMA fabric that every host has, then tcp
AUTO = "auto"  # Stands for the best fabric that every host has

# For `--ab` to compare with tcp, best first
RDMA = (
    "efa",
    "gib",
    "tcpxo",
    "ib",
    "roce",
    "cxi",
    "psm3",
    "opx",
    "psm2",
)

# No page has to be locked for these
_NO_RDMA = frozenset({"tcp", "ofi-tcp", "sockets", "udp", *NO_NETWORK})
FABRICS = frozenset({*_NAMES, *RDMA})
PROVIDERS = frozenset({
    *("cxi", "efa", "efa-direct", "gni", "lnx", "lpp", "mrail", "netdir", "opx", "psm", "psm2", "psm3", "shm", "sm2"),
    *("sockets", "tcp", "ucx", "udp", "usnic", "verbs"),
})  # fmt: skip
"""Providers of libfabric, https://github.com/ofiwg/libfabric/tree/main/prov"""


def may_use_rdma(fabrics: Iterable[str]) -> bool:
    """Return whether one of these fabrics may be RDMA.

    No fabrics stand for the best that hosts have.
    """
    names = [fabric.partition(";")[0] for fabric in fabrics]
    return not names or any(name not in _NO_RDMA for name in names)


def networks(fabric: str) -> frozenset[str]:
    """Return the values of `transport` for a fabric of NCCL or NVSHMEM.

    Others are libfabric's providers.
    """
    known, _ = _NAMES.get(fabric, ("", ""))
    return frozenset(known.split() or (fabric.lower(), f"libfabric-{fabric.lower()}"))


def providers(fabric: str) -> frozenset[str]:
    """Return the providers that libfabric's own tools report for a fabric.

    A name that is not in the table is itself a provider, with or without libfabric's utility layers
    on top.
    """
    _, known = _NAMES.get(fabric, ("", ""))
    return frozenset(known.split() or (fabric, f"{fabric};ofi_rxm", f"{fabric};ofi_rxd"))


def provider(fabric: str) -> str:
    """Return the libfabric provider of a fabric, without utility layers."""
    return min(providers(fabric), key=len)


def contradicts(transport: str, accepted: frozenset[str]) -> bool:
    """Return whether a transport rules out the accepted ones.

    `libfabric` alone does so only for what is without it.
    """
    through = transport == "libfabric" and any(
        name == "efa" or name.startswith("libfabric-") for name in accepted
    )
    return transport not in {"unknown", *accepted} and not through


@dataclass(frozen=True, slots=True)
class Rail:
    """A device of the first host, and one of the last. Empty: the program chooses."""

    server: str
    client: str
    index: int = 0
    count: int = 1

    def nearest_gpu(self, gpus: int) -> int:
        """Return the index of the GPU nearest to the rail, if both are spread evenly over a host."""
        return self.index * gpus // self.count


def paired_devices(
    first: Sequence[str], last: Sequence[str], hosts: tuple[str, str]
) -> tuple[Rail, ...]:
    """Return the rails between the devices of two hosts; `hosts`: their names.

    Devices of the same name are paired; where the names differ, they are paired in order. Raise
    RequestError if one host has more than the other.
    """
    one, other = (sorted(dict.fromkeys(names), key=natural_order) for names in (first, last))
    if len(one) != len(other):
        counts = (
            f"{host} has {len(names)}" for host, names in zip(hosts, (one, other), strict=True)
        )
        extra = ", ".join(sorted(set(one) ^ set(other), key=natural_order))
        raise RequestError(
            f"Cannot pair devices: {' and '.join(counts)}. Only one of them has {extra}.",
            hint="Pass those that both have with --device.",
        )
    return tuple(
        Rail(*pair, index, len(one)) for index, pair in enumerate(zip(one, other, strict=True))
    )


def natural_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that compares numbers in names as numbers: mlx5_10 sorts after mlx5_2."""
    parts = re.findall(r"([0-9]{1,18})|([^0-9]+|[0-9]+)", name)
    return tuple((0, int(number), "") if number else (1, 0, text) for number, text in parts)
