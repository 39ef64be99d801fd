"""``fabbench instances``: the catalog of instance types."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fabbench.cli import options, terminal
from fabbench.cli.complete import complete
from fabbench.cli.output import output
from fabbench.report.log_report import FORMATS

if TYPE_CHECKING:
    from fabbench.catalog.instances import Instance

_HEADER = ("TYPE", "ARCH", "VCPU", "GPU", "EFA", "GBIT/S", "GENERATION", "RDMA")


@output
@click.command(short_help="List the EC2 instance types with EFA that fabbench knows.")
@click.argument("type_", metavar="[TYPE]", default="", shell_complete=complete)
@options.form(FORMATS, "How to write the list.")
def command(type_: str, form: str) -> None:
    """List the EC2 instance types with EFA that fabbench knows: GPUs, EFA interfaces, network bandwidth.

    TYPE is an instance type (p5.48xlarge), a family (p5) or the beginning of either.
    """
    from fabbench.catalog.instances import catalogue, plain
    from fabbench.catalog.offline_inventory import looked_up
    from fabbench.report.table import Overview, Table, render_overview

    wanted = plain(type_)
    found = [each for name, each in sorted(catalogue().items()) if name.startswith(wanted)]
    exact = [each for each in found if each.instance_type == wanted]
    found = exact or found or [looked_up(type_)]
    table = Table(
        header=_HEADER,
        rows=[_row(each) for each in found],
        align="llrrrrll",
        notes=["GBIT/S: the whole network bandwidth, one way. EFA: the most EFA interfaces."],
    )
    overview = Overview(name="instances", table=table, records=[asdict(each) for each in found])
    width = terminal.width()
    terminal.write_drawn(render_overview(overview, form, colour=width is not None, width=width))


def _row(found: "Instance") -> tuple[str, ...]:
    gpus = f"{found.gpus} x {found.gpu_model}" if found.gpus else "-"
    if not found.gpus and found.other_accelerators:
        gpus = f"{found.other_accelerators} x {found.other_accelerator_name}"
    rdma = [name for name, able in (("read", found.rdma_read), ("write", found.rdma_write)) if able]
    return (
        found.instance_type,
        found.arch,
        str(found.vcpus or "-"),
        gpus,
        str(found.efa_interfaces),
        f"{found.network_gbps:g}",
        found.efa_generation or "-",
        ", ".join(rdma) or "-",
    )
