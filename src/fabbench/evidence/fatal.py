"""What programs print when a run dies: one table for all benchmarks and launchers. Data; pure.

It stands before every benchmark: a line that it knows is no row, and a run with one is never ok, wherever
the line stands. The texts come from the programs' sources and from public logs.
"""

import re
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, lru_cache
from typing import NamedTuple

from fabbench.model.patterns import lazy


class Kind(IntEnum):
    """What a text says about a run. Of several, the first in this order is the reason."""

    TIMEOUT = 0
    """A time limit ended it."""
    KILLED = 1
    """A signal, the kernel or the batch system ended it: a benchmark's own errors follow from that."""
    DIED = 2
    """A library or a launcher ended it: a benchmark's own error says more."""
    NOT_STARTED = 3
    """Nothing was started: tables that follow are of other runs."""
    SHELL = 4
    """A shell did not find a program, which need not be the benchmark: it counts if nothing was measured."""
    STATUS = 5
    """It ended with an error; why is not said."""


_NAME = re.compile("<([A-Z]+)>")
_NAMES = {
    "MPIRUN": "(?:mpirun|prterun|orterun|mpiexec)",
    "DEATH": "(?:Terminated|Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exc\\w+)",
    "ERROR": r"(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt)\b",
}

# Who prints it, what it says about the run, whether a host or the job was lost, how many lines such a message may
# have, and the texts. They begin with what the program prints first; any prefix may stand before it (see _PREFIX).
_TABLE = r"""
fabbench: timeout
    fabbench: .+ was (?:aborted|ended)(?: after \d+ s)?:
fabbench: killed, lost
    fabbench: SkyPilot ended job \d+ as (?:CANCELLED|FAILED_DRIVER|gone)\b
fabbench: died
    fabbench: (?:The script was stopped by |SkyPilot ended job )
The benchmark: died
    This test requires exactly two processes
Open MPI: timeout, 2 lines
    The user-provided time limit for job execution has been reached
Open MPI: died, lost, 9 lines
    (?:ORTE|PRTE) has lost communicat
Open MPI: killed, 6 lines
    <MPIRUN> noticed that
Open MPI: died, 9 lines
    \*\*\* (?:Process received signal|An error occurred in|MPI_ERRORS_ARE_FATAL)
    \*\*\* The MPI_\w+\(\) function was called
    <MPIRUN> (?:has exited due to|detected that one or more processes exited with non-zero)
    MPI_ABORT was invoked on rank
    It looks like \w+ failed for some
    At least one pair of MPI processes are unable
    Open MPI failed an OFI Libfabric library call
    No components were able to be opened in
    PML \w+ cannot be selected
    <MPIRUN>: killing job
Open MPI: status, 3 lines
    Primary job +terminated normally, but
Open MPI: not started, 6 lines
    There are not enough slots available
    <MPIRUN> (?:was unable to|has detected an attempt to run as root)
    (?:ORTE|PRTE) was unable to reliably start
    A daemon (?:.* )?failed to report back
    An (?:ORTE|PRTE) daemon has unexpectedly failed
MPICH: died, 6 lines
    Abort\(-?\d+\) (?:on node \d|\(rank \d)
    application called MPI_Abort\(
    Fatal error in (?:P?MPI|internal)_
MVAPICH: died
    \[?error_sighandler\]? Caught error:
hydra: killed, 5 lines
    = +(?:BAD TERMINATION OF ONE|KILLED BY SIGNAL: )
    YOUR APPLICATION TERMINATED WITH THE EXIT STRING
hydra: died
    (?:control_cb|HYD\w+) \(\S+\): (?:assert|.*(?:error|fail|unable))
PALS: killed
    rank \d+ (?:died from signal|exited with code [1-9])
ALPS: killed
    PE RANK \d+ exit signal
    Apid \d+: (?:caught|initiated) application termination
mpiexec: not started, 2 lines
    mpiexec: [Ee]rror:
jsrun: killed
    One or more process \(first noticed rank \d+\) terminated
jsrun: died
    (?:ERROR|Error):? .*\bJSM\b
    jsrun: error:
Flux: timeout
    (?:flux-job: .*|job\.)exception.* type=timeout
Flux: killed
    flux-job: task\(s\)
    (?:flux-job: .*|job\.)exception.* type=
Flux: died
    flux-\w+(?:\[\d+\])?: (?:FATAL|ERROR|error)\b
PBS: timeout
    PBS: job killed: \w*time \S+ exceeded
PBS: killed
    PBS: job killed
LSF: timeout
    TERM_(?:RUNLIMIT|CPULIMIT|DEADLINE)\b
LSF: killed
    TERM_[A-Z]+:
    Exited with (?:exit code [1-9]\d*\.|signal termination)
Slurm: timeout
    (?:slurmstepd|srun)[^:]*: error: .*DUE TO TIME LIMIT
Slurm: killed
    srun: error: \S+: tasks? \S+: (?:Killed|Out Of Memory)
    (?:slurmstepd[^:]*: error: .*)?[Dd]etected \d+ oom[-_]kill
Slurm: died, lost
    (?:slurmstepd[^:]*|srun): error: Node failure on
Slurm: status, lost
    slurmstepd[^:]*: error: \*\*\* JOB \d+ ON \S+ CANCELLED AT
Slurm: status
    slurmstepd[^:]*: error: .*CANCELLED AT
    srun: error: .*: (?:Terminated|Exited with exit code [1-9])
Slurm: died
    slurmstepd[^:]*: error:(?!.*going to /tmp)
    (?:srun|sbatch|salloc): error: (?!.*Unable to create step)
    srun: error: .*Unable to create step.*(?:More processors|not available|Invalid gen)
    srun: (?:Job step aborted|Force Terminated)
    salloc: Job allocation \d+ has been revoked
Slurm: not started
    srun: unrecognized option
    (?:launch|start) failed on
Kubernetes: killed
    command terminated with exit code [1-9]
    OOMKilled\b
    The node was low on resource
    Error from server(?! \((?:NotFound|AlreadyExists)\))
    error: (?:lost connection to pod|unable to upgrade connection|Internal error occurred)
    [Rr]eason: *(?:Evicted|DeadlineExceeded)
The kernel: killed
    (?:Memory cgroup o|O)ut of memory: Kill
    oom-kill:constraint=
    segfault at [\da-f]+ ip
    oom_reaper: reaped process
    NVRM: Xid \(
    Killed$
    line \d+: +\d+ Killed\b
ssh: killed
    Killed by signal (?!15)
    Timeout, server \S+ not responding
ssh: not started, lost
    ssh: (?:connect to host|Could not resolve hostname)
    Permission denied \(
    Host key verification failed
The system: died
    <DEATH>(?: \(core dumped\))?$
    line \d+: +\d+ <DEATH>\b
    \*\*\* stack smashing detected
    (?:free|malloc|munmap_chunk|realloc)\(\): [a-z]
    double free or corruption
    corrupted size vs
    terminate called (?:after|without)
    Assertion [`'].*' failed
The system: not started
    error while loading shared libraries:
    symbol lookup error:
The shell: shell
    (?:-?(?:ba|z|da|k)?sh|/bin/(?:ba)?sh): .*(?:command not found|No such file or directory|not found)$
    (?:env|stdbuf): .+: (?:No such file or directory|Permission denied)$
UCX: died
    Caught signal \d+ \(
    UCX +(?:ERROR|FATAL)
libfabric: status
    result: +(?:Fail|Unexpected)
libfabric: died, 2 lines
    Libfabric EFA provider has encountered an internal error
PyTorch: timeout
    Watchdog caught collective operation timeout:
    Timeout at NCCL work
    ProcessGroupNCCL's watchdog got stuck
PyTorch: killed
    \[rank\d+\]:? +(?!\S*Dist\w*Error|RuntimeError: NCCL|RuntimeError: \[\d+\] is setting up)<ERROR>(?:: |$)
PyTorch: died, 6 lines
    (?:torch\.distributed\.)?Dist(?:Backend|Store|Network)?Error:
    nccl(?:System|Internal|UnhandledCuda|Remote)Error:
    ncclInvalid\w+:
    RuntimeError: (?:NCCL |\[\d+\] is setting up NCCL)
    NCCL watchdog thread terminated
    Some NCCL operations have failed or timed out
    Exception \(either an error or timeout\) detected by watchdog
PyTorch: status
    torch[./]distributed[./]elastic.*failed \(exitcode: -?[1-9]
    torch\.[\w.]+\.<ERROR>
Other frameworks: died, 2 lines
    (?:horovod\.common\.exceptions\.)?HorovodInternalError:
    (?:cupy_backends\.cuda\.libs\.nccl\.)?NcclError:
    (?:jaxlib\.xla_extension\.)?XlaRuntimeError:
    NCCL operation .*failed
    NCCL: (?:unhandled|internal|invalid)
DeepSpeed: status
    exits with return code = -?[1-9]
Python: not started
    ModuleNotFoundError: No module named '(?:torch|mpi4py)'
"""


class _Entry(NamedTuple):
    source: str
    kind: Kind
    lost: bool
    lines: int


@cache
def _table() -> tuple[tuple[_Entry, ...], re.Pattern[str]]:
    """Return the entries, and a pattern whose named groups are their numbers."""
    entries: list[_Entry] = []
    texts: list[list[str]] = []
    for line in _TABLE.strip().splitlines():
        if line[0] != " ":
            head, *more = line.removesuffix(" lines").split(", ")
            source, kind = head.split(": ")
            lines = int(more[-1]) if more and more[-1].isdecimal() else 1
            entries.append(_Entry(source, Kind[kind.upper().replace(" ", "_")], "lost" in more, lines))
            texts.append([])
        else:
            texts[-1].append(_NAME.sub(lambda name: _NAMES[name[1]], line.strip()))
    each = (f"(?P<t{at}>{'|'.join(group)})" for at, group in enumerate(texts))
    return tuple(entries), re.compile("|".join(each))


# Every line of the table contains one of these; most lines of a log contain none, and take no longer.
_SIGN = lazy(
    "rror|ERROR|FATAL|Fatal|fail|xit|EXIT|ill|KILL|erminat|TERM|bort|ABORT|ended|stopped|noticed|ignal|unable|MPI_"
    "|looks like|components|cannot|lost|slots|attempt|ssert|xception|Interrupt|task\\(s\\)|JSM|LIMIT|limit"
    "|oom|OOM|revoked|unrecognized|resource|Evicted|Deadline|disconnect|responding|closed|ssh|denied|verification"
    "|fault|smashing|\\(\\): |corrupt|found|No such|No module|ncclInvalid"
    "|exactly|operation|NCCL: |Timeout|timeout|result:|killing|Xid|reaped|stuck|watchdog|setting up"
)
# What may stand before a text: nothing, or what ends in a sign, a number, a time or a level. Sentences that
# quote a text have a word or a quotation mark there, and tables have tabs.
_PREFIX = lazy(r"(?:.*(?:[]>:)|*#%=}-]|\dZ?|\b[A-Z]+|\bstd(?:err|out)))?\s*", re.DOTALL)
_CELLS = lazy(r" *\|.*\| *")
_TAG = lazy(r"^\s*(?:\[[^\]]*\]:? ?)?(?:\*{3} *|=   ?)?")
_RULE = lazy(r"[-=*+~]{10,}")
_searched = lru_cache(maxsize=1024)(lambda text: _SIGN.search(text))  # noqa: PLW0108 - not compiled at import; banners recur
_LONGEST = 500
"""Characters of a message that are quoted."""


@dataclass(slots=True)
class Message:
    """A message of the table, as far as it has been read."""

    source: str
    kind: Kind
    text: str
    left: int = 0
    """How many lines may follow."""
    lost: bool = False
    """Whether a host or the job was lost: the environment ended the run."""

    def takes(self, line: str) -> bool:
        """Add a line that no benchmark knows, if the message goes on; return whether it did."""
        body = _TAG.sub("", line, 1).strip()
        if not self.left or _RULE.fullmatch(body):
            self.left = 0
        elif body:
            self.text, self.left = f"{self.text} {' '.join(body.split())}", self.left - 1
            return True
        elif not self.text.endswith((":", ",")):
            self.left = 0
        return False

    @property
    def sentence(self) -> str:
        """The message, and who printed it."""
        text = self.text if len(self.text) <= _LONGEST else f"{self.text[:_LONGEST]}…"
        return f"{self.source} reported: {text}" if self.source else text


def fatal_message(text: str) -> Message | None:
    """Return the message that begins with a line; None if the line shows no end of a run."""
    if not (_searched if len(text) < 400 else _SIGN.search)(text) or "\t" in text or _CELLS.fullmatch(text):
        return None
    entries, texts = _table()
    match = texts.search(text)
    if match is None or not _PREFIX.fullmatch(text, 0, match.start()):
        return None
    source, kind, lost, lines = entries[int(str(match.lastgroup)[1:])]
    return Message(source, kind, " ".join(text.split()).removeprefix(f"{source}: "), lines - 1, lost)
