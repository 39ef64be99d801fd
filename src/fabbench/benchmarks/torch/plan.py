"""How fabbench's own program for torch's all_reduce is started.

One step of mpirun, one rank per GPU.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, field, replace
from importlib.resources import files

from fabbench.benchmarks import nccl_env
from fabbench.benchmarks.nodes import first_address, port, python
from fabbench.benchmarks.standard import (
    iterations,
    nics,
    silence,
    sizes,
    timeout,
    warmup,
)
from fabbench.catalog.nccl_environment import environment
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Host, Needs
from fabbench.model.options import Choice, Whole, option
from fabbench.model.plan import Step
from fabbench.model.values import frozen

FILE = "torch_all_reduce.py"  # file name of the program in the step's directory on each host
WIDTHS: Mapping[str, int] = {
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float64": 8,
}  # type → bytes of one element
PYTHON = "python3"
_WORDS = "--dtype {dtype} --trials {trials} --warmup {warmup} --master {master} --port {port}"
"""Options of the program beside the sizes, with fields of the work."""
INSTALL = "pip install torch on every host, and --python names the Python that has it"


@frozen
class TorchWork(nccl_env.NcclRankWork):
    """All_reduce of one matrix, or of several sizes."""

    program: str = field(default_factory=files(__package__).joinpath("program.py").read_text)
    rows: int = option(Whole(1), "Rows of the matrix.", default="500000")
    columns: int = option(Whole(1), "Columns of the matrix.", default="2000")
    sizes: tuple[int, ...] = sizes("Measure this size instead (1024-based: 64K, 1G).")
    dtype: str = option(Choice(tuple(WIDTHS)), "Data type.", "-d", "--dtype", default="float32")
    trials: int = iterations("50", each="")
    warmup: int = warmup("5")
    python: str = python()
    port: int = port()
    nics: int | None = nics()
    timeout_s: float = timeout("900")
    silence_s: float = silence()

    def __post_init__(self) -> None:
        width = WIDTHS[self.dtype]
        for size in self.sizes:
            if size <= 0 or size % width:
                what = f"{size} bytes are not a multiple of the element size of {self.dtype}."
                raise RequestError(what, hint=f"Use a multiple of {width} bytes.")

    @property
    def needs(self) -> Needs:
        """Python, and an mpirun."""
        programs = () if self.python else (PYTHON,)
        return Needs(
            programs=programs,
            install=INSTALL,
            mpi=True,
            gpus=True,
            nics=self.nics or 0,
        )

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes, which are the same on any hosts."""
        del hosts
        elements = self.rows * self.columns
        return self.sizes or (elements * WIDTHS[self.dtype],)

    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return the only step."""
        shape = ["--rows", str(self.rows), "--columns", str(self.columns)]
        if self.sizes:
            sizes = map(str, self.sizes)
            shape = [word for size in sizes for word in ("--size", size)]
        words = _WORDS.format(**asdict(self), master=first_address(hosts))
        argv = (
            self.python or PYTHON,
            f"{{folder}}/{FILE}",  # {folder} is of the step: `files` below is put there
            *shape,
            *words.split(),
        )
        ranks = nccl_env.gpus_per_host(hosts)
        env_of_ranks = environment(fabric, hosts)
        commands = nccl_env.rank_commands(argv, fabric, hosts, env_of_ranks, ranks)
        (step,) = self.rank_steps(execution, "torch", {"all_reduce": commands})
        return (replace(step, files={FILE: self.program}),)
