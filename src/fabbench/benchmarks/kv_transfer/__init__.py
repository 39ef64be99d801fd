"""Transfers of memory between processes, as of a KV cache: programs whose result is a line or two.

Read only: fabbench does not start them. Each is a record of programs.toml.
"""

from fabbench.benchmarks.standard import ReadBenchmark


class KvTransfer(ReadBenchmark):
    """The benchmark ``kv_transfer``."""

    name = "kv_transfer"
    between_two = True


BENCHMARK = KvTransfer()
