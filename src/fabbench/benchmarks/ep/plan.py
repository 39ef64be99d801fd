"""How programs of expert parallelism are started: one step of mpirun each (programs.toml)."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import msgspec

from fabbench.benchmarks import nccl_env
from fabbench.benchmarks.nodes import port, python, with_torch_variables
from fabbench.benchmarks.standard import extra, nics, read_variables, silence, timeout, words_of
from fabbench.catalog.nccl_environment import environment, gid_setting
from fabbench.model import records
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Host, Needs
from fabbench.model.options import Choice, Flag, Text, Whole, option
from fabbench.model.plan import Step
from fabbench.model.values import frozen

EP_BENCH = "ep_bench"
INSTALL = (
    "ep_bench is built from https://github.com/NVIDIA/nccl-extensions, and --bin-dir names its "
    "directory; DeepEP's and UCCL-EP's tests take a Python with torch, which --python names; "
    "alltoall_perf is of https://github.com/NVIDIA/nccl-tests"
)
_ALLTOALL = "alltoall_perf"
_WIDTH = 2  # bytes of a value: BF16, unless tests send other types on their own
_TOKENS = {"low-latency": 128, "high-throughput": 4096}


class Program(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A program with one kind of kernels: a record of programs.toml."""

    name: str
    mode: str
    file: str
    shape: str  # How it is started: `ranks`, `torchrun` or `node`
    words: str  # Its options, with fields of the work
    fabrics: Mapping[str, str]  # → variables, `NAME=VALUE …`
    gid: str = "NCCL_IB_GID_INDEX"  # The variable of RoCE's GID index


@frozen
class EpWork(nccl_env.NcclRankWork):
    """Dispatch and combine with one setting."""

    program: str = option(
        Choice((EP_BENCH, "deepep-v2", "deepep-v1", "uccl-ep")),
        "Program to run. All but ep_bench need --tests.",
        default=EP_BENCH,
    )
    mode: str = option(
        Choice(tuple(_TOKENS)),
        "Kernels: for decoding, or for prefill and training.",
        "--kernels",
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
    alltoall: bool = option(
        Flag(),
        "Also run NCCL's all-to-all of the same bytes: tokens x top-k x hidden size x 2 per rank "
        "(alltoall_perf of nccl-tests).",
    )
    python: str = python()
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
                f"{self.program} has no {self.mode} kernels.",
                hint="Pass other --kernels, or another --program.",
            )
        # All of one name and kernels are started alike, and have the same options.
        has_tests = programs[0].shape != "ranks"  # as ep_bench alone is started
        if has_tests and not self.tests:
            raise RequestError(
                f"{self.program} is a directory of tests, and none is given.",
                hint="Pass --tests DIRECTORY, where it is on every host.",
            )
        words = programs[0].words
        refused = [name for name in ("dtype", "skew") if f"[{name}? " not in words]
        if not has_tests:
            refused.append("tests")
        for name in refused:
            if getattr(self, name):
                raise RequestError(f"{self.program} has no --{name}.", hint="Leave it out.")

    def _programs(self) -> Sequence[Program]:
        """Return those with these kernels: inside a host another one may measure."""
        programs = records.load("fabbench.benchmarks.ep", "programs.toml", Program)
        wanted = (self.program, self.mode)
        return [program for program in programs if (program.name, program.mode) == wanted]

    @property
    def needs(self) -> Needs:
        """The program or Python, and an mpirun."""
        programs: tuple[str, ...] = ("python3",) if self.tests else (EP_BENCH,)
        if self.python:  # the user has said where it is
            programs = ()
        if self.alltoall:
            programs = (*programs, _ALLTOALL)
        nics = self.nics or 0
        return Needs(programs=programs, install=INSTALL, mpi=True, gpus=True, nics=nics)

    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return none: bytes depend on where tokens go."""
        del hosts
        return ()

    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return why `fabric` cannot be measured on `host`; empty if it can."""
        fabrics = [name for program in self._programs() for name in program.fabrics]
        if fabric in fabrics:
            return nccl_env.why_unsupported(fabric, host)
        networks = ", ".join(fabrics)
        return f"{self.program} moves data over {networks} with these kernels."

    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return its step, and that of NCCL's all-to-all beside it."""
        gpus = nccl_env.gpus_per_host(hosts)
        program = next(known for known in self._programs() if fabric in known.fabrics)
        of_nccl = environment(fabric, hosts)  # tests with torch set up their ranks with NCCL, too
        settings = read_variables(program.fabrics[fabric])  # with which it uses this one alone
        gid = gid_setting(program.gid, fabric, hosts)
        env = {**of_nccl.env, **gid, **settings}
        per_host = 1 if program.shape == "node" else gpus
        argv = self._argv(program, gpus)
        env_of_ranks = of_nccl._replace(env=env)
        commands = nccl_env.rank_commands(argv, fabric, hosts, env_of_ranks, per_host)
        case = program.file.removesuffix(".py")
        (step,) = self.rank_steps(execution, "ep", {case: commands})
        ranks = gpus * len(hosts)  # not processes, of which there may be one per node
        step = replace(step, facts={**step.facts, "ranks": ranks})
        if self.tests:
            step = with_torch_variables(step, hosts, self.port)
        if not self.alltoall:
            return (step,)
        beside = nccl_env.rank_commands(self._alltoall_argv(), fabric, hosts, of_nccl, gpus)
        return (step, *self.rank_steps(execution, "nccl", {"alltoall": beside}, "collective"))

    @property
    def _tokens(self) -> int:
        return self.tokens or _TOKENS[self.mode]

    def _alltoall_argv(self) -> Sequence[str]:
        size = self._tokens * self.top_k * self.hidden * _WIDTH
        return (_ALLTOALL, *f"-b {size} -e {size} -g 1 -n 50 -w 10 -c 1".split())

    def _argv(self, program: Program, gpus: int) -> Sequence[str]:
        values = {**asdict(self), "gpus": gpus, "tokens": self._tokens}
        words = words_of(program.words, values)
        started: tuple[str, ...] = (program.file,)
        if self.tests:
            started = (self.python or "python3", f"{self.tests}/{program.file}")
        return (*started, *words, *self.extra)
