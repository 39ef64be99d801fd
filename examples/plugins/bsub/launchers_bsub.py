"""The launcher ``bsub``: runs one job in the foreground of LSF, and follows what it prints."""

import contextlib
from collections.abc import Generator, Iterator

from fabbench.catalog.offline_inventory import inventory_of
from fabbench.hosts.check import Progress
from fabbench.launchers import NODES, Examined, Launcher, rendering_named
from fabbench.launchers.batch_job import JobAllocation
from fabbench.launchers.bsub import BsubOptions
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Needs, Target
from fabbench.remote.transport import Here


class Bsub(Launcher):
    """The launcher ``bsub``."""

    name = "bsub"
    options = BsubOptions
    one_job = True

    @contextlib.contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[JobAllocation]:
        """Return what the hosts are expected to have; they cannot be probed before the job runs."""
        kind = target.options_as(BsubOptions).instance_type
        found = inventory_of(kind, target.nodes or NODES, target=target, needs=needs)
        with contextlib.closing(
            JobAllocation(found, rendering_named("bsub"), "job.bsub", _follow)
        ) as allocation:
            yield allocation

    def examine(self, target: Target, needs: Needs, *, deep: bool, progress: Progress) -> Examined:
        """Refuse `fabbench check`."""
        del target, needs, deep, progress
        raise RequestError(
            "Hosts cannot be checked by way of LSF.", hint="--on ssh --host NAME can."
        )


def _follow(document: str) -> Generator[str, None, None]:
    """Submit a job, and give its lines as they come. Closing it ends bsub, and bsub the job."""
    with contextlib.closing(Here("this machine").open(("sh", "-c", "exec bsub -I 2>&1"))) as bsub:
        bsub.send(document.encode())
        bsub.end_input()
        yield from bsub.lines()
        if bsub.status:
            yield f"bsub exited with status {bsub.status}."


LAUNCHER: Launcher = Bsub()
