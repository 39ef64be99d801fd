"""Fabrics and their rails: names, and what the layers below benchmarks call them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from fabbench.model.errors import RequestError
from fabbench.model.mappings import Names, distinct, without_empty
from fabbench.model.templates import rows_of

_TABLE = rows_of("fabrics.csv", "fabbench.model")
"""It explains its columns itself."""
_ROWS = {row["name"]: row for row in _TABLE}


def of_kind(kind: str) -> Names:
    """Return the fabrics of a kind of fabrics.csv, in its order."""
    rows = (row for row in _TABLE if row["kind"] == kind)
    return tuple(row["name"] for row in rows)


RDMA = of_kind("rdma")  # For `--ab` to compare with tcp, best first
INTRA_HOST = of_kind("inside")  # Fabrics that exist inside one host only, the best first
NO_NETWORK = frozenset({*INTRA_HOST, *of_kind("rack")})  # Need no NIC
NICS = without_empty({row["name"]: row["nics"] for row in _TABLE})
"""Fabric → the kind of NICs that carry it; none for one whose counters are not read."""

AB = "ab"  # Stands for two configurations: the best RDMA fabric that every host has, then tcp
AUTO = "auto"  # Stands for the best fabric that every host has

# No page has to be locked for these
_NO_RDMA = frozenset({*of_kind("sockets"), "sockets", "udp", *NO_NETWORK})
FABRICS_AND_PROVIDERS = frozenset(_ROWS)
FABRICS = FABRICS_AND_PROVIDERS.difference(of_kind("provider"))


def may_use_rdma(fabrics: Iterable[str]) -> bool:
    """Return whether one of these fabrics may be RDMA.

    No fabrics stand for the best that hosts have, which may be. What follows ``;`` are layers.
    """
    names = [fabric.partition(";")[0] for fabric in fabrics]
    return not names or any(name not in _NO_RDMA for name in names)


def networks(fabric: str) -> frozenset[str]:
    """Return the values of `transport` for a fabric of NCCL or NVSHMEM.

    Any other name is one of libfabric's providers, which logs state with or without `libfabric-`.
    """
    name = fabric.lower()
    return _names_in("networks", fabric) or frozenset({name, f"libfabric-{name}"})


def providers(fabric: str) -> frozenset[str]:
    """Return the providers that libfabric's own tools report for a fabric.

    A name that is not in the table is itself a provider, with or without libfabric's utility layers
    on top.
    """
    with_layers = frozenset({fabric, f"{fabric};ofi_rxm", f"{fabric};ofi_rxd"})
    return _names_in("providers", fabric) or with_layers


def _names_in(column: str, fabric: str) -> frozenset[str]:
    """Return the names in a column of a fabric; none where it has none, or is not in the table."""
    row = _ROWS.get(fabric, {})
    return frozenset(row.get(column, "").split())


def provider(fabric: str) -> str:
    """Return the libfabric provider of a fabric, without utility layers."""
    return min(providers(fabric), key=len)  # layers follow its name


def contradicts(transport: str, accepted: frozenset[str]) -> bool:
    """Return whether a transport rules out the accepted ones.

    `libfabric` without a provider may be any of its transports; `unknown` may be anything.
    """
    if transport == "libfabric" and any(map(_is_of_libfabric, accepted)):
        return False
    return transport not in {"unknown", *accepted}


def _is_of_libfabric(transport: str) -> bool:
    return transport == "efa" or transport.startswith("libfabric-")


@dataclass(frozen=True, slots=True)
class Rail:
    """A device of the first host, and one of the last. Empty: the program chooses."""

    server: str
    client: str
    index: int = 0  # Its position among the rails between the two hosts
    count: int = 1  # How many these are

    def nearest_gpu(self, gpus: int) -> int:
        """Return the index of the GPU nearest to the rail, if a host has both spread evenly."""
        return self.index * gpus // self.count


def paired_devices(
    first: Sequence[str], last: Sequence[str], hosts: tuple[str, str]
) -> tuple[Rail, ...]:
    """Return the rails between the devices of two hosts; `hosts`: their names.

    They are paired in the order of their names: where hosts have the same devices, each is paired
    with itself. Raise RequestError if one host has more than the other.
    """
    servers = sorted(distinct(first), key=natural_order)
    clients = sorted(distinct(last), key=natural_order)
    count = len(servers)
    if len(clients) != count:
        server, client = hosts
        counts = f"{server} has {count} and {client} has {len(clients)}"
        only_one = sorted({*servers} ^ {*clients}, key=natural_order)
        extra = ", ".join(only_one)
        raise RequestError(
            f"Cannot pair devices: {counts}. Only one of them has {extra}.",
            hint="Pass those that both have with --device.",
        )
    pairs = zip(servers, clients, strict=True)
    return tuple(Rail(*pair, index, count) for index, pair in enumerate(pairs))


def natural_order(name: str) -> tuple[tuple[int, int, str], ...]:
    """Return a sort key that compares numbers in names as numbers: mlx5_10 sorts after mlx5_2."""
    parts: list[tuple[int, int, str]] = []
    # A number that is longer, such as a hash, is compared piece by piece.
    for number, text in re.findall(r"([0-9]{1,18})|([^0-9]+)", name):
        parts.append((0, int(number), "") if number else (1, 0, text))  # numbers before text
    return tuple(parts)
