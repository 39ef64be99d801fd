"""How programs of expert parallelism are started: one step of mpirun each (programs.toml)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import msgspec

from fabbench.benchmarks import nccl_env
from fabbench.benchmarks.nodes import port, with_torch_variables
from fabbench.benchmarks.standard import Work, extra, nics, silence, timeout
from fabbench.catalog.nccl_environment import NcclEnvironment, environment, gid_setting
from fabbench.model import records
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Host, Needs
from fabbench.model.options import Choice, Text, Whole, option
from fabbench.model.plan import Proof, Step

EP_BENCH = "ep_bench"
INSTALL = (
    "ep_bench is built from https://github.com/NVIDIA/nccl-extensions, and --bin-dir names its "
    "directory; DeepEP's and UCCL-EP's tests take a Python with torch, which --python names"
)
_TOKENS: Mapping[str, int] = {"low-latency": 128, "high-throughput": 4096}


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program with one kind of kernels: a record of programs.toml."""

    name: str
    mode: str
    file: str
    shape: str
    words: str
    fabrics: Mapping[str, str]
    also: Mapping[str, str] = {}
    gid: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpWork(Work):
    """Dispatch and combine with one setting."""

    program: str = option(
        Choice((EP_BENCH, "deepep-v2", "deepep-v1", "uccl-ep")),
        "Program to run. All but ep_bench need --tests.",
        default=EP_BENCH,
    )
    mode: str = option(
        Choice(tuple(_TOKENS)),
        "Kernels: for decoding, or for prefill and training.",
        default="high-throughput",
    )
    tests: str = option(
        Text("a path", "PATH"),
        "Directory of DeepEP's or UCCL-EP's tests on every host, as /opt/DeepEP/tests/elastic.",
        unset="",
    )
    tokens: int | None = option(
        Whole(1), "Tokens per rank. Default: 128 with low-latency, else 4096."
    )
    hidden: int = option(Whole(1), "Hidden size: values per token.", default="7168")
    top_k: int = option(Whole(1), "Experts per token.", default="8")
    experts: int = option(Whole(1), "Experts on all ranks together.", default="256")
    dtype: str = option(Choice(("bf16", "fp16", "fp32")), "Data type, for ep_bench.", unset="")
    skew: str = option(
        Text("a ratio", "RATIO", r"^\d{1,4}(\.\d{1,4})?$"),
        "Load of the busiest rank, as a ratio to the mean, for deepep-v2.",
        unset="",
    )
    python: str = option(
        Text("a path", "PATH"),
        "The Python that has torch, on every host. Default: python3.",
        unset="",
    )
    port: int = port()
    nics: int | None = nics()
    timeout_s: float = timeout("1800")
    silence_s: float = silence("600")  # kernels are compiled when they are first used
    extra: tuple[str, ...] = extra()

    def __post_init__(self) -> None:
        """Refuse what the program does not have."""
        programs = self._programs()
        if not programs:
            raise RequestError(
                f"{self.program} has no {self.mode} kernels.", hint="Choose others with --mode."
            )
        given = [name for name in ("dtype", "skew") if getattr(self, name)]
        refused = [name for name in given if name not in programs[0].also]
        if self.tests and self.program == EP_BENCH:
            refused = ["tests"]
        if refused:
            raise RequestError(f"{self.program} has no --{refused[0]}.", hint="Leave it out.")
        if not self.tests and self.program != EP_BENCH:
            raise RequestError(
                f"{self.program} is not a program of PATH.",
                hint="--tests names the directory that has its tests on every host.",
            )

    def _programs(self) -> Sequence[Program]:
        """Return those with these kernels: inside a host another one may measure."""
        known = records.load("fabbench.benchmarks.ep", "programs.toml", Program)
        return [each for each in known if (each.name, each.mode) == (self.program, self.mode)]

    @property
    def needs(self) -> Needs:
        """The program or Python, and an mpirun."""
        name = "python3" if self.tests else EP_BENCH
        programs = () if self.python else (name,)
        return Needs(
            programs=programs, install=INSTALL, mpi=True, gpus=True, nics=self.nics or 0
        )

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return none: bytes depend on where tokens go."""
        del hosts
        return ()

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why `fabric` cannot be measured on `host`; empty if it can."""
        fabrics = [name for each in self._programs() for name in each.fabrics]
        if fabric in fabrics:
            return nccl_env.why_unsupported(fabric, host)
        names = ", ".join(fabrics)
        return f"{self.program} with {self.mode} kernels moves data over {names} alone."

    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return the only step."""
        gpus = nccl_env.gpus_per_host(hosts)
        ranks = gpus * len(hosts)
        if self.experts % ranks:
            raise RequestError(
                f"{self.experts} experts cannot be divided among {ranks} GPUs.",
                hint="Pass a multiple with --experts.",
            )
        program = next(each for each in self._programs() if fabric in each.fabrics)
        argv = (*self._argv(program, gpus), *self.extra)
        given = _environment(program, fabric, hosts)
        per_host = 1 if program.shape == "node" else gpus
        commands = nccl_env.rank_commands(argv, fabric, hosts, given, per_host)
        limits = nccl_env.Limits(self.timeout_s, self.silence_s)
        case = program.file.removesuffix(".py")
        (step,) = nccl_env.rank_steps(execution, "ep", {case: commands}, limits)
        step = replace(step, facts={**step.facts, "ranks": ranks})  # not processes
        return (with_torch_variables(step, hosts, self.port) if self.tests else step,)

    @override
    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        return nccl_env.network_proof(fabric, hosts, self.nics)

    def _argv(self, program: Program, gpus: int) -> Sequence[str]:
        values = {**asdict(self), "gpus": gpus, "tokens": self.tokens or _TOKENS[self.mode]}
        templates = [program.words]
        templates += [words for name, words in program.also.items() if values[name]]
        words = " ".join(templates).format(**values).split()
        if not self.tests:
            return (program.file, *words)
        return (self.python or "python3", f"{self.tests}/{program.file}", *words)


def _environment(program: Program, fabric: str, hosts: Sequence[Host]) -> NcclEnvironment:
    """Return what NCCL needs, which also sets up DeepEP and UCCL-EP, and what moves data."""
    given = environment(fabric, hosts)
    settings = (word.split("=") for word in program.fabrics[fabric].split())
    env = {
        **given.env,
        **gid_setting(program.gid or "NCCL_IB_GID_INDEX", fabric, hosts),
        "PYTHONUNBUFFERED": "1",
        **{name: value for name, value in settings},
    }
    return given._replace(env=env)
