"""``fabbench check``: what is wrong with machines, before anything is measured on them."""

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from fabbench.cli import options, run
from fabbench.errors import RequestError
from fabbench.report.parsed import FORMATS

if TYPE_CHECKING:
    from fabbench.check import Check, Wanted
    from fabbench.launchers import Progress
    from fabbench.machines import Needs, Where
    from fabbench.pods.nodes import Node

_DEFAULT = "nccl"
_NAMED = 8
"""Hosts from which on they are counted in place of named."""


def _with_options(function: Any) -> Any:
    for option in reversed((options.config, *options.where)):
        function = option(function)
    return function


@click.command(name="check", short_help="Find out what is wrong with machines, and what to do about it.")
@_with_options
@click.option(
    "--benchmark",
    "benchmarks",
    type=click.Choice(run.names()),
    multiple=True,
    help="What is to be run: the machines need its programs. Can be given several times. "
    f"{_DEFAULT} if not given.",
)
@click.option(
    "--fabric",
    "fabrics",
    multiple=True,
    metavar="NAME",
    help="The fabric that must be there: efa, ib, roce, tcp. Whatever there is if not given.",
)
@click.option("--efa", is_flag=True, help="The same as --fabric efa.")
@click.option(
    "--full",
    is_flag=True,
    help="Try a connection from every host to every other one, not only from the first.",
)
@click.option(
    "--deep",
    is_flag=True,
    help="On kubernetes: start a pod on each node that is free, ask in it what is asked over ssh, and remove "
    "it. With --nodes N on N nodes that a run would take. On slurm: ask the idle nodes by a short job.",
)
@options.form(FORMATS, "How to write what was found.")
@click.option(
    "--task",
    "tasks",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Check a task of SkyPilot's in place of machines, for what SkyPilot takes without a word and drops. "
    "Can be given several times.",
)
def command(**given: Any) -> None:
    """Find out what is wrong with machines, and what to do about it.

    All machines are asked at the same time: whether they answer, what they have (libfabric, EFA, GPUs,
    programs, limits), how far their clocks are off, what differs between them, and whether they reach each
    other, by real connections on ports that no firewall knows. Nothing is written there.

    Skip says that nothing was found out; it is not pass. The exit status is 3 if anything failed, 2 if the
    request makes no sense, else 0.

    On kubernetes the cluster's nodes are shown, and checked by what the cluster says of them; --node,
    --instance-type and --selector choose which. Nothing is started there, but for --deep.

    Example: fabbench check --efa --on ssh --host node-1 --host node-2

    Example: fabbench check --task nccl_efa.yaml
    """
    if given["tasks"]:
        _print(_tasks(given["tasks"]), given["form"])
    from fabbench.check import check_hosts
    from fabbench.launchers import launcher_named

    where, why = options.resolved(given, given["config"], os.environ)
    if given["deep"]:
        where = _deep(where)
    needs = _needs(given["benchmarks"], given["config"].path if given["config"] else None)
    wanted = _wanted(needs, given["benchmarks"], (*given["fabrics"], *(("efa",) if given["efa"] else ())))
    click.echo(f"Target {where.target}{_hosts(where)}: {why}.", err=True)
    with _progress() as progress:
        found = launcher_named(where.launcher).examine(where, needs, full=given["full"], progress=progress)
    position = {name: number for number, name in enumerate(where.hosts)}
    checks = sorted(
        (
            *found.checks,
            *(
                check_hosts(found.probes, wanted=wanted, around=found.around)
                if found.probes or found.around.unreachable
                else ()
            ),
        ),
        key=lambda check: position.get(check.host, 0),
    )
    _print(checks, given["form"], found.nodes)


def _tasks(files: Sequence[Path]) -> "Sequence[Check]":
    """Check tasks of SkyPilot's."""
    from fabbench.skyapi.files import read_tasks
    from fabbench.skypilot.checks import check_task

    return [check for file in files for task in read_tasks(file) for check in check_task(file.name, task)]


def _print(checks: "Sequence[Check]", form: str, nodes: "Sequence[Node]" = ()) -> NoReturn:
    """Write what was found, and end the command with the status it deserves."""
    from fabbench.check import worst
    from fabbench.report.checked import render

    terminal = sys.stdout.isatty()
    width = shutil.get_terminal_size().columns if terminal else None
    click.echo(render(checks, form, nodes=nodes, colour=terminal, width=width), nl=False)
    click.get_current_context().exit(worst(checks))


def _deep(where: "Where") -> "Where":
    """Have pods or a job started. Raises RequestError where there are none."""
    if where.launcher not in {"kubernetes", "slurm"}:
        raise RequestError(
            f"--deep starts pods or a job, and {where.target} has none.",
            hint="Leave it out: machines are asked all there is to know anyway.",
        )
    return replace(where, settings={**where.settings, "deep": True})


def _needs(benchmarks: Sequence[str], config: Path | None) -> "Needs":
    """Put together what benchmarks need."""
    from fabbench.machines import Needs

    found = [run.work(name, config).needs for name in benchmarks or (_DEFAULT,)]
    return Needs(
        programs=tuple(dict.fromkeys(program for needs in found for program in needs.programs)),
        install="; ".join(dict.fromkeys(needs.install for needs in found)),
        mpi=any(needs.mpi for needs in found),
        gpus=any(needs.gpus for needs in found),
    )


def _wanted(needs: "Needs", benchmarks: Sequence[str], fabrics: Sequence[str]) -> "Wanted":
    """Say what to check for. Raises RequestError for several RDMA fabrics: a host has one."""
    from fabbench.check import Wanted
    from fabbench.check.values import RDMA_FABRICS

    rdma = [name for name in dict.fromkeys(fabrics) if name in RDMA_FABRICS]
    if len(rdma) > 1:
        raise RequestError(
            f"Hosts are checked for one RDMA fabric at a time, not for {' and '.join(rdma)}.",
            hint="Name one of them with --fabric.",
        )
    return Wanted(
        programs=needs.programs,
        install=needs.install,
        mpi=needs.mpi,
        gpus=needs.gpus and bool(benchmarks),
        fabric=next(iter((*rdma, *fabrics)), ""),
    )


def _hosts(where: "Where") -> str:
    """Say which hosts are meant, or how many."""
    names = where.hosts[: where.nodes]
    if not names:
        return ""
    return f" ({', '.join(names)})" if len(names) <= _NAMED else f" ({len(names)} hosts)"


@contextmanager
def _progress() -> Iterator["Progress"]:
    """Show what is being done, on a terminal."""
    if not sys.stderr.isatty():
        yield lambda what, done, total: None  # noqa: ARG005 - nobody looks
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    console = Console(stderr=True)
    # No refresh thread: programs are started meanwhile, which is safest without threads (see process.py).
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
        task = progress.add_task("connecting", total=None)
        yield lambda what, done, total: progress.update(
            task, description=what, completed=done, total=total, refresh=True
        )
