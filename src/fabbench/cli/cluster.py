"""Commands about machines: ``check``, ``nodes``, ``instances``, ``clean``."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from fabbench.benchmarks import DEFAULT
from fabbench.cli import terminal
from fabbench.cli.commands import complete, is_verbose
from fabbench.cli.options import LISTED, results, takes, written_age
from fabbench.cli.run_command import TargetCommand, chosen_target, default_work
from fabbench.model.errors import Exit, RequestError
from fabbench.model.messages import listed

if TYPE_CHECKING:
    from fabbench.catalog.instances import Instance
    from fabbench.config.sections import Config
    from fabbench.hosts.check import Requirements
    from fabbench.launchers import Leftover, Leftovers
    from fabbench.model.hosts import Needs, Target


@click.command("check", cls=TargetCommand, selects=lambda each: each.only != "render")
@click.option(
    "--benchmark",
    "benchmarks",
    multiple=True,
    metavar="NAME",
    shell_complete=complete,
    help=f"Benchmark whose programs to look for. Can be given several times. Default: {DEFAULT}.",
)
@takes(fabrics="Fabric to require: efa, ib, roce, tcp. Default: none.")
@click.option("--efa", is_flag=True, help="Measure EFA (short for --fabric efa).")
@click.option(
    "--deep",
    is_flag=True,
    help="On kubernetes: start a pod on each free node, run the checks inside it, and remove it; with "
    "--nodes N, on N nodes that a run would use. On slurm: check the idle nodes with a short job.",
)
@results(LISTED)
def check(**given: Any) -> Exit:
    """Check hosts or clusters before a run, and suggest fixes.

    All machines are checked concurrently: whether they answer, what they have (libfabric, EFA, GPUs,
    programs, limits), what differs between them, and whether they reach each other, with real TCP connections
    on ephemeral ports. Read-only.

    "skip" means not checked; it is not a pass. Skipped checks that need no action are only counted;
    -v lists them. The exit status is 3 if anything failed, 2 for a usage error, else 0.

    On kubernetes the cluster's nodes are shown, and checked by what the cluster reports about them; --node,
    --instance-type and --selector choose which. Nothing is started there, except with --deep.

    Example: fabbench check --efa --host node-1 --host node-2
    """
    from fabbench.hosts.check import check_hosts, worst
    from fabbench.launchers import launcher_named
    from fabbench.launchers.pod_options import with_image
    from fabbench.report.check_report import render_checks

    context = click.get_current_context()
    target, reason = chosen_target(context)
    launcher = launcher_named(target.launcher)
    if given["deep"] and not launcher.has_deep_check:
        raise RequestError(
            f"--deep starts pods or a job, but {target.name} has none.",
            hint="Leave it out: hosts are always checked in full.",
        )
    needs = _needs(given["benchmarks"], given["config"])
    fabrics = (*given["fabrics"], *(("efa",) if given["efa"] else ()))
    target = with_image(target, next(iter(given["benchmarks"]), DEFAULT), fabrics)
    requirements = _requirements(needs, given["benchmarks"], fabrics)
    requirements = replace(requirements, image=getattr(target.options, "image", ""))
    terminal.notify(f"Target {target.name}{_hosts(target)}: {reason}.")
    with terminal.hosts_progress() as progress:
        wanted = replace(needs, fabrics=fabrics)
        examined = launcher.examine(target, wanted, deep=given["deep"], progress=progress)
    checks = list(examined.checks)
    if examined.probes or examined.relations.unreachable:
        checks += check_hosts(examined.probes, requirements=requirements, relations=examined.relations)
    position = {name: number for number, name in enumerate(target.hosts)}
    checks.sort(key=lambda check: position.get(check.host, 0))
    full, overviews = is_verbose(context), examined.overviews
    terminal.show(render_checks, checks, given["form"], overviews=overviews, full=full)
    return worst(checks)


def _needs(benchmarks: Sequence[str], config: "Config | None") -> "Needs":
    from fabbench.model.hosts import Needs

    every = [default_work(name, config).needs for name in benchmarks or (DEFAULT,)]
    return Needs(
        programs=tuple(dict.fromkeys(program for needs in every for program in needs.programs)),
        install="; ".join(dict.fromkeys(needs.install for needs in every)),
        mpi=any(needs.mpi for needs in every),
        gpus=any(needs.gpus for needs in every),
    )


def _requirements(needs: "Needs", benchmarks: Sequence[str], fabrics: Sequence[str]) -> "Requirements":
    """Return what to check for. Raise RequestError for several RDMA fabrics: a host has one."""
    from fabbench.hosts.check import Requirements
    from fabbench.hosts.check.model import RDMA_FABRICS

    rdma = [name for name in dict.fromkeys(fabrics) if name in RDMA_FABRICS]
    if len(rdma) > 1:
        raise RequestError(
            f"Hosts are checked for one RDMA fabric at a time, not for {' and '.join(rdma)}.",
            hint="Specify one of them with --fabric.",
        )
    return Requirements(
        programs=needs.programs,
        install=needs.install,
        mpi=needs.mpi,
        gpus=needs.gpus and bool(benchmarks),
        fabric=next(iter((*rdma, *fabrics)), ""),
    )


def _hosts(target: "Target") -> str:
    names = target.hosts[: target.nodes]
    return f" ({listed(names, 8)})" if names else ""


_WHICH = frozenset({"hosts", "instance_type", "selector", "partition"})
"""Options that choose nodes, besides those that say how to reach a cluster."""


@click.command("nodes", cls=TargetCommand, selects=lambda each: each.reaches or each.name in _WHICH)
@results(LISTED, "How to write the list.")
def list_nodes(form: str, **given: Any) -> None:
    """List the nodes of a cluster: instance type, GPUs, EFA interfaces, health.

    On Kubernetes devices are free/allocatable. Nothing is started.

    Example: fabbench nodes --on kubernetes --selector pool=gpu
    """
    del given
    from fabbench.launchers import launcher_named

    target, reason = chosen_target(click.get_current_context())
    terminal.notify(f"Target {target.name}: {reason}.")
    terminal.print_list(launcher_named(target.launcher).nodes(target), form)


_HEADER = ("TYPE", "ARCH", "VCPU", "GPU", "EFA", "GBIT/S", "GENERATION", "RDMA")


@click.command("instances")
@click.argument("type_", metavar="[TYPE]", default="", shell_complete=complete)
@results(LISTED, "How to write the list.")
def list_instances(type_: str, form: str) -> None:
    """List EC2 instance types with EFA: GPUs, EFA interfaces, network bandwidth.

    TYPE is an instance type (p5.48xlarge), a family (p5) or a prefix of either.
    """
    from fabbench.catalog.instances import instance_catalog, plain
    from fabbench.catalog.offline_inventory import require_instance
    from fabbench.report.table import Overview, Table

    prefix = plain(type_)
    names = [name for name in sorted(instance_catalog()) if name.startswith(prefix)]
    instances = list(map(require_instance, [prefix] if prefix in names else names or [type_]))
    table = Table(
        header=_HEADER,
        rows=[_row(each) for each in instances],
        align="llrrrrll",
        notes=["GBIT/S: the total network bandwidth, one way. EFA: the maximum number of EFA interfaces."],
    )
    terminal.print_list(Overview(name="instances", table=table, records=list(map(asdict, instances))), form)


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


@click.command("clean", cls=TargetCommand, selects=lambda each: each.reaches)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Look in all namespaces.")
@takes(older_than="Also remove runs in progress older than this: 90s, 10m, 2h, 1d.")
@click.option("--all", "whole", is_flag=True, help="Remove everything, including runs in progress.")
@click.option("--force", is_flag=True, help="Force-delete pods on lost nodes, which cannot be removed otherwise.")
@takes("yes")
def clean(
    older_than: timedelta | None, *, everywhere: bool, whole: bool, force: bool, yes: bool, **_reaching: Any
) -> Exit:
    """Remove leftover pods and jobs from a cluster (not local runs).

    `fabbench runs rm` removes local runs.

    Runs remove what they create, and what a killed run created exits on its own within two minutes. This
    command finds the rest by its labels and lists it. It removes what is no longer running: a Job that has
    ended, and objects without one. Anything running may belong to somebody's run in progress, and is kept
    unless you pass --older-than or --all.

    A pod whose node is lost stays until the node is back. With --force the cluster forgets it, although what
    runs in it may continue there until the node comes back or is terminated.

    On slurm it lists this user's jobs that fabbench submitted. All of them are pending or running, so pass
    --older-than or --all to choose which ones to cancel.

    It asks first. Without --yes and without a terminal nothing is removed. The exit status is 1 if there was
    something to remove and it was not, else 0.

    Example: fabbench clean --older-than 1h --yes
    """
    from fabbench.launchers import launcher_named

    target, _ = chosen_target(click.get_current_context())
    with launcher_named(target.launcher).leftovers(target, everywhere=everywhere, force=force) as leftovers:
        return _clean(leftovers, older_than, whole=whole, yes=yes)


def _clean(leftovers: "Leftovers", older_than: timedelta | None, *, whole: bool, yes: bool) -> Exit:
    found = leftovers.found
    if not found:
        terminal.say(f"Nothing left to clean in {leftovers.where}.")
        return Exit.FINE
    chosen = [
        each for each in found if whole or not each.running or (older_than is not None and each.age >= older_than)
    ]
    _list(found, chosen, leftovers.column)
    if not chosen:
        terminal.say("All of it is in use, and was kept. --all removes it, too.")
        return Exit.FINE
    return terminal.remove(chosen, leftovers.remove, "--yes removes it.", yes=yes)


def _list(found: Sequence["Leftover"], chosen: Sequence["Leftover"], column: str) -> None:
    from fabbench.report.table import Table, to_terminal

    header = ("RUN", column, "AGE", "RUNS", "REMOVE", "REQUEST")
    rows = [
        (
            each.run,
            each.namespace,
            written_age(each.age),
            "yes" if each.running else "no",
            "yes" if each in chosen else "no",
            each.request or "-",
        )
        for each in found
    ]
    terminal.show(to_terminal, [Table(header=header, rows=rows, ruled=False)])
