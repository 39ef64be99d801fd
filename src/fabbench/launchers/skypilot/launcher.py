"""The launcher ``skypilot``: a cluster that SkyPilot launches, and one job per execution on it."""

import contextlib
import importlib
import secrets
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain

from fabbench.catalog.offline_inventory import inventory_of, require_names
from fabbench.evidence.fatal import fatal_message
from fabbench.hosts.check import Check, HostRelations, Progress, Status
from fabbench.launchers import NODES, Examined, Launcher, Rendering, RenderInput, rendering_named
from fabbench.launchers.batch_job import until_started
from fabbench.launchers.skypilot import IDLE_MINUTES, NodeKind, SkyPilotOptions
from fabbench.launchers.skypilot.cluster import ClusterOptions, SkyCluster, echo, failed, prefix, sky, sky_request
from fabbench.logs.demux import Demux
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.model.errors import FabbenchError, MachineError, RequestError
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.model.log import MARKER_SIGN, Ending, read_marker
from fabbench.model.plan import Execution

FILE = "task.yaml"


class SkyPilotAllocation:
    """Launches its cluster with the first execution; see `fabbench.launchers.Allocation`."""

    remote = True

    def __init__(self, inventory: Inventory, rendering: Rendering, cluster: SkyCluster) -> None:
        self.inventory = inventory
        self._rendering, self._cluster = rendering, cluster
        self._document = self._kept = ""
        # The execution that launched the cluster → the lines that its job has printed, and the rest.
        self._first: Mapping[str, tuple[list[str], Generator[str, None, None]]] = {}

    @property
    def documents(self) -> Mapping[str, str]:
        """Return the task that was launched, without its secrets."""
        return {FILE: self._kept} if self._kept else {}

    def submit(self, source: RenderInput) -> None:
        """Launch the cluster with the first execution, and wait until it starts. Raise RequestError, MachineError."""
        require_names(source.plan)
        self._document = self._rendering.render(source)
        self._kept = self._rendering.render(source.redacted())
        first = source.plan.executions[0]
        number = self._cluster.launch(self._document, _variables(first))
        lines = _lines(self._cluster, number)
        printed = [*until_started(lines)]
        if not printed or MARKER_SIGN not in printed[-1]:
            message = Prefixes().cut(printed[-1])[0] if printed else f"Job {number} printed nothing."
            raise MachineError(message.removeprefix("fabbench: "))
        self._first = {first.id: (printed, lines)}

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        """Yield the lines of an execution; return how it ended."""
        if execution.id in self._first:
            printed, lines = self._first[execution.id]
        else:
            number = self._cluster.submit(self._document, _variables(execution))
            printed, lines = [], _lines(self._cluster, number)
        with closing(lines):
            return (yield from Demux(chain(printed, lines)).execute(execution))

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Return nothing: the script prints the counters with its lines."""
        return {}


def _variables(execution: Execution) -> dict[str, str]:
    return {"FABRIC": execution.configuration.label, "EXECUTION": execution.id}


def _lines(cluster: SkyCluster, number: int) -> Generator[str, None, None]:
    """Yield the lines of a job, with a last one that says why, if it failed, and not because one of its steps did."""
    cut = Prefixes().cut
    node, last, step_failed = "", "", False
    with closing(cluster.lines(number)) as lines:
        while True:
            try:
                line = next(lines)
            except StopIteration as end:
                ended = end.value
                break
            text = cut(line)[0]
            node_prefix = prefix(line)
            node = node_prefix or node
            if not node_prefix and (echo(text) or fatal_message(text) is not None):
                last = last if echo(text) else text
                continue
            marker = read_marker(text)
            last = text if node_prefix and text.strip() and marker is None else last
            step_failed = step_failed or bool(marker and marker.kind == "end" and marker.status != 0)
            yield line
    # A failed step explains that its job failed, and not that somebody cancelled it.
    if ended != "SUCCEEDED" and not (step_failed and ended == "FAILED"):
        yield f"{node}{failed(number, ended, last)}"


class SkyPilotLauncher(Launcher):
    """The launcher ``skypilot``."""

    name = "skypilot"
    options = SkyPilotOptions
    open_starts_nothing = True
    inherits = True

    @contextlib.contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[SkyPilotAllocation]:
        """Take the machines from the catalog; the plan launches the cluster. Leaving the context tears it down."""
        options = target.options_as(SkyPilotOptions)
        if target.hosts:
            raise RequestError(
                "--host has no effect with SkyPilot, which chooses the machines.", hint="Use --nodes to set how many."
            )
        sky()
        nodes = target.nodes or NODES
        inventory = inventory_of(options.instance_type, nodes, target=target, needs=needs, image=options.node_image)
        idle = options.idle_minutes
        if idle is None and not options.keep and options.node_kind is not NodeKind.SLURM:
            idle = IDLE_MINUTES
        settings = ClusterOptions(
            name=options.cluster_name or f"fabbench-{secrets.token_hex(2)}",
            idle_minutes=idle,
            keep=options.keep,
            start_s=options.start_timeout,
            inherited=target.inherited,
        )
        with SkyCluster(settings) as cluster:
            yield SkyPilotAllocation(inventory, rendering_named(self.name), cluster)

    def examine(self, target: Target, needs: Needs, *, deep: bool, progress: Progress) -> Examined:
        """Check whether SkyPilot can use the infrastructure. Nothing is launched, and no machine checked."""
        del needs, deep
        infra = target.options_as(SkyPilotOptions).infra
        progress("querying SkyPilot", 0, 1)
        return Examined(probes={}, relations=HostRelations(), checks=tuple(_checks(infra)))


LAUNCHER = SkyPilotLauncher()


def _checks(infra: str) -> Iterator[Check]:
    """Check whether SkyPilot is installed, and can use the infrastructure."""
    try:
        library = sky()
    except FabbenchError as error:
        advice = error.hint or "Install it."
        yield Check(host="skypilot", name="library", status=Status.FAIL, seen=str(error), advice=advice)
        return
    seen = f"SkyPilot {library.__version__}."
    yield Check(host="skypilot", name="library", status=Status.PASS, seen=seen)
    cloud = infra.partition("/")[0]
    try:
        with sky_request(f"SkyPilot cannot check {cloud}") as library:
            # sky.check is a module.
            sdk = importlib.import_module("sky.client.sdk")
            clouds_of = library.get(sdk.check((cloud,), verbose=False))
    except FabbenchError as error:
        advice = "Run sky check for details."
        yield Check(host="skypilot", name="place", status=Status.FAIL, seen=str(error), advice=advice)
        return
    enabled = any(clouds for clouds in clouds_of.values())
    status, word = (Status.PASS, "enabled") if enabled else (Status.FAIL, "not enabled")
    seen, advice = f"{infra}: {word}.", "" if enabled else f"Run sky check {cloud} for details."
    yield Check(host="skypilot", name="place", status=status, seen=seen, advice=advice)
