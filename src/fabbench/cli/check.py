"""``fabbench check``: what is wrong with machines, before anything is measured on them."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from fabbench.benchmarks import DEFAULT
from fabbench.cli import terminal
from fabbench.cli.complete import complete
from fabbench.cli.options import takes
from fabbench.cli.output import LISTED, results
from fabbench.cli.run_command import TargetCommand, chosen_target, default_work
from fabbench.cli.verbosity import is_verbose
from fabbench.model.errors import RequestError
from fabbench.model.messages import listed

if TYPE_CHECKING:
    from fabbench.config.sections import Config
    from fabbench.hosts.check import Requirements
    from fabbench.model.hosts import Needs, Target


@click.command(name="check", cls=TargetCommand, selects=lambda each: each.only != "render")
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
def command(**given: Any) -> None:
    """Check hosts or clusters before a run, and suggest fixes.

    All machines are checked concurrently: whether they answer, what they have (libfabric, EFA, GPUs,
    programs, limits), how far their clocks are off, what differs between them, and whether they reach each
    other, with real TCP connections on ephemeral ports. Read-only.

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
    context.exit(worst(checks))


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
