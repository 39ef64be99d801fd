"""A script, run as a step on nodes that a job holds.

A step runs on the first of its nodes, which reaches the others. It is the script of a whole plan,
or of one execution: of a test of a sweep, on some of the nodes.
"""

import itertools
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from fabbench.catalog.offline_inventory import require_names
from fabbench.execution.awake import awake_s
from fabbench.execution.session import SOURCED, exports
from fabbench.execution.waiting import moments
from fabbench.execution.worker_pool import OutputQueue
from fabbench.launchers import AllocationLostError, RenderInput, rendering_named
from fabbench.launchers.batch_job import JobAllocation, longest_s
from fabbench.launchers.login_node import LoginNode, with_batch_path
from fabbench.launchers.slurm.render import tasks_per_node
from fabbench.launchers.slurm.scontrol import JobState, explain_end, is_unknown_job, state_in
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Inventory
from fabbench.model.log import ExecutionLines, Lines
from fabbench.model.mappings import Documents, Names
from fabbench.model.messages import output_text, redacted, shorten
from fabbench.model.plan import Execution, Words
from fabbench.model.units import parse_whole
from fabbench.model.values import frozen
from fabbench.remote.session import MARK, RemoteProcess

GRACE_S = 20.0  # How long the script has to end what it started
_WAKE_S = 0.25  # How often to look whether it is to end, while it prints nothing
_SILENT_S = 10.0  # After how long without output `on_silence` is called
_NUMBERS = itertools.count(1)
# Runs the words after the directory there, with the script on standard input: the agent runs
# programs in its own directory, which other machines do not have.
_RUN_IN_FOLDER = 'cd "${1:-$HOME}" && shift && exec "$@" <"$0"'
_POLL_S = 0.5
# How long to wait for the end of COMPLETING: an ended job's state until its nodes are free. Only
# then Slurm reports how it ended.
_COMPLETING_S = 20.0
_OUT_OF_TIME_S = 70.0  # Slurm looks for such jobs twice a minute
_OVER = "already completing or completed"  # srun's words
_STEP = "#@step "
_EXIT = "#@exit "
# The script comes on standard input, and what it starts must not read from there. Its file has no
# name while it runs: nothing is left where the step is killed. srun itself would report a status in
# a line that looks like one of the ranks'.
_RUN_SCRIPT = (
    f'echo "{_STEP}$SLURM_JOB_ID.$SLURM_STEP_ID"; '
    'file=$(mktemp) && cat >"$file" && exec 3<"$file" && rm "$file" && '
    "{ bash /dev/fd/3 </dev/null & child=$!; "
    "trap 'kill -TERM $child 2>/dev/null' TERM INT HUP; "
    'wait "$child"; status=$?; while kill -0 "$child" 2>/dev/null; do wait "$child"; status=$?; '
    "done; "
    f'echo "{_EXIT}$status"; }}'
)


def srun_script(nodes: Sequence[str], tasks: int, *more: str) -> Words:
    """Return the command that runs its input as a script on the first of some nodes.

    The script may start up to `tasks` ranks on each.
    """
    names = ",".join(nodes)
    count = len(nodes)
    srun = (
        "srun",
        "--overlap",
        "--immediate=60",  # seconds, then it fails: the nodes are not free for a step
        "--export=ALL",
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
    # FABRIC would choose among the script's configurations.
    return ("env", "-u", "FABRIC", *srun, "env", *whole_job, "sh", "-c", _RUN_SCRIPT)


class StepResult:
    """The result of a step, read from srun's output."""

    def __init__(self) -> None:
        self.step = ""  # Its id; empty: the script has not started
        self.status: int | None = None  # The script's; None: it has not ended
        self._last_line = ""  # The last one that is the script's own, and not empty

    def read_line(self, text: str) -> bool:
        """Read a line; return whether it is the script's own output."""
        if text.startswith(_STEP):
            self.step = text.removeprefix(_STEP)
        elif text.startswith(_EXIT):
            self.status = parse_whole(text.removeprefix(_EXIT))
        else:
            self._last_line = text or self._last_line
            return True
        return False

    @property
    def is_refused(self) -> bool:
        """Whether Slurm starts no more steps in this job: it is over."""
        return not self.step and _OVER in self._last_line

    @property
    def last_line_shown(self) -> str:
        """The last line, shortened, for messages."""
        return shorten(self._last_line) or "no output"

    def judge(self, job: str) -> None:
        """Raise MachineError if the script did not start, or did not run to its end."""
        if not self.step:
            raise MachineError(
                f"srun started nothing in this allocation (job {job}): {self.last_line_shown}.",
                hint=(
                    f"Check squeue --job {job}. If it is over, unset SLURM_JOB_ID to submit a job."
                ),
            )
        if self.status is None:
            raise MachineError(
                f"The script in job {job} was killed. Its last line: {self.last_line_shown}.",
                hint=(
                    f"Check squeue --job {job}: it was cancelled, hit its time limit, or lost a "
                    "node."
                ),
            )
        # Of a status that means that the script ran to its end, nothing is explained.
        why = explain_end(JobState(id=job, state="FAILED", status=self.status), self._last_line)
        if why is not None:
            raise MachineError(why.text.replace("Job ", "The script in job ", 1), hint=why.advice)


@contextmanager
def _as_allocation_lost() -> Iterator[None]:
    """Turn errors of the login node into AllocationLostError, which does not blame the nodes."""
    try:
        yield
    except MachineError as error:
        raise AllocationLostError(str(error), hint=error.hint) from error


@frozen
class JobSteps:
    """Starts steps of a job, from any thread; each is a script that `render` wrote."""

    login_node: LoginNode
    job: str  # Its id
    inherited: Names = ()  # Variables that programs inherit from fabbench

    def follow(
        self,
        document: str,
        nodes: Sequence[str],
        *,
        ended: threading.Event | None = None,
        limit_s: float = math.inf,
        on_silence: Callable[[], None] = lambda: None,
    ) -> Lines:
        """Run a script as a step on the first of some nodes, and yield its lines.

        Closing it ends it. `on_silence` is called every few seconds while it prints nothing. Raise
        KeyboardInterrupt once `ended`.

        Raise AllocationLostError, and MachineError if it did not start, was killed, or takes longer
        than `limit_s`.
        """
        result = StepResult()
        queue = OutputQueue()
        step = self._start(document, nodes, queue)
        try:
            for text in _lines_of(step, queue, ended, limit_s, on_silence):
                if result.read_line(text):
                    yield text
        except BaseException:
            if result.step:  # the script ends what it started: srun would kill it too soon
                self.signal(result.step, "--signal=TERM")
                if not _ends_in_time(step, queue):
                    self.signal(result.step)  # Slurm ends it
            raise
        finally:
            queue.leave()
            step.close()
        if result.status != 0:  # if the job itself is over, that is why
            self.require_held(refuses_steps=result.is_refused)
        result.judge(self.job)

    def _start(self, document: str, nodes: Sequence[str], queue: OutputQueue) -> RemoteProcess:
        """Start srun on the login node, where it goes on when the connection breaks."""
        agent = self.login_node.agent
        number = f"step{next(_NUMBERS)}"
        script = f"{agent.folder}/{number}.sh"
        contents = {script: document.encode()}
        srun = with_batch_path(srun_script(nodes, tasks_per_node(document), f"--jobid={self.job}"))
        # In the folder where the user's programs start, with the script as its input
        words = ["sh", "-c", _RUN_IN_FOLDER, script, self.login_node.folder, *srun]
        if self.inherited:
            settings = f"{agent.folder}/{number}.env"
            contents[settings] = exports(self.inherited).encode("utf-8", "surrogateescape")
            words = [*SOURCED, settings, *words]
        # By this variable the agent's cleanup finds what the step left behind.
        marked = ("env", f"{MARK}={agent.token}", *words)
        step = RemoteProcess(number, agent, number, marked)
        with _as_allocation_lost():
            agent.with_reconnect(lambda: agent.put(contents))
            step.start(queue)
        return step

    def signal(self, step: str, *options: str) -> None:
        """Send a signal to a step. A step that cannot be signaled ends with the job."""
        with suppress(MachineError):
            # If the job has just ended, scancel would retry for minutes.
            self.login_node.run_idempotent(("timeout", "5", "scancel", *options, step))

    def _settled(self, *, refuses_steps: bool) -> list[str]:
        """Return what scontrol says of the job; while it is completing, wait for its end."""
        longest_s = _OUT_OF_TIME_S if refuses_steps else _COMPLETING_S
        for _ in moments(longest_s, _POLL_S):
            answer = show_job(self.login_node, self.job)
            state = state_in(answer)
            ends_soon = _is_completing(state) or (
                refuses_steps and state is not None and state.runs
            )
            if not ends_soon:
                break
        return answer

    def require_held(self, *, refuses_steps: bool) -> None:
        """Raise AllocationLostError if the job is over, or Slurm does not report its state.

        A job that is completing is over, too; why it ended is known a little later. So is one that
        `refuses_steps`, as out of time: it is said to run until Slurm looks, each half minute.
        """
        with _as_allocation_lost():
            answer = self._settled(refuses_steps=refuses_steps)
        state = state_in(answer)
        if state is None and not is_unknown_job(answer):
            text = output_text(answer)
            raise AllocationLostError(
                f"Slurm does not report whether job {self.job} still runs: {text}."
            )
        is_over = refuses_steps or _is_completing(state)
        if state is not None and state.runs and not is_over:
            return
        # Without a state, Slurm no longer knows the job: why it ended is not known either.
        why = explain_end(state) if state is not None and state.over else None
        if why is not None:
            raise AllocationLostError(why.text, hint=why.advice)
        raise AllocationLostError(
            f"Job {self.job}, which held the nodes, has ended.",
            hint="Check squeue. To submit a job instead, unset SLURM_JOB_ID.",
        )


def show_job(login: LoginNode, job: str) -> list[str]:
    """Return what scontrol says of a job. A controller that is silent is not waited for."""
    argv = ("timeout", "8", "scontrol", "show", "job", "--oneliner", job)
    done = login.run_idempotent(argv)
    return [*done.out, *done.err]


def _is_completing(state: JobState | None) -> bool:
    return state is not None and state.state == "COMPLETING"


def _lines_of(
    step: RemoteProcess,
    queue: OutputQueue,
    ended: threading.Event | None,
    limit_s: float,
    on_silence: Callable[[], None],
) -> Iterator[str]:
    """Yield the lines of a step to its end. Its time does not count while fabbench is stopped."""
    silent_since = awake_s()
    deadline = silent_since + limit_s
    while step.status is None:
        lines = _next_lines(step, queue, ended)
        now = awake_s()
        if lines:
            silent_since = now
            yield from lines
        elif now > deadline:
            raise MachineError("The step did not end in time.")
        elif now - silent_since > _SILENT_S:
            silent_since = now  # the next call is as far away
            on_silence()


def _next_lines(
    step: RemoteProcess, queue: OutputQueue, ended: threading.Event | None
) -> Sequence[str]:
    """Wait a moment for lines, and record the step's status: None while it has not ended.

    Raise KeyboardInterrupt once `ended`: only the main thread gets an interrupt itself.
    """
    if ended is not None and ended.is_set():
        raise KeyboardInterrupt
    with _as_allocation_lost():
        item = queue.get(_WAKE_S)
    if item is None:
        return ()
    step.status = item.status
    return item.texts


def _ends_in_time(step: RemoteProcess, queue: OutputQueue) -> bool:
    """Wait until a step that was told to end has ended; return whether it has."""
    with suppress(MachineError):
        for _ in _lines_of(step, queue, ended=None, limit_s=GRACE_S, on_silence=lambda: None):
            pass
    return step.status is not None


FILE = "job.sbatch"
STEP_FILE = "step.sh"


class HeldNodes(JobAllocation):
    """Nodes of a job that is held; see `fabbench.launchers.DivisibleAllocation`.

    Each execution is a script of its own, which runs on the first of them: which one is next may
    depend on those before. Used in any thread.
    """

    def __init__(
        self,
        inventory: Inventory,
        steps: JobSteps,
        documents: Documents,
        ended: threading.Event | None = None,
    ) -> None:
        """`documents` are what was submitted to get the nodes.

        Once `ended` is set, who waits for lines gets a KeyboardInterrupt.
        """
        super().__init__(inventory, rendering_named("slurm"), FILE, self._follow_script)
        self.machines = (steps.login_node.agent,)
        self._documents = documents
        self._steps = steps
        self._ended = ended
        self._source: RenderInput  # Of the plan that was submitted last
        self._limit_s = 0.0  # For the step that runs

    def part(self, hosts: Sequence[int], ended: threading.Event) -> "HeldNodes":
        """Return an allocation of some of these nodes."""
        return HeldNodes(self.inventory.part(hosts), self._steps, documents={}, ended=ended)

    @override
    def submit(self, source: RenderInput) -> None:
        """Take the plan. Its first step is rendered, to be kept with the run: others are alike."""
        require_names(source.plan)
        # The requested nodes are those of the whole job, and these may be a part of them.
        target = replace(source.request.target, hosts=(), nodes=None)
        self._source = replace(source, request=replace(source.request, target=target))
        for execution in source.plan.executions[:1]:  # None where all are kept
            first = self._rendering.render(redacted(self._alone(execution)))
            self._documents = {**self._documents, STEP_FILE: first}

    @override
    def execute(self, execution: Execution) -> ExecutionLines:
        """Run an execution as a step, which ends with it, also if it is abandoned."""
        source = self._alone(execution)
        self._limit_s = longest_s(source.plan)
        self._start(source)
        try:
            return (yield from super().execute(execution))
        finally:
            self.close()

    def _alone(self, execution: Execution) -> RenderInput:
        """Return what the script of one execution is rendered from."""
        return replace(self._source, plan=replace(self._source.plan, executions=(execution,)))

    def _follow_script(self, document: str) -> Lines:
        """Run the script as a step on these nodes, and yield its lines."""
        names = self.inventory.names
        return self._steps.follow(document, names, ended=self._ended, limit_s=self._limit_s)
