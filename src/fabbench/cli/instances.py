"""``fabbench instances``: the catalog of instance types."""

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from fabbench.cli import terminal
from fabbench.cli.complete import complete
from fabbench.cli.output import LISTED, results

if TYPE_CHECKING:
    from fabbench.catalog.instances import Instance

_HEADER = ("TYPE", "ARCH", "VCPU", "GPU", "EFA", "GBIT/S", "GENERATION", "RDMA")


@click.command()
@click.argument("type_", metavar="[TYPE]", default="", shell_complete=complete)
@results(LISTED, "How to write the list.")
def command(type_: str, form: str) -> None:
    """List EC2 instance types with EFA: GPUs, EFA interfaces, network bandwidth.

    TYPE is an instance type (p5.48xlarge), a family (p5) or a prefix of either.
    """
    from fabbench.catalog.instances import instance_catalog, plain
    from fabbench.catalog.offline_inventory import require_instance
    from fabbench.report.table import Overview, Table, render_overview

    prefix = plain(type_)
    names = [name for name in sorted(instance_catalog()) if name.startswith(prefix)]
    instances = list(map(require_instance, [prefix] if prefix in names else names or [type_]))
    table = Table(
        header=_HEADER,
        rows=[_row(each) for each in instances],
        align="llrrrrll",
        notes=["GBIT/S: the total network bandwidth, one way. EFA: the maximum number of EFA interfaces."],
    )
    overview = Overview(name="instances", table=table, records=[asdict(each) for each in instances])
    terminal.show(render_overview, overview, form)


def _row(instance: "Instance") -> tuple[str, ...]:
    gpus = f"{instance.gpus} x {instance.gpu_model}" if instance.gpus else "-"
    if not instance.gpus and instance.other_accelerators:
        gpus = f"{instance.other_accelerators} x {instance.other_accelerator_name}"
    rdma = [name for name, able in (("read", instance.rdma_read), ("write", instance.rdma_write)) if able]
    return (
        instance.instance_type,
        instance.arch,
        str(instance.vcpus or "-"),
        gpus,
        str(instance.efa_interfaces),
        f"{instance.network_gbps:g}",
        instance.efa_generation or "-",
        ", ".join(rdma) or "-",
    )
