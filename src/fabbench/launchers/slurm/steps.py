"""The script of a plan, run as a step of an allocation; and a job that holds nodes for a sweep.

A step runs on the allocation's first node, which reaches the others. Each test of a sweep is the
script of one execution, a step on some of the nodes.
"""

import contextlib
import math
import queue
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace

from fabbench.execution.awake import awake_s
from fabbench.launchers import AllocationLostError, RenderInput, rendering_named, shorten
from fabbench.launchers.batch_job import JobAllocation, longest_s
from fabbench.launchers.slurm.login_node import LoginNode
from fabbench.launchers.slurm.render import HELD
from fabbench.launchers.slurm.scontrol import JobState, explain_end, is_unknown_job, job_state
from fabbench.launchers.slurm.submit import SubmittedJob, follow, with_settings
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.hostlist import expand_hostlist
from fabbench.model.hosts import Inventory
from fabbench.model.log import Ending
from fabbench.model.plan import Execution
from fabbench.remote.transport import ProcessStream

GRACE_S = 20.0  # How long the script has to end what it started
_WAKE_S = 0.25
_POLL_S = 0.5
_COMPLETING_S = 20.0
"""The state of a job that has ended, until its nodes are free.

Only then Slurm reports how it ended.
"""
_STEP = "#@step "
_EXIT = "#@exit "
# The script comes on standard input, and what it starts must not read from there. srun itself would
# report a status in a line that looks like one of the ranks'.
_RUN = (
    f'echo "{_STEP}$SLURM_JOB_ID.$SLURM_STEP_ID"; '
    'file=$(mktemp) && cat >"$file" && { bash "$file" </dev/null & child=$!; '
    "trap 'kill -TERM $child 2>/dev/null' TERM INT HUP; "
    'wait "$child"; status=$?; while kill -0 "$child" 2>/dev/null; do wait "$child"; status=$?; '
    "done; "
    f'rm -f "$file"; echo "{_EXIT}$status"; }}'
)


def srun_script(nodes: Sequence[str], tasks: int, *more: str) -> tuple[str, ...]:
    """Return the command that runs its input as a script on the first of some nodes.

    The script may start up to `tasks` ranks on each.
    """
    names = ",".join(nodes)
    count = len(nodes)
    srun = (
        "srun",
        "--overlap",
        "--quiet",
        "--nodes=1",
        "--ntasks=1",
        "--ntasks-per-node=1",
        "--cpu-bind=none",
        f"--nodelist={nodes[0]}",
        *more,
        "--",
    )
    # srun sets these for the step, and srun inside it takes them for those of the whole job.
    whole_job = (
        f"SLURM_NODELIST={names}",
        f"SLURM_JOB_NODELIST={names}",
        f"SLURM_NNODES={count}",
        f"SLURM_JOB_NUM_NODES={count}",
        f"SLURM_TASKS_PER_NODE={tasks}(x{count})",
    )
    return ("env", "-u", "FABRIC", *srun, "env", *whole_job, "sh", "-c", _RUN)


class StepResult:
    """The result of a step, read from srun's output."""

    def __init__(self) -> None:
        self.step = ""
        self.status: int | None = None
        self._last = ""

    def take(self, text: str) -> bool:
        """Read a line; return whether it is the script's own output."""
        if text.startswith(_STEP):
            self.step = text.removeprefix(_STEP)
        elif text.startswith(_EXIT):
            self.status = int(text.removeprefix(_EXIT))
        else:
            self._last = text or self._last
            return True
        return False

    @property
    def last(self) -> str:
        """The last line, for messages."""
        return shorten(self._last) or "no output"

    def judge(self, job: str) -> None:
        """Raise MachineError if the script did not start, or did not run to its end."""
        if not self.step:
            raise MachineError(
                f"srun started nothing in this allocation (job {job}): {self.last}.",
                hint=(
                    f"Check squeue --job {job}. If it is over, unset SLURM_JOB_ID to submit a job."
                ),
            )
        if self.status is None:
            raise MachineError(
                f"The script in job {job} was killed. Its last line: {self.last}.",
                hint=(
                    f"Check squeue --job {job}: it was cancelled, hit its time limit, or lost a "
                    "node."
                ),
            )
        why = explain_end(JobState(id=job, state="FAILED", status=self.status), self._last)
        if why is not None:
            raise MachineError(why.text.replace("Job ", "The script in job ", 1), hint=why.advice)


@contextlib.contextmanager
def _as_allocation_lost() -> Iterator[None]:
    """Turn errors of the login node into AllocationLostError, which does not blame the nodes."""
    try:
        yield
    except MachineError as error:
        raise AllocationLostError(str(error), hint=error.hint) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSteps:
    """Starts steps of a job, from any thread."""

    login_node: LoginNode
    job: str  # Its id
    tasks: int = 1  # The maximum number of ranks per node
    inherited: tuple[str, ...] = ()  # Variables that programs inherit from fabbench

    def start(self, document: str, nodes: Sequence[str]) -> ProcessStream:
        """Start a script on the first of some nodes. Raise AllocationLostError if that fails."""
        argv = srun_script(nodes, self.tasks, f"--jobid={self.job}", "--immediate=60")
        argv, data = with_settings(self.inherited, argv, document.encode())
        with _as_allocation_lost():
            return self.login_node.start(argv, stdin=data)

    def follow(
        self,
        document: str,
        nodes: Sequence[str],
        ended: threading.Event | None = None,
        limit_s: float = math.inf,
    ) -> Generator[str, None, None]:
        """Run a script as a step, and yield its lines. Closing it ends it.

        Raise KeyboardInterrupt once `ended`.

        Raise AllocationLostError, and MachineError if it did not start, was killed, or takes longer
        than `limit_s`.
        """
        result = StepResult()
        output = StepOutput(self.start(document, nodes), ended or threading.Event())
        try:
            deadline = awake_s() + limit_s
            while (text := output.next(deadline)) is not None:
                if result.take(text):
                    yield text
        except BaseException:
            if result.step:  # the script ends what it started: srun would kill it too soon
                self.signal(result.step, "--signal=TERM")
                if not output.ends(GRACE_S):
                    self.signal(result.step)
            raise
        finally:
            output.close()
        if result.status != 0:
            self.require_held()
        result.judge(self.job)

    def signal(self, step: str, *options: str) -> None:
        """Send a signal to a step. A step that cannot be signaled ends with the job."""
        with contextlib.suppress(MachineError):
            # If the job has just ended, scancel would retry for minutes.
            self._output(("timeout", "5", "scancel", *options, step))

    def require_held(self) -> None:
        """Raise AllocationLostError if the job is over, or Slurm does not report its state."""
        lines = self._scontrol_show()
        state = _state_in(lines)
        deadline = time.monotonic() + _COMPLETING_S
        while _is_completing(state) and time.monotonic() <= deadline:
            time.sleep(_POLL_S)
            lines = self._scontrol_show()
            state = _state_in(lines)
        if state is not None and state.runs and not _is_completing(state):
            return
        if state is None and not is_unknown_job(lines):
            text = shorten(" ".join(lines)) or "no output"
            raise AllocationLostError(
                f"Slurm does not report whether job {self.job} still runs: {text}."
            )
        why = explain_end(state) if state is not None and state.over else None
        if why is not None:
            raise AllocationLostError(why.text, hint=why.advice)
        raise AllocationLostError(
            f"Job {self.job}, which held the nodes, has ended.",
            hint="Check squeue. To submit a job instead, unset SLURM_JOB_ID.",
        )

    def _scontrol_show(self) -> list[str]:
        with _as_allocation_lost():
            return self._output(("scontrol", "show", "job", "--oneliner", self.job))

    def _output(self, argv: Sequence[str]) -> list[str]:
        with closing(self.login_node.start(argv)) as stream:
            return list(stream.lines())


def _state_in(lines: Iterable[str]) -> JobState | None:
    """Return what scontrol says of a job; None: nothing."""
    shown = next((line for line in lines if line.startswith("JobId=")), "")
    return job_state(shown) if shown else None


def _is_completing(state: JobState | None) -> bool:
    return state is not None and state.state == "COMPLETING"


class StepOutput:
    """The lines of a stream, read by a thread, for callers that also wait for other things."""

    def __init__(self, stream: ProcessStream, ended: threading.Event) -> None:
        self._stream = stream
        self._ended = ended
        self._lines: queue.SimpleQueue[str | MachineError | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, name="fabbench step", daemon=True).start()

    def next(self, deadline: float) -> str | None:
        """Wait for a line; None: no more.

        Raise KeyboardInterrupt once the event is set, and MachineError.
        """
        while True:
            if self._ended.is_set():
                raise KeyboardInterrupt
            with contextlib.suppress(queue.Empty):
                item = self._lines.get(timeout=_WAKE_S)
                if isinstance(item, MachineError):
                    raise AllocationLostError(str(item), hint=item.hint) from item
                return item
            if awake_s() > deadline:
                raise MachineError("The step did not end in time.")

    def ends(self, wait_s: float) -> bool:
        """Wait until the stream ends; return whether it did."""
        deadline = time.monotonic() + wait_s
        with contextlib.suppress(queue.Empty):
            while isinstance(self._lines.get(timeout=max(deadline - time.monotonic(), 0)), str):
                pass
            return True
        return False

    def close(self) -> None:
        """Close the stream; see `ProcessStream.close`."""
        self._stream.close()

    def _read(self) -> None:
        try:
            for text in self._stream.lines():
                self._lines.put(text)
        except MachineError as error:
            self._lines.put(error)
        except (OSError, ValueError):
            pass  # it was closed
        finally:
            self._lines.put(None)


FILE = "job.sbatch"


@contextmanager
def held_nodes(job: SubmittedJob, document: str) -> Iterator[tuple[str, ...]]:
    """Hold nodes with a job, and yield their names. Leaving it ends the job.

    Raise MachineError if that ends first.
    """
    with closing(follow(job, document)) as lines:
        for line in lines:
            if line.startswith(HELD):
                yield expand_hostlist(line.removeprefix(HELD))
                return
        raise MachineError(
            f"Job {job.job.id} ended before it held any nodes.", hint="Check its output."
        )


class HeldJob(JobAllocation):
    """A job that holds nodes; see `fabbench.launchers.DivisibleAllocation`."""

    concurrent = True

    def __init__(self, inventory: Inventory, steps: JobSteps, documents: Mapping[str, str]) -> None:
        """`documents` are what was submitted to get the nodes."""
        names = [host.name for host in inventory.hosts]
        super().__init__(
            inventory,
            rendering_named("slurm"),
            FILE,
            lambda document: steps.follow(document, names),
        )
        self._steps = steps
        self._documents = documents

    def part(self, hosts: Sequence[int], ended: threading.Event) -> "JobPart":
        """Return an allocation of some nodes.

        The script of an execution runs on the first of them.
        """
        return JobPart(self.inventory.part(hosts), self._steps, ended)


class JobPart(JobAllocation):
    """Some nodes of a job. It can be used in any thread."""

    concurrent = True

    def __init__(self, inventory: Inventory, steps: JobSteps, ended: threading.Event) -> None:
        names = [host.name for host in inventory.hosts]
        self._steps = steps
        self._limit_s = 0.0
        self._left = 0
        how = lambda document: steps.follow(document, names, ended, self._limit_s)  # noqa: E731 - one line
        super().__init__(inventory, rendering_named("slurm"), FILE, how)

    def part(self, hosts: Sequence[int], ended: threading.Event) -> "JobPart":
        """Return an allocation of some of these nodes."""
        return JobPart(self.inventory.part(hosts), self._steps, ended)

    @override
    def submit(self, source: RenderInput) -> None:
        # The requested nodes are those of the whole job.
        target = replace(source.request.target, hosts=(), nodes=None)
        self._limit_s = longest_s(source.plan)
        self._left = len(source.plan.executions)
        super().submit(replace(source, request=replace(source.request, target=target)))

    @override
    def execute(self, execution: Execution) -> Generator[str, None, Ending]:
        self._left -= 1
        going_on = False
        try:
            ending = yield from super().execute(execution)
            going_on = self._left > 0
            return ending
        finally:
            if not going_on:
                self.close()
