"""What is rendered of every benchmark, in every format, for these systems."""

from collections.abc import Mapping, Sequence

from fabbench.cli import cli
from tests.support.command_line import runner

IMAGE = ("--image", "example.com/bench:1")  # No public one has every benchmark
IN_PODS = ("kubernetes", "jobset", "trainjob", "mpijob")
IN_IMAGES = {*IN_PODS, "modal", "skypilot"}
DEVICE = ("--device", "mlx5_0")  # Which only the machines know
BENCHMARKS: Mapping[str, Sequence[str]] = {"perftest": DEVICE, "fabtests": DEVICE}
IB = ("--pod-request", "rdma/ib=1")  # How a cluster of one's own names it, only its nodes know
SYSTEMS: Mapping[str, Sequence[str]] = {"p5.48xlarge": (), "h100-ib": IB, "gb200-nvl72": IB}


def rendered(form: str, *words: str) -> str:
    done = runner().invoke(cli, ["render", *words, "--as", form])
    assert (done.exit_code, done.stderr) == (0, ""), (form, words)
    return done.stdout
