"""A Slurm job: submitted, followed to its end, and cancelled. Commands run on a login node."""

import base64
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import chain

from fabbench.execution.process import LineDecoder
from fabbench.execution.session import exports
from fabbench.launchers import notify
from fabbench.launchers.slurm.login_node import LoginNode
from fabbench.launchers.slurm.render import overruling
from fabbench.launchers.slurm.scontrol import (
    SHARE,
    JobState,
    accounted,
    explain_end,
    explain_pending,
    is_unknown_job,
    job_state,
    refused,
)
from fabbench.model.errors import MachineError
from fabbench.model.log import MARKER_SIGN
from fabbench.model.messages import listed
from fabbench.remote.transport import Done, LostError

COMMENT = (
    "fabbench:"  # The prefix of the comments of jobs that fabbench submitted; a unique id follows
)
_POLL_S = 0.5
_LOOK_S = 2.0
_RARELY_S = 10.0  # While output comes, Slurm's controller is queried rarely
_UNSEEN_S = 60.0
_ANSWER_S = 20.0
_SETTLE_S = 1.0
_LATE_S = 15.0
_CLEANUP_S = 20.0  # How long a script has to clean up after it was signaled to end
_HEARD_S = 3.0
_END_S = 120.0
_SILENT_S = 600.0
_TRIES = 3
_FIND_S = 5.0
_MINE = 'squeue --noheader --user="$(id -un)" --format="%A %k"'
SACCT = (
    "sacct",
    "--noheader",
    "--parsable2",
    "--allocations",
    "--format=State,ExitCode,NodeList,Timelimit",
)
# Prints the first line of programs under srun, for `by_node`
PRINT_NODE = 'echo "fabbench node $SLURMD_NODENAME"'
_NODE = "fabbench node "
_LABEL = re.compile(r" *(\d+): ?(.*)")


def with_settings(
    inherited: Sequence[str], argv: tuple[str, ...], data: bytes
) -> tuple[tuple[str, ...], bytes]:
    """Return a command and its input that inherit variables; no command line has their values."""
    if not inherited:
        return argv, data
    settings = exports(inherited).encode("utf-8", "surrogateescape")
    # dd takes as many bytes of the input; the rest is left for the command.
    read = 'eval "$(dd bs=1 count="$0" 2>/dev/null)" && exec "$@"'
    return ("sh", "-c", read, str(len(settings)), *argv), settings + data


def by_node(lines: Sequence[str]) -> dict[str, list[str]]:
    """Return what each node printed.

    With --label, srun prefixes each line with the number of the task.
    """
    outputs: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        if match := _LABEL.fullmatch(line):
            outputs[match[1]].append(match[2])
    return {
        output[0].removeprefix(_NODE): output[1:]
        for output in outputs.values()
        if output[0].startswith(_NODE)
    }


def follow(job: "SubmittedJob", document: str) -> Generator[str, None, None]:
    """Submit a document as a job, and yield the lines of its output.

    Closing it ends the job, and leaves no files.

    Raise MachineError for a job that cannot start, or ended early. One that could not be ended is a
    note of the error.
    """
    try:
        job.submit(document)
        yield from job.lines()
    except GeneratorExit:
        if left := job.end():
            raise MachineError(left) from None
        raise
    except BaseException as error:
        if left := job.end():
            error.add_note(left)
        raise
    if left := job.end():
        raise MachineError(left)
    job.judge()


def _tagged(lines: Iterable[str], tag: str) -> list[str]:
    """Return the lines of poll.sh with a tag, without it."""
    return [line.removeprefix(tag) for line in lines if line.startswith(tag)]


class SubmittedJob:
    """One job, from its submission to its end."""

    def __init__(
        self, login: LoginNode, start_timeout_s: float | None, inherited: tuple[str, ...] = ()
    ) -> None:
        """`inherited` are the variables that the job inherits from fabbench."""
        self._login = login
        self._inherited = inherited
        self._start_timeout_s = start_timeout_s
        self._token = f"{COMMENT}{secrets.token_hex(6)}"
        self.job = JobState(id="")
        self._offset = 0
        self._last = ""
        self._reported = ""
        self._dead: Sequence[str] = ()  # Nodes that do not answer
        self._asked = 0.0  # When Slurm was asked for them
        self._answered = 0.0  # When Slurm last told the job's state
        self._unknown = False  # Whether Slurm no longer knows the job
        self._sent = False

    def submit(self, document: str) -> None:
        """Submit it. A connection that breaks meanwhile does not lead to a second job."""
        names = ("FABRIC", *overruling(document))
        unset = chain.from_iterable(("-u", name) for name in names)
        # sbatch passes its environment on.
        argv: tuple[str, ...] = ("env", *unset, "sbatch", "--parsable", f"--comment={self._token}")
        argv, data = with_settings(self._inherited, argv, document.encode())
        job_id = self._sbatch(argv, data)
        self.job = JobState(id=job_id)
        notify(f"Job {job_id} was submitted on {self._login.name}.")

    def _sbatch(self, argv: Sequence[str], document: bytes) -> str:
        """Return the id of the new job. One whose answer was lost is found by its comment."""
        self._sent = True
        for _ in range(_TRIES):
            try:
                done = self._login.run(argv, stdin=document)
            except LostError:
                if job_id := self._find():
                    return job_id
            else:
                return self._job_id(done)
        name = self._login.name
        raise MachineError(f"Cannot submit a job on {name}: its connection keeps breaking.")

    def _job_id(self, done: Done) -> str:
        """Return the id of the job that sbatch printed, before the name of its cluster."""
        if done.status:
            self._sent = False
            raise refused(done.err or done.out)
        last = done.out[-1] if done.out else ""
        return last.partition(";")[0].strip()

    def _find(self) -> str:
        """Return the id of the job with its comment; empty if not found."""
        for line in self._login.run_idempotent(("sh", "-c", _MINE)).out:
            number, _, comment = line.partition(" ")
            if comment.strip() == self._token:
                return number
        return ""

    def lines(self) -> Iterator[str]:
        """Yield its lines until it is over.

        Raise MachineError if it cannot start, or Slurm is silent.
        """
        decoder = LineDecoder()
        started = looked = self._answered = time.monotonic()
        look = True
        settled = False  # Whether it is over, and the last poll brought nothing
        while True:
            data, exists = self._poll(look=look)
            now = time.monotonic()
            if look:
                looked = now
                self._report_state(data, now - started)
                self._require_answers(now)
            yield from self._noting_last(decoder.feed(data))
            # A network file system may show the output with some delay.
            is_complete = exists or now - looked > _LATE_S
            nothing_new = self._over and not data
            if nothing_new and settled and is_complete:
                break
            settled = nothing_new
            self._require_output(exists=exists)
            time.sleep(_SETTLE_S if settled else _POLL_S)
            is_due = time.monotonic() - looked >= self._interval_s(data, now - started)
            look = is_due and not self._over
        yield from decoder.rest()

    def _noting_last(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield lines, and keep the last one that a program printed."""
        for line in lines:
            if line and MARKER_SIGN not in line:
                self._last = line
            yield line

    def _require_answers(self, now: float) -> None:
        if now - self._answered > _SILENT_S:
            raise MachineError(f"Slurm's controller has not answered for {_SILENT_S:.0f} s.")

    def _require_output(self, *, exists: bool) -> None:
        """Raise MachineError if the job has run for long and its output was never seen."""
        is_missing = not exists and not self._offset
        if is_missing and self.job.runs and self.job.ran_s > _UNSEEN_S:
            raise self._output_not_visible()

    def _interval_s(self, data: bytes, waited_s: float) -> float:
        """Return how long to wait between questions to Slurm's controller."""
        if self.job.runs:
            return _RARELY_S if data else _LOOK_S
        if waited_s < _RARELY_S:
            return 0.0
        return _LOOK_S if waited_s < _UNSEEN_S else _RARELY_S

    @property
    def _over(self) -> bool:
        return self._unknown or self.job.over

    def _poll(self, *, look: bool = True) -> tuple[bytes, bool]:
        """Return new bytes of the output, and whether it exists.

        With `look` update the job's state.
        """
        script = (files("fabbench.launchers.slurm") / "poll.sh").read_text("utf-8")
        words = (
            "sh",
            "-c",
            script,
            "poll",
            self.job.id,
            self.job.output,
            str(self._offset),
            "look" if look else "",
        )
        out = self._login.run_idempotent(words, timeout_s=_ANSWER_S).out
        lines = _tagged(out, "job ")
        data = b"".join(map(base64.b64decode, _tagged(out, "data ")))
        shown = next((line for line in lines if line.startswith("JobId=")), "")
        self._offset += len(data)
        self.job = job_state(shown) if shown else self.job
        self._unknown = self._unknown or is_unknown_job(lines)
        if shown or self._unknown:
            self._answered = time.monotonic()
        return data, "there" in out

    def _report_state(self, data: bytes, waited_s: float) -> None:
        """Report the job's state to the user. Raise MachineError if the job cannot start."""
        if self.job.runs:
            self._report_running(has_printed=bool(data))
        elif self.job.pending and not self._unknown:
            self._wait(waited_s)

    def _report_running(self, *, has_printed: bool) -> None:
        """Report that the job runs, and the nodes that do not answer Slurm."""
        job = self.job
        # Slurm waits for these for minutes.
        if not has_printed and time.monotonic() > self._asked + _RARELY_S:
            self._asked = time.monotonic()
            words = ("sinfo", "--noheader", "--Node", "--dead", "--format=%N")
            done = self._login.run_idempotent((*words, f"--nodes={job.nodes}"))
            self._dead = sorted(set(done.out))
        dead = ""
        if self._dead:
            dead = f"; Slurm gets no answer from {listed(self._dead)}: check scontrol show node"
        self._report(f"Job {job.id} runs on {job.nodes}{dead}.")

    def _wait(self, waited_s: float) -> None:
        why = explain_pending(self.job, self._position())
        if self.job.reason or self.job.state != "PENDING":
            if why.final:
                raise MachineError(why.text, hint=f"{why.advice} The job was cancelled.")
            self._report(str(why))
        limit_s = self._start_timeout_s
        if limit_s is not None and waited_s > limit_s:
            raise MachineError(
                f"The job had not started after {limit_s:g} s. {why.text}",
                hint="It was cancelled. Raise --start-timeout, or request less.",
            )

    def _position(self) -> int | None:
        """Return the number of pending jobs ahead of this one in the partition.

        None if not known.
        """
        if self.job.reason not in {"Resources", "Priority"}:
            return None
        words = ("--noheader", "--states=PENDING", "--sort=-p,i", "--format=%A")
        out = self._login.run_idempotent(
            ("squeue", *words, f"--partition={self.job.partition}")
        ).out
        waiting = [line.strip() for line in out]
        return waiting.index(self.job.id) if self.job.id in waiting else None

    def _report(self, sentence: str) -> None:
        if sentence != self._reported:
            self._reported = sentence
            notify(sentence)

    def _output_not_visible(self) -> MachineError:
        return MachineError(
            f"Job {self.job.id} ran on {self.job.nodes}, but its output {self.job.output} is not "
            f"visible on {self._login.name}.",
            hint=SHARE,
        )

    def judge(self) -> None:
        """Raise MachineError if the job's script did not run to its end."""
        job: JobState | None = self.job
        # Slurm's controller forgets a job some minutes after its end; accounting may not.
        if self._unknown:
            out = self._login.run_idempotent((*SACCT, f"--jobs={self.job.id}")).out
            job = accounted(out[-1], self.job) if out else None
        why = explain_end(job, self._last) if job else None
        if why is not None:
            raise MachineError(why.text, hint=why.advice)
        if not self._offset and not self._unknown:
            raise self._output_not_visible()

    def end(self) -> str:
        """Cancel the job, wait until it has ended, and remove its files.

        Return a sentence if it remains.
        """
        try:
            return self._end()
        except KeyboardInterrupt:
            return self._end()
        except MachineError as error:
            job = f"Job {self.job.id}" if self.job.id else "A job"
            return (
                f"{job} may still exist: {error} Check squeue on {self._login.name}, and "
                "scancel it."
            )

    def _end(self) -> str:
        if not self.job.id and self._sent:  # sbatch may still be submitting it
            deadline = time.monotonic() + _FIND_S
            while not (job_id := self._find()) and time.monotonic() < deadline:
                time.sleep(_POLL_S)
            self.job = JobState(id=job_id)
        if not self.job.id:
            return ""
        if not self._over:
            self._login.run_idempotent(("scancel", "--state=PENDING", self.job.id))
            self._poll()
            if self.job.runs:
                self._terminate()
            if not self._over:
                self._login.run_idempotent(("scancel", self.job.id))
                self._wait_for_end(_END_S)
        if not self._over:
            return (
                f"Job {self.job.id} was cancelled, and is still {self.job.state} after "
                f"{_END_S:.0f} s."
            )
        if self.job.leaves:
            self._login.run_idempotent(("rm", "-f", "--", *self.job.leaves))
        return ""

    def _terminate(self) -> None:
        """Send the script SIGTERM.

        As long as the job runs, it can end what it started on every node.
        """
        deadline = time.monotonic() + _CLEANUP_S
        # If the job has just ended, scancel would retry for minutes.
        scancel = ("timeout", "5", "scancel", "--batch", "--signal=TERM", self.job.id)
        while not self._over and time.monotonic() < deadline:
            # A script that is just being started does not get the signal.
            self._login.run_idempotent(scancel)
            self._wait_for_end(_HEARD_S)

    def _wait_for_end(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not self._over and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            self._poll()
