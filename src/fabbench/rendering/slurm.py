"""The format ``slurm``: a batch script for sbatch, which ``fabbench run --on slurm`` submits as it is."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any, Final

from fabbench.errors import RequestError
from fabbench.rendering import Job, Rendering
from fabbench.script import Ranks, Reach, script
from fabbench.script.quoting import variable
from fabbench.script.way import SLURM_HOSTS
from fabbench.slurm.directives import directives
from fabbench.slurm.images import image

_CLOSING = '[ -z "$own_file" ] || rm -f "$own_file"\n'


class Slurm:
    """A batch script: ``sbatch SCRIPT``, or ``bash SCRIPT`` on the first node of an allocation."""

    name: Final = "slurm"

    def render(self, job: Job) -> str:
        """Write the script. Raises RequestError for what cannot stand in one."""
        settings = job.settings
        named = job.request.where.hosts if job.request.where else ()
        if len(named) > job.plan.hosts:
            raise RequestError(
                f"{len(named)} nodes are named, and {job.plan.hosts} are used.", hint="Leave --nodes out."
            )
        gpus = job.inventory.hosts[0].gpus
        mpirun = settings.get("mpi") == "mpirun"
        way = job.way(
            SLURM_HOSTS,
            ranks=Ranks.MPIRUN if mpirun else Ranks.SRUN,
            reach=Reach.SRUN,
            extra=() if mpirun else (f"--nodelist={variable('nodes')}",),
            inside=lambda image: _container(settings, image or str(settings.get("image") or "")),
            header=directives(job.plan, settings, gpus=gpus, nodes=named),
            opening=(files("fabbench.slurm") / "opening.sh").read_text("utf-8"),
            closing=_CLOSING,
        )
        return script(job.plan, way)


RENDERING: Rendering = Slurm()


def _container(settings: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Give the options of Pyxis for an image. The step's folder has to be seen inside."""
    if not name:
        if settings.get("container_mounts"):
            raise RequestError("--container-mounts is for containers.", hint="Name one: --image NAME.")
        return ()
    base = variable("base")
    mounts = ",".join((f"{base}:{base}", *settings.get("container_mounts", ())))
    return (f"--container-image={image(name)}", f"--container-mounts={mounts}")
