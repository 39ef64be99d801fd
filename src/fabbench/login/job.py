"""A job of Slurm's: submitted, followed to its end, and ended."""

import contextlib
import secrets
import time
from collections.abc import Generator, Iterator

from fabbench.errors import MachineError
from fabbench.login.accounting import remembered
from fabbench.login.poll import Poll, asked, read
from fabbench.login.way import Login
from fabbench.markers import SIGN
from fabbench.model import Trial
from fabbench.pipes import Lines
from fabbench.remote.connection import LostError
from fabbench.slurm.directives import overruling
from fabbench.slurm.jobs import SHARE, JobState, explain_end
from fabbench.slurm.pending import explain_pending
from fabbench.slurm.refusals import refused
from fabbench.telling import tell

COMMENT = "fabbench:"
"""How the comments of jobs begin that fabbench submitted; an id of its own follows."""
_POLL_S = 0.5
_LOOK_S = 2.0
_SELDOM_S = 10.0
"""While output comes, Slurm's controller is left alone."""
_UNSEEN_S = 60.0
_ANSWER_S = 20.0
_SETTLE_S = 1.0
_LATE_S = 15.0
_POLITE_S = 20.0
"""How long a script may take to clean up after it was asked to end."""
_HEARD_S = 3.0
_END_S = 120.0
_SILENT_S = 600.0
_TRIES = 3
_FIND_S = 5.0
_MINE = 'squeue --noheader --user="$(id -un)" --format="%A %k"'


def follow(job: "Submitted", document: str) -> Generator[str, None, None]:
    """Submit a document as a job, and give the lines of its output as they come. Closing it ends the job.

    Raises MachineError for a job that cannot start, or that something ended. Whatever happens, no job and no
    file of it is left; what could not be ended is a note of the error.
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


class Submitted:
    """One job, from its submission to its end."""

    def __init__(self, login: Login, start_timeout_s: float | None) -> None:
        self._login = login
        self._start_timeout_s = start_timeout_s
        self._token = f"{COMMENT}{secrets.token_hex(6)}"
        self.job = JobState(id="")
        self._offset = 0
        self._last = ""
        self._told = ""
        self._gone = False
        self._sent = False

    # ------------------------------------------------------------ its begin

    def submit(self, document: str) -> None:
        """Submit it. A connection that breaks meanwhile leaves no second job."""
        unset = (
            word for name in ("FABRIC", "TRIAL", "DONE_FILE", *overruling(document)) for word in ("-u", name)
        )
        argv = ("env", *unset, "sbatch", "--parsable", f"--comment={self._token}")
        self._sent = True
        for _ in range(_TRIES):
            try:
                done = self._login.run(argv, stdin=document.encode())
            except LostError:
                if found := self._find():
                    break
                continue
            if done.status:
                self._sent = False
                raise refused(done.err or done.out)
            found = done.out[-1].partition(";")[0].strip() if done.out else ""
            break
        else:
            raise MachineError(f"No job could be submitted on {self._login.name}: its connection breaks.")
        self.job = JobState(id=found)
        tell(f"Job {found} was submitted on {self._login.name}.")

    def _find(self) -> str:
        """Find the job by its comment; empty: there is none."""
        for line in self._login.sure(("sh", "-c", _MINE)).out:
            number, _, comment = line.partition(" ")
            if comment.strip() == self._token:
                return number
        return ""

    # ------------------------------------------------------------ its output

    def lines(self) -> Iterator[str]:
        """Give its lines as they come, until it is over and all of them are there."""
        whole = Lines()
        begun = heard = looked = time.monotonic()
        look, settled = True, False
        while True:
            poll = self._once(look=look)
            now = time.monotonic()
            if look:
                looked = now
                self._note(poll, now - begun)
                if poll.job is not None or poll.gone:
                    heard = now
                elif now - heard > _SILENT_S:
                    raise MachineError(f"Slurm's controller has not answered for {_SILENT_S:.0f} s.")
            for line in whole.feed(poll.data):
                self._last = line if line and SIGN not in line else self._last
                yield line
            if self._over and not poll.data:
                # A file system over a network may show the output some time later.
                if settled and (poll.there or now - looked > _LATE_S):
                    break
                settled = True
            else:
                settled = False
            self._require_output(poll)
            time.sleep(_SETTLE_S if settled else _POLL_S)
            look = not self._over and time.monotonic() - looked >= self._every(poll, now - begun)
        yield from whole.rest()

    def _every(self, poll: Poll, waited_s: float) -> float:
        """Say how often Slurm's controller is asked: often to see the job start, and seldom without need."""
        if not self.job.runs:
            return 0.0 if waited_s < _SELDOM_S else _LOOK_S if waited_s < _UNSEEN_S else _SELDOM_S
        return _SELDOM_S if poll.data else _LOOK_S

    @property
    def _over(self) -> bool:
        return self._gone or self.job.over

    def _once(self, *, look: bool) -> Poll:
        poll = read(self._login.sure(asked(self.job, self._offset, look=look), timeout_s=_ANSWER_S).out)
        self._offset += len(poll.data)
        return poll

    def _note(self, poll: Poll, waited_s: float) -> None:
        """Take note of what the job does, and tell it. Raises MachineError for one that cannot start."""
        if poll.gone:
            self._gone = True
        if poll.job is None:
            return
        before, self.job = self.job, poll.job
        if before.restarts < poll.job.restarts:
            tell(f"Job {self.job.id} was requeued, and starts again: what has ended well is not repeated.")
        if poll.job.runs:
            self._say(f"Job {self.job.id} runs on {self.job.nodes}.")
        elif poll.job.pending:
            self._wait(waited_s)

    def _wait(self, waited_s: float) -> None:
        why = explain_pending(self.job, self._position())
        if self.job.reason or self.job.state != "PENDING":
            if why.final:
                raise MachineError(why.text, hint=f"{why.advice} The job was cancelled.")
            self._say(str(why))
        limit_s = self._start_timeout_s
        if limit_s is not None and waited_s > limit_s and not self.job.restarts:
            raise MachineError(
                f"The job had not started after {limit_s:g} s. {why.text}",
                hint="It was cancelled. Wait longer with --start-timeout, or ask for less.",
            )

    def _position(self) -> int | None:
        """Count the jobs before this one that wait for the partition."""
        if self.job.reason not in {"Resources", "Priority"}:
            return None
        words = ("--noheader", "--states=PENDING", "--sort=-p,i", "--format=%A")
        out = self._login.sure(("squeue", *words, f"--partition={self.job.partition}")).out
        waiting = [line.strip() for line in out]
        return waiting.index(self.job.id) if self.job.id in waiting else None

    def _say(self, sentence: str) -> None:
        if sentence != self._told:
            self._told = sentence
            tell(sentence)

    def _require_output(self, poll: Poll) -> None:
        """Raise MachineError where the job has run for some time, and nothing is seen of its output."""
        if not poll.there and not self._offset and self.job.runs and self.job.ran_s > _UNSEEN_S:
            raise self._unseen()

    def _unseen(self) -> MachineError:
        return MachineError(
            f"Job {self.job.id} ran on {self.job.nodes}, and its output {self.job.output} is not seen "
            f"on {self._login.name}.",
            hint=SHARE,
        )

    def give_up(self, trial: Trial) -> None:
        """Let the job go on with the next trial: its script looks into this file. It may fail."""
        with contextlib.suppress(MachineError):
            append = 'printf "%s\\n" "$2" >>"$1"'
            self._login.run(("sh", "-c", append, "sh", self.job.done_file, trial.id), timeout_s=_ANSWER_S)

    # ------------------------------------------------------------ its end

    def judge(self) -> None:
        """Raise MachineError for a job that did not come to its own end."""
        job = remembered(self._login, self.job) if self._gone else self.job
        why = explain_end(job, self._last) if job else None
        if why is not None:
            raise MachineError(why.text, hint=why.advice)
        if not self._offset and not self._gone:
            raise self._unseen()

    def end(self) -> str:
        """Cancel the job, wait until it is gone, and remove its files. Gives a sentence if it is not."""
        try:
            return self._end()
        except KeyboardInterrupt:
            return self._end()
        except MachineError as error:
            job = f"Job {self.job.id}" if self.job.id else "A job"
            return (
                f"{job} may still be there: {error} Look with squeue on {self._login.name}, and scancel it."
            )

    def _end(self) -> str:
        if not self.job.id and self._sent:
            self.job = JobState(id=self._find_late())
        if not self.job.id:
            return ""
        if not self._over:
            self._login.sure(("scancel", "--state=PENDING", self.job.id))
            self._look()
            if self.job.runs:
                self._ask_to_end()
            if not self._over:
                self._login.sure(("scancel", self.job.id))
                self._wait_for_end(_END_S)
        if not self._over:
            return f"Job {self.job.id} was cancelled, and is still {self.job.state} after {_END_S:.0f} s."
        self._remove_files()
        return ""

    def _ask_to_end(self) -> None:
        """Let the script end, which as long as the job runs can end what it started on every node."""
        deadline = time.monotonic() + _POLITE_S
        # Where the job has just ended, scancel would try again for minutes.
        polite = ("timeout", "5", "scancel", "--batch", "--signal=TERM", self.job.id)
        while not self._over and time.monotonic() < deadline:
            # A script that is only being started does not get it.
            self._login.sure(polite)
            self._wait_for_end(_HEARD_S)

    def _find_late(self) -> str:
        """Find a job whose submission was interrupted: sbatch may just be at it."""
        deadline = time.monotonic() + _FIND_S
        while not (found := self._find()) and time.monotonic() < deadline:
            time.sleep(_POLL_S)
        return found

    def _wait_for_end(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while not self._over and time.monotonic() < deadline:
            time.sleep(_POLL_S)
            self._look()

    def _look(self) -> None:
        poll = self._once(look=True)
        self._gone = self._gone or poll.gone
        self.job = poll.job or self.job

    def _remove_files(self) -> None:
        if self.job.leaves:
            self._login.sure(("rm", "-f", "--", *self.job.leaves))
