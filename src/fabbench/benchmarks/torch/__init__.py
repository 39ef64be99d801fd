"""all_reduce of torch.distributed: fabbench's own program, and the reports of other programs."""

from types import MappingProxyType

from fabbench.benchmarks import OF_NCCL
from fabbench.benchmarks.standard import RunBenchmark


class Torch(RunBenchmark):
    """The benchmark ``torch``."""

    name = "torch"
    network_shown = OF_NCCL
    one_scale = True
    default_metrics = ("busbw", "algbw")
    versions = ("nccl", "libfabric", "plugin", "torch", "cuda")
    resolution = MappingProxyType(
        {"busbw": (1e7, 1e6), "algbw": (1e7, 1e6)}
    )  # two or three decimals of GB/s
    python_packages = ("torch==2.9.1",)
    summary = "all_reduce of torch.distributed between GPUs."
    help = """\
    Run fabbench's own all_reduce program with mpirun: one rank per GPU.

    The program is copied to the hosts; they need torch. Its defaults, 500000 x 2000 float32 (4 GB)
    and 50 trials, are those of a public example, the benchmark of
    modal-labs/multinode-training-guide. Fabrics are NCCL's, and are proven as for nccl.

    Example: fabbench run torch --ab --host node-1 --host node-2

    Example: fabbench run torch --on local --fabric p2p --size 64M --size 1G --python
    ~/venv/bin/python
    """


BENCHMARK = Torch()
