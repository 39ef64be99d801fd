"""A Slurm job that holds nodes: submitted, waited for and cancelled on a login node.

What it measures are steps on its nodes; see `fabbench.launchers.slurm.steps`.
"""

import secrets
from collections.abc import Iterator, Sequence
from itertools import chain

from fabbench.execution.waiting import moments
from fabbench.launchers import notify
from fabbench.launchers.jobs import Job, Phase, await_end
from fabbench.launchers.login_node import LoginNode
from fabbench.launchers.slurm.render import hold_script, overruling
from fabbench.launchers.slurm.scontrol import (
    JobState,
    explain_end,
    explain_pending,
    is_unknown_job,
    rejection,
    state_in,
)
from fabbench.launchers.slurm.steps import JobSteps, show_job
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.hostlist import expand_hostlist
from fabbench.model.known_messages import Explanation
from fabbench.model.mappings import Names
from fabbench.model.messages import listed
from fabbench.remote.transport import Done, LostError

COMMENT = "fabbench:"
"""The prefix of the comments of jobs that fabbench submitted; a unique id follows."""
_POLL_S = 0.5
_TRIES = 3
_FIND_S = 5.0  # How long a job whose submission was interrupted may take to appear
_LIST_MINE = 'squeue --noheader --user="$(id -un)" --format="%A %k"'  # Ids and comments


class SlurmJob(Job):
    """One job, from its submission to its end."""

    system = "Slurm's controller"

    def __init__(
        self,
        login: LoginNode,
        start_timeout_s: float | None,
        inherited: Names = (),
    ) -> None:
        """`inherited` are the variables that steps inherit from fabbench."""
        self.start_timeout_s = start_timeout_s
        self.job = JobState(id="")
        self._login = login
        self._inherited = inherited
        self._token = f"{COMMENT}{secrets.token_hex(6)}"  # Its comment, by which it is found
        self._document = ""  # What was submitted
        self._sent = False  # Whether Slurm may have the job, even if its id is not known

    def __str__(self) -> str:
        job_id = self.job.id
        return f"Job {job_id}" if job_id else "A job"

    @property
    def steps(self) -> JobSteps:
        """Return what starts its steps."""
        return JobSteps(login_node=self._login, job=self.job.id, inherited=self._inherited)

    @override
    def submit(self, document: str) -> None:
        """Submit it. A connection that breaks meanwhile does not lead to a second job."""
        self._document = document
        script = hold_script(document)
        login = self._login.name
        # FABRIC would choose among a script's configurations; sbatch passes its environment on.
        names = ("FABRIC", *overruling(script))
        unset = chain.from_iterable(("-u", name) for name in names)
        token = self._token
        # The job only holds its nodes, and prints nothing.
        sbatch = ("sbatch", "--parsable", f"--comment={token}", "--output=/dev/null")
        job_id = self._submit_once(("env", *unset, *sbatch), script.encode())
        self.job = JobState(id=job_id)
        notify(f"Job {job_id} was submitted on {login}.")

    def _submit_once(self, argv: Sequence[str], script: bytes) -> str:
        """Return the id of the new job. One whose answer was lost is found by its comment."""
        self._sent = True
        for _ in range(_TRIES):
            try:
                done = self._login.run(argv, stdin=script)
            except LostError:
                if job_id := self._find_id():
                    return job_id
            else:
                return self._job_id(done)
        name = self._login.name
        raise MachineError(f"Cannot submit a job on {name}: its connection keeps breaking.")

    def _job_id(self, done: Done) -> str:
        """Return the id of the job that sbatch printed: ID, or ID;CLUSTER. Raise its rejection."""
        if done.status:
            self._sent = False
            raise rejection(done.err or done.out)
        last = done.out[-1] if done.out else ""
        return last.partition(";")[0].strip()

    def _find_id(self) -> str:
        """Return the id of the job with its comment; empty if not found."""
        for line in self._login.run_idempotent(("sh", "-c", _LIST_MINE)).out:
            number, _, comment = line.partition(" ")
            if comment.strip() == self._token:
                return number
        return ""

    @override
    def phase(self) -> Phase:
        answer = show_job(self._login, self.job.id)
        shown = state_in(answer)
        if is_unknown_job(answer):  # Slurm forgets jobs some time after their end
            return Phase.OVER
        if shown is None:
            return Phase.UNKNOWN
        self.job = shown
        if shown.over:
            return Phase.OVER
        return Phase.RUNS if shown.runs else Phase.PENDING

    @override
    def nodes(self) -> str:
        return self.job.nodes

    @override
    def why_pending(self) -> Explanation | None:
        if not self.job.reason and self.job.state == "PENDING":
            return None  # Slurm gives no reason yet
        return explain_pending(self.job, self._position())

    def _position(self) -> int | None:
        """Return the number of pending jobs ahead of this one in the partition.

        None if not known.
        """
        if self.job.reason not in {"Resources", "Priority"}:  # it waits for more than its turn
            return None
        # By priority, the highest first, then by id: as Slurm starts them
        words = ("--noheader", "--states=PENDING", "--sort=-p,i", "--format=%A")
        partition = self.job.partition
        argv = ("squeue", *words, f"--partition={partition}")
        waiting = [line.strip() for line in self._login.run_idempotent(argv).out]
        return waiting.index(self.job.id) if self.job.id in waiting else None

    @override
    def lines(self) -> Iterator[str]:
        """Run the document as a step on the first of its nodes, and yield its lines."""
        names = expand_hostlist(self.job.nodes)
        return self.steps.follow(self._document, names, on_silence=self._report_dead_nodes)

    def _report_dead_nodes(self) -> None:
        """Report the nodes that do not answer Slurm, which waits for them for minutes."""
        words = ("sinfo", "--noheader", "--Node", "--dead", "--format=%N")
        nodes = self.job.nodes
        done = self._login.run_idempotent((*words, f"--nodes={nodes}"))
        if dead := sorted(set(done.out)):
            notify(f"Slurm gets no answer from {listed(dead)}: check scontrol show node.")

    @override
    def reason(self) -> MachineError:
        why = explain_end(self.job)
        if why is None:
            return MachineError(f"{self} ended before it held any nodes.", hint="Check squeue.")
        return MachineError(why.text, hint=why.advice)

    @override
    def cancel(self) -> None:
        try:
            self._cancel()
        except MachineError as error:
            login = self._login.name
            raise MachineError(
                f"{self} may still exist: {error} Check squeue on {login}, and scancel it."
            ) from error

    def _cancel(self) -> None:
        # Without an id, look for the job by what fabbench wrote into its comment.
        if not self.job.id and self._sent:  # sbatch may still be submitting it
            for _ in moments(_FIND_S, _POLL_S):
                self.job = JobState(id=self._find_id())
                if self.job.id:
                    break
        if self.job.id and self.phase() is not Phase.OVER:
            self._login.run_idempotent(("scancel", self.job.id))
            await_end(self)
