"""Transfers of memory between processes, as of a KV cache: programs whose result is a line or two.

Read only: fabbench does not start them. Each is a record of programs.toml.
"""

from types import MappingProxyType

from fabbench.benchmarks.standard import ReadBenchmark


class KvTransfer(ReadBenchmark):
    """The benchmark ``kv_transfer``."""

    name = "kv_transfer"
    between_two = True
    default_metrics = ("bandwidth", "latency", "time")
    resolution = MappingProxyType({"bandwidth": (1e7,), "latency": (1e-8,), "time": (1e-6,)})


BENCHMARK = KvTransfer()
