"""The launcher ``skypilot``: a cluster that SkyPilot launches, and one job per execution on it."""

import contextlib
import importlib
import secrets
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain

from fabbench.catalog.offline_inventory import inventory_of, require_names
from fabbench.evidence.known_errors import failure
from fabbench.hosts.check import Check, HostRelations, Progress, Status
from fabbench.launchers import NODES, Examined, Launcher, Rendering, RenderInput, rendering_named
from fabbench.launchers.batch_job import until_begun
from fabbench.launchers.skypilot import IDLE_MINUTES, Flavour, SkyPilotOptions
from fabbench.launchers.skypilot.cluster import ClusterOptions, SkyCluster, asking, echo, failed, prefix, sky
from fabbench.logs.demux import Demux
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.model.errors import FabbenchError, MachineError, RequestError
from fabbench.model.hosts import Inventory, Needs, Target
from fabbench.model.log import MARKER_SIGN, Ending, read_marker
from fabbench.model.plan import Execution

FILE = "task.yaml"


class SkyPilotAllocation:
    """A place that launches its cluster with the first execution; see `fabbench.launchers.Allocation`."""

    remote = True

    def __init__(self, inventory: Inventory, rendering: Rendering, cluster: SkyCluster) -> None:
        self.inventory = inventory
        self._rendering, self._cluster = rendering, cluster
        self._document = self._kept = ""
        self._first: Mapping[str, tuple[list[str], Generator[str, None, None]]] = {}
        """The execution with which the cluster was launched → what its job has printed, and what it will."""

    @property
    def documents(self) -> Mapping[str, str]:
        """Return the task that was launched, less its secrets."""
        return {FILE: self._kept} if self._kept else {}

    def submit(self, source: RenderInput) -> None:
        """Render the task, launch the cluster with the first execution, and wait until that begins.

        Raise RequestError for what cannot be expressed, MachineError where there are no such machines, or
        something is missing there.
        """
        require_names(source.plan)
        self._document = self._rendering.render(source)
        self._kept = self._rendering.render(source.redacted())
        first = source.plan.executions[0]
        number = self._cluster.launch(self._document, _variables(first))
        lines = _lines(self._cluster, number)
        begun = [*until_begun(lines)]
        if not begun or MARKER_SIGN not in begun[-1]:
            told = Prefixes().cut(begun[-1])[0] if begun else f"Job {number} printed nothing."
            raise MachineError(told.removeprefix("fabbench: "))
        self._first = {first.id: (begun, lines)}

    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        """Yield the lines of an execution, and how it ended."""
        begun, lines = self._first.get(execution.id) or ([], self._job(execution))
        with closing(lines):
            return (yield from Demux(chain(begun, lines)).execute(execution))

    def _job(self, execution: Execution) -> Generator[str, None, None]:
        """Submit an execution, and yield the lines of its job."""
        return _lines(self._cluster, self._cluster.submit(self._document, _variables(execution)))

    def counters(self) -> Mapping[str, Sequence[str]]:
        """Nothing: the script prints them with its lines."""
        return {}


def _variables(execution: Execution) -> dict[str, str]:
    """Choose one execution of the task's."""
    return {"FABRIC": execution.configuration.label, "EXECUTION": execution.id}


def _lines(cluster: SkyCluster, number: int) -> Generator[str, None, None]:
    """Yield the lines of a job; for one that failed outside its steps, a last one with the reason.

    What a launcher says of its failure becomes that reason, or it would be one more execution that failed.
    """
    cut = Prefixes().cut
    node, last, told = "", "", False
    with closing(cluster.lines(number)) as lines:
        while True:
            try:
                line = next(lines)
            except StopIteration as end:
                ended = end.value
                break
            text = cut(line)[0]
            own = prefix(line)
            node = own or node
            if not own and (echo(text) or failure(text)):
                last = last if echo(text) else text
                continue
            marker = read_marker(text)
            last = text if own and text.strip() and marker is None else last
            told = told or bool(marker and marker.kind == "end" and marker.status != 0)
            yield line
    if not ended.fine and not told:
        yield f"{node}{failed(number, ended, last)}"


class SkyPilotLauncher(Launcher):
    """The launcher ``skypilot``."""

    name = "skypilot"
    options = SkyPilotOptions
    open_starts_nothing = True
    inherits = True

    @contextlib.contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[SkyPilotAllocation]:
        """Take the machines as the catalog has them. Leaving it tears the cluster down.

        The cluster is launched when the plan is known.
        """
        options = target.options_as(SkyPilotOptions)
        if target.hosts:
            raise RequestError(
                "--host has no effect with SkyPilot, which chooses the machines.",
                hint="Use --nodes to set how many.",
            )
        sky()
        nodes = target.nodes or NODES
        found = inventory_of(
            options.instance_type, nodes, target=target, needs=needs, image=options.node_image
        )
        with SkyCluster(_cluster_options(options, target.inherited)) as cluster:
            yield SkyPilotAllocation(found, rendering_named(self.name), cluster)

    def examine(
        self, target: Target, needs: Needs, *, full: bool, deep: bool, progress: Progress
    ) -> Examined:
        """Ask SkyPilot whether it can use the place. Nothing is launched, so nothing is known of machines."""
        del needs, full, deep
        infra = target.options_as(SkyPilotOptions).infra
        progress("querying SkyPilot", 0, 1)
        return Examined(probes={}, relations=HostRelations(), checks=tuple(_checks(infra)))


LAUNCHER = SkyPilotLauncher()


def _cluster_options(options: SkyPilotOptions, inherited: tuple[str, ...]) -> ClusterOptions:
    """Return what the cluster is to be."""
    idle = options.idle_minutes
    if idle is None and not options.keep and options.flavour is not Flavour.SLURM:
        idle = IDLE_MINUTES
    return ClusterOptions(
        name=options.cluster_name or f"fabbench-{secrets.token_hex(2)}",
        idle_minutes=idle,
        keep=options.keep,
        start_s=options.start_timeout,
        inherited=inherited,
    )


def _checks(infra: str) -> Iterator[Check]:
    """Yield whether SkyPilot is there, and what it can use."""
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
        with asking(f"SkyPilot cannot check {cloud}") as library:
            # The name sky.check is that of a module.
            sdk = importlib.import_module("sky.client.sdk")
            found = library.get(sdk.check((cloud,), verbose=False))
    except FabbenchError as error:
        advice = "Run sky check for details."
        yield Check(host="skypilot", name="place", status=Status.FAIL, seen=str(error), advice=advice)
        return
    enabled = any(clouds for clouds in found.values())
    advice = "" if enabled else f"Run sky check {cloud} for details."
    status = Status.PASS if enabled else Status.FAIL
    seen = f"{infra}: {'enabled' if enabled else 'not enabled'}."
    yield Check(host="skypilot", name="place", status=status, seen=seen, advice=advice)
