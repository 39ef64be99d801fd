"""The launcher ``skypilot``.

A cluster that SkyPilot launches with one job, which runs the whole plan.
"""

import importlib
import secrets
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from fabbench.evidence.known_errors import fatal_message
from fabbench.hosts.check import Check, HostRelations, Progress, outcome_in, refusal
from fabbench.launchers import Examined, Launcher, rendering_named
from fabbench.launchers.batch_job import JobAllocation
from fabbench.launchers.jobs import Job, follow
from fabbench.launchers.skypilot import IDLE_MINUTES, NodeKind, SkyPilotOptions
from fabbench.launchers.skypilot.cluster import (
    ClusterOptions,
    SkyCluster,
    failure_line,
    node_prefix,
    repeats_end,
    sky,
    sky_request,
)
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.model.compat import override
from fabbench.model.errors import FabbenchError, MachineError, RequestError
from fabbench.model.hosts import Needs, Target
from fabbench.model.log import read_marker
from fabbench.model.patterns import bounded

FILE = "task.yaml"


class SkyJob(Job):
    """The job of a cluster: SkyPilot waits for its start itself."""

    system = "SkyPilot"

    def __init__(self, cluster: SkyCluster) -> None:
        self._cluster = cluster
        self._number = 0  # Its id, once it is submitted
        self._progress = _JobProgress()
        self._status = ""  # How it ended, as SkyPilot writes it; empty: not yet

    @override
    def submit(self, document: str) -> None:
        self._number = self._cluster.launch(document)

    @override
    def lines(self) -> Iterator[str]:
        """Yield its lines. If it fails early, the last one says why."""
        progress = self._progress
        with closing(self._cluster.lines(self._number)) as lines:
            self._status = yield from _own_lines(lines, progress)
        if not progress.started:
            raise self.reason()
        # A failed step explains that its job failed, and not that somebody cancelled it.
        explained = progress.step_failed and self._status == "FAILED"
        if self._status != "SUCCEEDED" and not explained:
            yield f"{progress.node}{self._end_line()}"

    @override
    def cancel(self) -> None:
        self._cluster.cancel()

    @override
    def reason(self) -> MachineError:
        return MachineError(self._end_line().removeprefix("fabbench: "))

    def _end_line(self) -> str:
        return failure_line(self._number, self._status, self._progress.last)


@dataclass(slots=True)
class _JobProgress:
    """What the lines of a job have shown so far."""

    node: str = ""  # SkyPilot's prefix of the node that printed last
    last: str = ""  # The last text of a program, or SkyPilot's error
    started: bool = False  # Whether a step has begun
    step_failed: bool = False

    def record_line(self, line: str, text: str) -> bool:
        """Record what a line shows; return whether it is the job's own.

        `text` is the line without prefixes. SkyPilot's words on how the job ended are not its own.
        """
        node = node_prefix(line)
        if not node and repeats_end(text):
            return False
        if not node and fatal_message(text) is not None:  # SkyPilot's error: `_end_line` quotes it
            self.last = text
            return False
        self.node = node or self.node
        marker = read_marker(text)
        if marker is not None:
            self.started = True
            failed_now = marker.kind == "end" and marker.status != 0
            self.step_failed = self.step_failed or failed_now
        elif node and text.strip():
            self.last = text
        return True


Output: TypeAlias = Generator[str, None, str]
"""The lines of a job; then its status."""


def _own_lines(lines: Output, progress: _JobProgress) -> Output:
    """Yield the lines that are the job's own; return its status."""
    cut = Prefixes().cut
    while True:
        try:
            line = next(lines)
        except StopIteration as end:
            return str(end.value)
        text, _ = cut(line)
        if progress.record_line(line, bounded(text)):  # patterns see a part of a very long line
            yield line


class SkyPilotLauncher(Launcher):
    """The launcher ``skypilot``."""

    name = "skypilot"
    options = SkyPilotOptions
    one_job = True
    open_starts_nothing = True
    inherits = True

    @contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[JobAllocation]:
        """Take the machines from the catalog: the cluster is launched when a plan is submitted.

        Leaving the context tears it down.
        """
        options = target.options_as(SkyPilotOptions)
        if target.hosts:
            raise RequestError(
                "--host has no effect with SkyPilot, which chooses the machines.",
                hint="Use --nodes to set how many.",
            )
        sky()  # Raises here if it is not installed: the plan is made without it
        rendering = rendering_named(self.name)
        inventory = rendering.inventory(target, needs)
        # SkyPilot does not tear down idle clusters on Slurm.
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
            follow_job = partial(follow, SkyJob(cluster))
            allocation = JobAllocation(inventory, rendering, FILE, follow_job)
            with closing(allocation):
                yield allocation

    def examine(self, target: Target, needs: Needs, *, deep: bool, progress: Progress) -> Examined:
        """Check whether SkyPilot can use the infrastructure.

        Nothing is launched, and no machine checked.
        """
        del needs, deep
        infra = target.options_as(SkyPilotOptions).infra
        progress("querying SkyPilot", 0, 1)  # none done, of one step
        return Examined(probes={}, relations=HostRelations(), checks=tuple(_checks(infra)))


LAUNCHER = SkyPilotLauncher()


_outcome = partial(outcome_in, "fabbench.launchers.skypilot", "checks.toml")


def _checks(infra: str) -> Iterator[Check]:
    """Check whether SkyPilot is installed, and can use the infrastructure."""
    try:
        library = sky()
    except FabbenchError as error:
        yield refusal(error, "Install it.").of("skypilot", "library")
        return
    installed = _outcome("library.installed", version=library.__version__)
    yield installed.of("skypilot", "library")
    cloud = infra.partition("/")[0]
    try:
        with sky_request(f"SkyPilot cannot check {cloud}") as library:
            # sky.check is a module.
            sdk = importlib.import_module("sky.client.sdk")
            clouds_of = library.get(sdk.check((cloud,), verbose=False))
    except FabbenchError as error:
        place = refusal(error, "Run sky check for details.")
    else:
        found = "enabled" if any(clouds_of.values()) else "disabled"
        place = _outcome(f"place.{found}", infra=infra, cloud=cloud)
    yield place.of("skypilot", "place")
