"""Fabrics: their names, and which carriers a log may show for each."""

from fabbench.errors import RequestError

# How NCCL's network lines are named in `transport` (see evidence.py).
_NCCL_CARRIERS = {
    "efa": {"efa"},
    "tcp": {"socket"},
    "ofi-tcp": {"libfabric-tcp"},
    "ib": {"ib"},
    "roce": {"ib"},
    "shm": {"shm"},
    "p2p": {"p2p"},
}
# libfabric's own tools show a provider; these fabrics are not their provider's name.
_PROVIDERS = {
    "efa": {"efa", "efa-direct"},
    "tcp": {"tcp", "tcp;ofi_rxm"},
    "ofi-tcp": {"tcp", "tcp;ofi_rxm"},
    "ib": {"verbs", "verbs;ofi_rxm"},
    "roce": {"verbs", "verbs;ofi_rxm"},
    "shm": {"shm"},
}
_PERFTEST_CARRIERS = {"efa": {"SRD"}, "ib": {"RC"}, "roce": {"RC"}}

INTRA_HOST = frozenset({"shm", "p2p"})
"""Fabrics that exist inside one host only."""


def carriers(fabric: str, benchmark: str | None) -> frozenset[str]:
    """Values of the fact `transport` that prove `fabric` for `benchmark`.

    A name that is not in the table stands for itself, as a libfabric provider also with libfabric's
    utility layers on top. Raises RequestError where the benchmark has no such fabric.
    """
    if benchmark in {"pingpong", "fabtests"}:
        if fabric == "p2p":
            raise RequestError(
                f"{benchmark} has no fabric p2p", hint="p2p is NCCL's; use shm inside one host"
            )
        layered = {fabric, f"{fabric};ofi_rxm", f"{fabric};ofi_rxd"}
        return frozenset(_PROVIDERS.get(fabric, layered))
    table = _PERFTEST_CARRIERS if benchmark == "perftest" else _NCCL_CARRIERS
    # What NCCL and NVSHMEM use through libfabric is called after libfabric and the provider.
    own = {fabric.lower()} if benchmark == "perftest" else {fabric.lower(), f"libfabric-{fabric.lower()}"}
    return frozenset(table.get(fabric, own))


RDMA = ("efa", "ib", "roce", "cxi", "psm3", "opx", "psm2")
"""Fabrics that `--ab` compares with tcp, the best first."""

FABRICS = frozenset({*_NCCL_CARRIERS, *RDMA})
"""Every name that stands for a fabric here."""


def provider(fabric: str) -> str:
    """Name the libfabric provider of a fabric; a name that is not in the table is the provider's own."""
    return min(_PROVIDERS.get(fabric, {fabric}), key=len)


def contradicts(carrier: str, accepted: frozenset[str]) -> bool:
    """Tell whether a carrier that a log shows rules out those that would prove the fabric.

    `libfabric` alone, with no line that tells the provider, rules out only what does not go through it.
    """
    if carrier == "libfabric" and any(name == "efa" or name.startswith("libfabric-") for name in accepted):
        return False
    return carrier != "unknown" and carrier not in accepted
