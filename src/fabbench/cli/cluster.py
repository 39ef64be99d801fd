"""Commands about machines: ``check``, ``clean``."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import click

from fabbench.benchmarks import DEFAULT
from fabbench.cli import terminal
from fabbench.cli.click_options import CommandLine, pass_command_line, with_parameters
from fabbench.cli.commands import CONFIGURATION_FLAGS
from fabbench.cli.options import results, takes, written_age
from fabbench.cli.run_command import TargetCommand, chosen_target
from fabbench.model.errors import Exit, RequestError
from fabbench.model.fabrics import FABRICS
from fabbench.model.mappings import distinct, first_of
from fabbench.model.messages import listed, with_remark

_MAX_NAMED = 8


@click.command("check", cls=TargetCommand, selects=lambda each: each.for_runs)
@takes(
    benchmark=f"Benchmark whose programs to look for. Default: {DEFAULT}.",
    fabrics="Fabric to require: efa, ib, roce, tcp. Default: that of fabbench.yaml.",
)
@with_parameters(CONFIGURATION_FLAGS[:1])
@click.option(
    "--deep",
    is_flag=True,
    help="On kubernetes: start a pod on each free node, run the checks inside it, and remove it; "
    "with --nodes N, on N nodes that a run would use. On slurm: check the idle nodes with a short "
    "job.",
)
@results("list")
@pass_command_line
def check(line: CommandLine, /, **given: Any) -> Exit:
    """Check hosts or clusters before a run, and suggest fixes.

    All machines are checked concurrently: whether they answer, what they have (libfabric, EFA,
    GPUs, programs, limits), what differs between them, and whether they reach each other, with real
    TCP connections on ephemeral ports. fabbench's agent is put below /tmp for a moment; nothing
    else is changed.

    "skip" means not checked; it is not a pass. Skipped checks that need no action are only counted;
    -v lists them. The exit status is 3 if anything failed, 2 for a usage error, else 0.

    On kubernetes the cluster's nodes are shown, and checked by what the cluster reports about them;
    --node, --instance-type and --selector choose which. Nothing is started there, except with
    --deep.

    Example: fabbench check --efa --host node-1 --host node-2
    """
    from fabbench.config.requests import default_work, with_image
    from fabbench.hosts.check import check_hosts, worst
    from fabbench.launchers import launcher_named
    from fabbench.report.check_report import answer, render_checks

    target, reason = chosen_target(line)
    launcher = launcher_named(target.launcher)
    if given["deep"] and not launcher.has_deep_check:
        raise RequestError(
            f"--deep starts pods or a job, but {target.name} has none.",
            hint="Leave it out: hosts are always checked in full.",
        )
    # Those of fabbench.yaml if none is given: of several the first is checked
    fabrics = [each for each in distinct(given["fabrics"]) if each in FABRICS]
    if len(fabrics) != 1 and "fabrics" in line.typed:
        raise RequestError(
            "Hosts are checked for one fabric at a time.", hint="Pass one of efa, ib, roce, tcp."
        )
    fabric = first_of(fabrics, "")
    benchmark = given["benchmark"] or DEFAULT
    needs = default_work(benchmark, given["config"]).needs
    needs = replace(needs, fabrics=(fabric,) if fabric else ())
    target = with_image(target, benchmark, needs.fabrics)
    # GPUs are only missed if a benchmark was named that needs them
    required = replace(needs, gpus=needs.gpus and given["benchmark"] is not None)
    names = listed(target.hosts[: target.nodes], _MAX_NAMED)
    where = with_remark(target.name, names)
    terminal.notify(f"Target {where}: {reason}.")
    with terminal.changing() as progress:
        examined = launcher.examine(target, needs, deep=given["deep"], progress=progress)
    checks = list(examined.checks)
    if examined.probes or examined.relations.unreachable:
        image = getattr(target.options, "image", "")
        checks += check_hosts(examined.probes, required, image=image, relations=examined.relations)
    # In the order in which the target names its hosts; without names, as they are
    position = {name: number for number, name in enumerate(target.hosts)}
    checks.sort(key=lambda check: position.get(check.host, 0))
    overviews = examined.overviews
    how = {"overviews": overviews, "full": line.verbose}
    answers = [answer(checks)]
    terminal.show(render_checks, checks, given["form"], answer=answers, **how)
    return worst(checks)


@click.command("clean", cls=TargetCommand, selects=lambda each: each.reaches)
@click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="Look in all namespaces.")
@takes(older_than="Also remove runs in progress older than this: 90s, 10m, 2h, 1d.")
@click.option("--all", "whole", is_flag=True, help="Remove everything, including runs in progress.")
@click.option(
    "--force",
    is_flag=True,
    help="Force-delete pods on lost nodes, which cannot be removed otherwise.",
)
@takes("yes")
@pass_command_line
def clean(  # noqa: PLR0913 - its options
    line: CommandLine,
    /,
    older_than: timedelta | None,
    *,
    everywhere: bool,
    whole: bool,
    force: bool,
    yes: bool,
    **_reaching: Any,
) -> Exit:
    """Remove leftover pods and jobs from a cluster (not local runs: `fabbench runs rm`).

    Runs remove what they create, and what a killed run created exits on its own within two minutes.
    This command finds the rest by its labels and lists it. It removes what is no longer running: a
    Job that has ended, and objects without one. Anything running may belong to somebody's run in
    progress, and is kept unless you pass --older-than or --all.

    A pod whose node is lost stays until the node is back. With --force the cluster forgets it,
    although what runs in it may continue there until the node comes back or is terminated.

    On slurm it lists this user's jobs that fabbench submitted. All of them are pending or running,
    so pass --older-than or --all to choose which ones to cancel.

    It asks first. Without --yes and without a terminal nothing is removed. The exit status is 1 if
    there was something to remove and it was not, else 0.

    Example: fabbench clean --older-than 1h --yes
    """
    from fabbench.launchers import launcher_named
    from fabbench.report.table import Table, to_terminal

    target, _ = chosen_target(line)
    with launcher_named(target.launcher).leftovers(
        target, everywhere=everywhere, force=force
    ) as leftovers:
        if not leftovers.found:
            terminal.say(f"Nothing left to clean in {leftovers.where}.")
            return Exit.FINE
        old = timedelta.max if older_than is None else older_than  # `max`: none
        chosen = []
        rows = []
        for each in leftovers.found:
            goes = whole or not each.running or each.age >= old
            if goes:
                chosen.append(each)
            rows.append(
                [
                    each.run,
                    each.namespace,
                    written_age(each.age),
                    "yes" if each.running else "no",
                    "yes" if goes else "no",
                    each.request or "-",
                ]
            )
        header = ("RUN", leftovers.column, "AGE", "RUNS", "REMOVE", "REQUEST")
        terminal.show(to_terminal, [Table(header=header, rows=rows, ruled=False)])
        if not chosen:
            terminal.say("All of it is in use, and was kept. --all removes it, too.")
            return Exit.FINE
        return terminal.remove(chosen, leftovers.remove, "--yes removes it.", yes=yes)
