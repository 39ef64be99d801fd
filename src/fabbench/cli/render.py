"""``fabbench render``: the commands of ``fabbench run``, stopped before anything is contacted."""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from click.core import ParameterSource

from fabbench.cli.options import named_hosts
from fabbench.cli.run import RunGroup
from fabbench.cli.run_options import Asked, RunCommand, environment, variants_of
from fabbench.errors import RequestError

if TYPE_CHECKING:
    from fabbench.machines import Where

_NODES = 2
_OF_RUNS = (
    *("on", "virtual_nodes", "ssh_config", "accept_new_host_keys", "mpi_ssh", "lost_after"),
    *("kubeconfig", "context", "start_timeout", "cluster_name", "keep", "idle_minutes", "login"),
    *("keep_going", "gates", "baseline", "metric", "form", "store"),
)
"""What has a meaning only where something is run."""
_OF_ALL = ("hosts", "nodes", "gpus", "interface", "bin_dirs", "mpirun")
_WITH_NODES = ("kubernetes", "mpijob", "slurm")
"""Formats that can say on which nodes."""
_TYPE = "instance_type"
_HELP = {
    "nodes": f"How many hosts. {_NODES} if not given, or those that are named.",
    "hosts": "With kubernetes or mpijob: a node of the cluster, by its label kubernetes.io/hostname; with "
    "slurm by its name. Can be given several times; any if not given.",
}
"""What options of runs mean here."""


class _Rendered(NamedTuple):
    """What is to be written, and as what."""

    asked: Asked
    form: str
    instance_type: str | None
    run_id: str | None


class _RenderCommand(RunCommand):
    """A command of ``fabbench run`` with the options of ``fabbench render``."""

    own: tuple[str, ...] = ()
    """Options that the command of ``fabbench run`` does not have."""

    def invoke(self, ctx: click.Context) -> _Rendered:
        """Read what is to be measured, and as what it is to be written."""
        form, instance_type = ctx.params["as_form"], ctx.params[_TYPE]
        of_runs = _OF_RUNS if form in _WITH_NODES else (*_OF_RUNS, "hosts")
        for option in self.params:
            given = ctx.get_parameter_source(option.name or "") is ParameterSource.COMMANDLINE
            if option.name in of_runs and given:
                raise RequestError(
                    f"{max(option.opts, key=len)} belongs to fabbench run: rendering asks no machine.",
                    hint="--instance-type and --nodes say what the machines are.",
                )
        told = {name: ctx.params.pop(name) for name in self.own}
        return _Rendered(super().invoke(ctx), form, instance_type, told.get("run_id"))


class RenderGroup(RunGroup):
    """Makes the command of a benchmark from that of ``fabbench run``."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command of one benchmark, and give it the options of rendering."""
        found = super().get_command(ctx, cmd_name)
        return None if found is None else _rendering(found)


@click.group(cls=RenderGroup, short_help="Print what would be run elsewhere: a script or manifests.")
def command() -> None:
    """Print what would be run elsewhere, and contact nothing.

    The document runs every arm, interleaved and repeated as fabbench run does it. `fabbench parse` and
    `fabbench compare` read what it prints.

    Example: fabbench render nccl --ab --as script --instance-type p5.48xlarge >nccl.sh
    """


@command.result_callback()
def _print(rendered: _Rendered) -> None:
    """Plan it for machines as the catalogue has them, and print the document."""
    from fabbench.offline import inventory_of, require_names
    from fabbench.plan import Request, plan
    from fabbench.rendering import Job, rendering_named

    wanted, benchmark, work, given = rendered.asked
    rendering = rendering_named(rendered.form)
    where = replace(_where(wanted.place, rendered), variants=variants_of(wanted))
    inventory = inventory_of(
        rendered.instance_type,
        where.nodes or len(where.hosts) or _NODES,
        where=where,
        needs=work.needs,
    )
    request = Request(
        benchmark=benchmark,
        target=where.target,
        where=where,
        fabrics=wanted.fabrics,
        repeats=wanted.repeats,
        env=environment(wanted.env),
        options=given,
    )
    planned = plan(request, inventory, work)
    require_names(planned)
    click.echo(rendering.render(Job(plan=planned, request=request, inventory=inventory, work=work)), nl=False)


def _where(place: Mapping[str, Any], rendered: _Rendered) -> "Where":
    """Say what the machines are to be: the options, and nothing that is found out."""
    from fabbench.machines import Where

    given = {name: value for name, value in place.items() if value not in {None, (), False}}
    of_all = {name: given.pop(name) for name in _OF_ALL if name in given}
    of_all["hosts"] = named_hosts(of_all.get("hosts", ()))
    settings = {name: value for name, value in given.items() if name not in _OF_RUNS}
    if rendered.run_id:
        settings["run_id"] = rendered.run_id
    return Where(target=rendered.form, launcher=rendered.form, settings=settings, **of_all)


def _rendering(run: click.Command) -> click.Command:
    """Make the command: what belongs to runs is there with its usual values, and is not shown."""
    from fabbench.rendering import renderings

    own = (
        click.Option(
            ["--as", "as_form"],
            required=True,
            type=click.Choice(sorted(renderings())),
            help="What to print.",
        ),
        click.Option(
            ["--instance-type"],
            metavar="TYPE",
            help="The EC2 instance type of all hosts: it says how many GPUs and EFA interfaces they have.",
        ),
        click.Option(
            ["--run-id"],
            metavar="ID",
            help="With kubernetes or mpijob: names the objects fabbench-ID. ID is rendered if not given.",
        ),
    )
    shared = {option.name for option in run.params}
    added = [option for option in own if option.name not in shared]
    made = _RenderCommand(
        run.name,
        callback=run.callback,
        params=[*added, *(_shown(option) for option in run.params)],
        help=_first_paragraphs(run.help or ""),
        short_help=run.short_help,
    )
    made.own = tuple(option.name or "" for option in added)
    return made


def _shown(option: click.Parameter) -> click.Parameter:
    """Hide an option of runs, or say what it means here."""
    if not isinstance(option, click.Option) or option.name not in {*_OF_RUNS, *_HELP}:
        return option
    changed = copy.copy(option)
    changed.hidden = option.name not in _HELP
    changed.help = _HELP.get(option.name or "")
    return changed


def _first_paragraphs(text: str) -> str:
    """Leave out the examples, which are those of runs."""
    return text.partition("Example:")[0].rstrip()
