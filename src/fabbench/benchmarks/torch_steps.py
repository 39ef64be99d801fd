"""How fabbench's own program for torch's all_reduce is started: one step of mpirun, one rank for each GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fabbench import environments
from fabbench.errors import RequestError
from fabbench.machines import Host, Needs
from fabbench.model import Proof, Shape, Step

FILE = "torch_all_reduce.py"
"""The program, as it lies in each host's folder of the step."""
WIDTHS: Mapping[str, int] = {"float32": 4, "float16": 2, "bfloat16": 2, "float64": 8}
"""Bytes of one element of each type."""
ROWS, COLUMNS, TRIALS, WARMUP = 500_000, 2_000, 50, 5
"""What Modal's multi-node benchmark measures: 4 GB in float32."""
PORT = 29500
"""Where the ranks meet, on the first host: torchrun's usual port."""
PYTHON = "python3"
INSTALL = "pip install torch on every host, and --python names the Python that has it"
TIMEOUT_S = 900.0
SILENCE_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchWork:
    """All_reduce of one matrix, or of some sizes. See `fabbench.plan.Work`."""

    program: str
    """The text of the program."""
    rows: int = ROWS
    columns: int = COLUMNS
    sizes: tuple[int, ...] = ()
    """Bytes, instead of rows and columns."""
    dtype: str = "float32"
    trials: int = TRIALS
    warmup: int = WARMUP
    port: int = PORT
    python: str = ""
    """Path of Python on every host; empty: the python3 that is found."""
    nics: int | None = None
    """NICs that each rank must have used; 0: any number; None: all that the hosts have."""
    timeout_s: float = TIMEOUT_S
    silence_s: float = SILENCE_S

    together = False

    def __post_init__(self) -> None:
        """Raise RequestError for sizes that are no whole elements."""
        width = WIDTHS[self.dtype]
        for size in self.sizes:
            if size <= 0 or size % width:
                raise RequestError(
                    f"{size} bytes are no whole elements of {self.dtype}.",
                    hint=f"Take a multiple of {width} bytes.",
                )

    @property
    def needs(self) -> Needs:
        """Python, and an mpirun."""
        return Needs(programs=() if self.python else (PYTHON,), install=INSTALL, mpi=True, gpus=True)

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Give the sizes, which are the same on any hosts."""
        del hosts
        return self.sizes or (self.rows * self.columns * WIDTHS[self.dtype],)

    def lacks(self, fabric: str, host: Host) -> str:
        """Say why `fabric` cannot be measured on `host`."""
        return environments.lacks(fabric, host)

    def steps(self, trial: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Give the one step."""
        each = environments.gpus_each(hosts)
        master = _address(hosts)
        given = environments.environment(fabric, hosts)
        return (
            Step(
                id=f"{trial}/all_reduce",
                label="all_reduce",
                shape=Shape.MPI,
                commands=environments.commands(
                    lambda host: self._words(host, master), fabric, hosts, given, each
                ),
                timeout_s=self.timeout_s,
                silence_s=self.silence_s,
                files={FILE: self.program},
                facts={"benchmark": "torch", "ranks": each * len(hosts)},
            ),
        )

    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        """Say what the log must show: the network, and the NICs where their number is known."""
        wanted = environments.nics(fabric, hosts) if self.nics is None else self.nics or None
        return Proof(fabric=fabric, nics=wanted)

    def _words(self, host: Host, master: str) -> tuple[str, ...]:
        return (
            self.python or environments.program(PYTHON, host),
            f"{{folder}}/{FILE}",
            *self._payload(),
            *("--dtype", self.dtype, "--trials", str(self.trials), "--warmup", str(self.warmup)),
            *("--master", master, "--port", str(self.port)),
        )

    def _payload(self) -> tuple[str, ...]:
        if self.sizes:
            return tuple(word for size in self.sizes for word in ("--size", str(size)))
        return ("--rows", str(self.rows), "--columns", str(self.columns))


def _address(hosts: Sequence[Host]) -> str:
    """Say where all ranks reach the first host."""
    if len(hosts) == 1 or all(host.virtual for host in hosts):
        return "127.0.0.1"
    return hosts[0].address or hosts[0].name
