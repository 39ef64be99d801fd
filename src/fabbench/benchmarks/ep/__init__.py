"""Expert parallelism: NCCL EP's ep_bench, and the tests of DeepEP and UCCL-EP.

Tokens are dispatched to the GPUs of their experts, and results combined.
"""

from fabbench.benchmarks.standard import RunBenchmark


class Ep(RunBenchmark):
    """The benchmark ``ep``."""

    name = "ep"
    network_shown = "NCCL_DEBUG=INFO (DeepEP V1: NVSHMEM_DEBUG=INFO), it is printed"
    default_metrics = ("bandwidth", "time", "algbw")
    summary = "Dispatch and combine of expert parallelism (NCCL EP, DeepEP, UCCL-EP)."
    help = """\
    Send tokens to experts on all GPUs and back, as mixture-of-experts models do.

    ep_bench (of nccl-extensions) is started with mpirun, one rank per GPU; DeepEP's tests with one
    process per node, which starts its own ranks; UCCL-EP's with the variables of torchrun. The
    programs check their data. Fabrics are efa, ib, roce, and p2p inside one host: what carried the
    data is read from NCCL's lines about GIN, or NVSHMEM's; no line of UCCL-EP shows it.

    NCCL's all-to-all of the same bytes stands beside it with --alltoall.

    Options of the programs themselves go after --.

    Example: fabbench run ep --on prod --efa --kernels low-latency --tokens 128 --alltoall

    Example: fabbench run ep --on prod --fabric ib --program deepep-v2 --tests
    /opt/DeepEP/tests/elastic
    """


BENCHMARK = Ep()
