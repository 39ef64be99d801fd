"""``fabbench run torch``."""

from typing import Any

import click

from fabbench.cli.run_measures import limits, nics, operations, sizes
from fabbench.cli.run_options import Asked, RunCommand, Wanted, own, shared_options


@click.command(cls=RunCommand, short_help="all_reduce of torch.distributed between GPUs.")
@shared_options
@click.option(
    "--rows", type=click.IntRange(1), default=500_000, show_default=True, help="Rows of the matrix."
)
@click.option("--columns", type=click.IntRange(1), default=2_000, show_default=True, help="Its columns.")
@sizes("Measure these sizes instead (1024-based: 64K, 1G). Can be given several times.")
@click.option(
    "-d",
    "--dtype",
    type=click.Choice(["float32", "float16", "bfloat16", "float64"]),
    default="float32",
    show_default=True,
    help="Type of the data.",
)
@operations(50, 5, named="--trials")
@click.option(
    "--python", default="", metavar="PATH", help="The Python that has torch, on every host. Else python3."
)
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    default=29500,
    show_default=True,
    help="Where the ranks meet, on the first host.",
)
@nics
@limits(900.0)
def torch(**options: Any) -> Asked:
    """Run fabbench's own all_reduce program with mpirun: one rank for each GPU.

    The program is copied to the hosts; they need torch. As it comes it measures what Modal's multi-node
    benchmark does: 500000 x 2000 float32 (4 GB), 50 trials. Fabrics are NCCL's, and are proven as for nccl.

    Example: fabbench run torch --ab --on ssh --host node-1 --host node-2

    Example: fabbench run torch --on local --fabric p2p --size 64M --size 1G --python ~/venv/bin/python
    """
    from importlib.resources import files

    from fabbench.benchmarks.torch_steps import FILE, TorchWork
    from fabbench.sizes import size

    given = own(options)
    sizes = tuple(dict.fromkeys(size(text) for text in given["sizes"]))
    program = (files("fabbench") / "programs" / FILE).read_text("utf-8")
    work = TorchWork(program=program, **{**given, "sizes": sizes})
    return Asked(Wanted.of(options), "torch", work, {**given, "sizes": ",".join(map(str, sizes))})
