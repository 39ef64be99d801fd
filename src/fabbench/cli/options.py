"""Options that several commands have, each in one place."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fabbench.cli.slurm_options import SLURM, slurm
from fabbench.errors import RequestError

if TYPE_CHECKING:
    from fabbench.config import Config
    from fabbench.machines import Where

Function = TypeVar("Function", bound=Callable[..., Any])

store = click.option(
    "--store",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("fabbench-runs"),
    envvar="FABBENCH_STORE",
    show_default=True,
    show_envvar=True,
    help="Directory where runs are kept.",
)


COMPARED = ("markdown", "csv", "json", "terminal")
"""As what comparisons are written: `fabbench.report.FORMATS`, which --help need not import."""


def form(formats: Sequence[str], about: str) -> Callable[[Function], Function]:
    """Give the option that says as what to write something; the first of the formats is the usual one."""
    return click.option(
        "--format", "form", type=click.Choice(formats), default=formats[0], show_default=True, help=about
    )


fabric_of_logs = click.option(
    "--fabric",
    metavar="NAME",
    help="Judge the logs as measured on this fabric (efa, tcp, ib, roce, shm, p2p, ofi-tcp, or a libfabric "
    "provider): a log that shows another carrier is off-fabric, one that shows none is unproven.",
)

where = (
    click.option(
        "--on",
        metavar="TARGET",
        help="Where to run: a target of fabbench.yaml, or local, ssh, slurm, kubernetes, mpijob or skypilot. "
        "Else FABBENCH_TARGET says it.",
    ),
    click.option(
        "--host",
        "--node",
        "hosts",
        multiple=True,
        metavar="HOST",
        help="A host, as ssh knows it, or a node of the cluster. Can be given several times; the first one "
        "is where mpirun runs.",
    ),
    click.option(
        "--nodes",
        type=click.IntRange(1),
        metavar="N",
        help="Use N hosts: the first of those named; in a cluster any that are free, 2 if not given.",
    ),
    click.option(
        "--virtual-nodes",
        type=click.IntRange(1),
        metavar="N",
        help="On local: split this machine's GPUs into N hosts for NCCL, with its network between them.",
    ),
    click.option(
        "--gpus",
        type=click.IntRange(0),
        metavar="N",
        help="GPUs of each host to use. As many as are found if not given.",
    ),
    click.option(
        "--interface",
        metavar="NAME",
        help="Network interface for sockets. The one that has the hosts' addresses if not given.",
    ),
    click.option(
        "--bin-dir",
        "bin_dirs",
        multiple=True,
        metavar="FOLDER",
        help="Look for programs here first, on every host. Can be given several times.",
    ),
    click.option("--mpirun", metavar="PATH", help="The mpirun to use, on the first host."),
    click.option(
        "--ssh-config",
        metavar="FILE",
        help="Read this file in place of ~/.ssh/config.",
    ),
    click.option(
        "--accept-new-host-keys",
        is_flag=True,
        help="Trust hosts that known_hosts does not know. A changed key is refused all the same.",
    ),
    click.option(
        "--mpi-ssh",
        type=click.Choice(["ephemeral", "existing"]),
        help="How mpirun reaches the other hosts: with a key made for this run (ephemeral, if not given), or "
        "as it is set up there.",
    ),
    click.option(
        "--lost-after",
        type=click.FloatRange(1),
        metavar="SECONDS",
        help="Give up a host that has not answered for so long, and end the run. 60 if not given.",
    ),
    click.option(
        "--image",
        metavar="NAME",
        help="Image of the pods, AWS's nccl-tests if not given; or of "
        "the containers of a job of Slurm's, none if not given.",
    ),
    click.option("--instance-type", metavar="TYPE", help="Only nodes of this type, such as p5.48xlarge."),
    click.option(
        "--selector", metavar="LABELS", help="Only nodes with these labels, as kubectl writes them."
    ),
    click.option(
        "--kubeconfig", metavar="FILE", help="The kubeconfig. KUBECONFIG or ~/.kube/config if not given."
    ),
    click.option(
        "--context", metavar="NAME", help="Context of the kubeconfig. The current one if not given."
    ),
    click.option(
        "--namespace", metavar="NAME", help="Namespace of the pods. The context's own if not given."
    ),
    click.option(
        "--mpi-agent",
        type=click.Choice(["ssh", "exec"]),
        help="How mpirun reaches the other pods: by ssh, if not given, or by exec through the cluster's API.",
    ),
    click.option(
        "--host-network", is_flag=True, help="Let the pods use the nodes' own network: a variant of its own."
    ),
    click.option(
        "--pod-request",
        "pod_requests",
        multiple=True,
        metavar="NAME=AMOUNT",
        help="What each pod requests of its node, such as cpu=8, memory=64Gi, shm=8Gi (of /dev/shm), "
        "nvidia.com/gpu=4: in place of that one amount. Can be given several times.",
    ),
    click.option(
        "--start-timeout",
        type=click.FloatRange(1),
        metavar="SECONDS",
        help="Give up pods that are not ready after so long, 300 if not given; a job of Slurm's that has not "
        "started, and a cluster of SkyPilot's that is not up, never if not given.",
    ),
    click.option(
        "--infra",
        metavar="PLACE",
        help="On skypilot: where, as SkyPilot writes it: k8s, k8s/CONTEXT, aws/REGION, slurm/CLUSTER. k8s if "
        "not given.",
    ),
    click.option(
        "--network-tier",
        type=click.Choice(["best", "standard"]),
        help="On skypilot: the network_tier to ask for. On aws the best one if EFA is measured.",
    ),
    click.option(
        "--cluster-name", metavar="NAME", help="On skypilot: name of the cluster. A new one if not given."
    ),
    click.option("--keep", is_flag=True, help="On skypilot: leave the cluster up at the end."),
    click.option(
        "--idle-minutes",
        type=click.IntRange(1),
        metavar="N",
        help="On skypilot: a cluster that is idle for so long tears itself down. 10 if not given.",
    ),
    *slurm,
)
"""Options that say where to run; `resolved` reads them."""

WHERE = (
    *("on", "hosts", "nodes", "virtual_nodes", "gpus", "interface", "bin_dirs", "mpirun"),
    *("ssh_config", "accept_new_host_keys", "mpi_ssh", "lost_after"),
    *("image", "instance_type", "selector", "kubeconfig", "context", "namespace"),
    *("mpi_agent", "host_network", "start_timeout", "pod_requests"),
    *("infra", "network_tier", "cluster_name", "keep", "idle_minutes"),
    *SLURM,
)
"""Their names."""
_OF_ALL = ("hosts", "nodes", "gpus", "interface", "bin_dirs", "mpirun")


def _read_config(ctx: click.Context, parameter: click.Parameter, file: Path | None) -> "Config | None":
    """Read fabbench.yaml before the other options: its defaults are theirs."""
    del parameter
    from fabbench.cli.config import configuration, default_map

    config = configuration(file, os.environ)
    if config is not None:
        defaults = default_map(config, ctx.info_name or "", ctx.command)
        ctx.default_map = {**defaults, **({"store": str(config.store)} if config.store else {})}
    return config


config = click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    envvar="FABBENCH_CONFIG",
    show_envvar=True,
    is_eager=True,
    callback=_read_config,
    help="Read this file instead of the fabbench.yaml that is found.",
)


def resolved(
    given: Mapping[str, Any], config: "Config | None", environment: Mapping[str, str]
) -> "tuple[Where, str]":
    """Say where to run, and why there: what the options say counts before what the target's settings say.

    Raises RequestError that lists the places looked at.
    """
    from fabbench.config.kubeconfig import current_context
    from fabbench.config.resolve import resolve
    from fabbench.launchers import launchers
    from fabbench.machines import Where

    place = resolve(
        given["on"],
        environment,
        config,
        launchers=launchers(),
        inside_slurm="SLURM_JOB_ID" in environment,
        kube_context=lambda: current_context(
            environment, file=given["kubeconfig"] or "", context=given["context"] or ""
        ),
    )
    settings = dict(place.target.settings) if place.target else {}
    settings = {key.replace("-", "_"): value for key, value in settings.items()}
    settings |= {key: given[key] for key in WHERE if key != "on" and given[key] not in {None, (), False}}
    settings["hosts"] = named_hosts(settings.get("hosts", ()))
    of_all = {key: settings.pop(key) for key in (*_OF_ALL, "env") if key in settings}
    return Where(target=place.name, launcher=place.launcher, settings=settings, **of_all), place.why


def named_hosts(texts: Iterable[str]) -> tuple[str, ...]:
    """Name the hosts of lists such as ``node[01-16]``. Raises RequestError."""
    from fabbench.hostlist import expand

    try:
        return tuple(name for text in texts for name in expand(text))
    except ValueError as error:
        raise RequestError(f"{error}.", hint="Write --host NAME, or --host 'node[01-16]'.") from None
