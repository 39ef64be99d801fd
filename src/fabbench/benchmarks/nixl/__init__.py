"""NIXL's nixlbench: transfers of blocks of memory between two agents, as of a KV cache.

It prints the back end, and never the wire. UCX prints that with UCX_PROTO_INFO=y, and NIXL's back
end of libfabric with NIXL_LOG_LEVEL=INFO.
"""

from types import MappingProxyType

from fabbench.benchmarks.standard import RunBenchmark


class Nixl(RunBenchmark):
    """The benchmark ``nixl``."""

    name = "nixl"
    network_shown = "UCX_PROTO_INFO=y, UCX prints it, and NIXL_LOG_LEVEL=INFO, NIXL with libfabric"
    between_two = True
    default_metrics = ("bandwidth", "latency", "time")
    resolution = MappingProxyType({"latency": (1e-7,)})
    sweep_defaults = MappingProxyType(
        {
            "min_bytes": "1M",
            "max_bytes": "1M",
            "iterations": "160",
            "timeout_s": "60",
        }
    )
    summary = "Blocks of memory with NIXL's nixlbench, as a KV cache moves."
    help = """\
    Run NIXL's nixlbench between two nodes: the first one writes into the memory of the other, or
    reads from it.

    No etcd is needed: the two processes find each other at a port (nixlbench of 2026, or later).
    What carried the data is read from UCX's tables of protocols, or NIXL's own lines; reads and
    writes that are emulated in software count as off-fabric, but on tcp.

    nixlbench's defaults (one thread, one block per request, no progress thread) are slow.

    Options of the program itself go after --, for both sides: --check_consistency=false does not
    verify payloads.

    Example: fabbench run nixl --on prod --ab --memory cuda --operation read --batch 64
    """


BENCHMARK = Nixl()
