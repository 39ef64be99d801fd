"""Batch systems that get the whole plan as one script: PBS, LSF and Flux.

What differs between them is a record of batch_systems.toml. A job's output is read from the file
that its script writes, which the login node and the first of the job's nodes must share.
"""

import re
import secrets
import shlex
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import cache, partial

import msgspec

from fabbench.execution.script import script
from fabbench.hosts.check import HostRelations, Progress, outcome_in
from fabbench.launchers import (
    Examined,
    Launcher,
    Rendering,
    RenderInput,
    notify,
    rendering_named,
)
from fabbench.launchers.batch_job import JobAllocation, longest_s, most_ranks
from fabbench.launchers.jobs import Job, Phase, await_end, follow
from fabbench.launchers.login_node import LoginNode, login
from fabbench.launchers.shared_options import QueueOptions, seconds_of
from fabbench.model import records
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Needs, Target
from fabbench.model.known_messages import Explanation
from fabbench.model.mappings import Names
from fabbench.model.messages import output_text, shorten
from fabbench.model.plan import Words

_POLL_S = 1.0
# What is printed after the lines of a file: the last of them may lack its end.
_END = "."
_LINES = f'tail -n "+$1" "$2" 2>/dev/null; printf "%s\\n" {_END}'


_outcome = partial(outcome_in, "fabbench.launchers", "queue_checks.toml")


class BatchSystem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One batch system: a record of batch_systems.toml, which describes the fields."""

    name: str
    title: str
    directive: str
    requests: tuple[str, ...]
    gpus: str
    queue: str
    account: str
    opening: str
    hosts: str
    job_id: str
    submit: Words
    submitted: str
    show: Words
    state: str
    pending: Names
    runs: Names
    unknown: str
    nodes: str
    why: str
    ended: str
    cancel: Words

    @property
    def output(self) -> str:
        """The file that a rendered script writes, as its shell has it: each job another."""
        return f"fabbench-{self.job_id}.out"


@cache
def batch_system(name: str) -> BatchSystem:
    """Return the record of a batch system."""
    known = records.load("fabbench.launchers", "batch_systems.toml", BatchSystem)
    return next(system for system in known if system.name == name)


class QueueJob(Job):
    """One job, from its submission to its end."""

    def __init__(
        self, system: BatchSystem, login_node: LoginNode, start_timeout_s: float | None
    ) -> None:
        self.system = system.title
        self.start_timeout_s = start_timeout_s
        self._record = system  # its commands, and patterns of what they print
        self._login = login_node
        self._id = ""  # Empty: it was not submitted
        # What the system showed of it last.
        self._shown = ""
        self._output = f"fabbench-{secrets.token_hex(6)}.out"
        # What the system itself writes of the job, or its script before it writes into `_output`
        self._own_output = f"{self._output}.own"
        # Whether its start is waited for: a short job may be over before it is looked at.
        self._awaited = True

    def __str__(self) -> str:
        return f"{self.system} job {self._id}"

    @override
    def submit(self, document: str) -> None:
        # An interrupt waits for the answer: a job whose number is not known cannot be cancelled.
        with ThreadPoolExecutor(1) as pool:
            pool.submit(self._send, document).result()
        where = self._login.name
        notify(f"{self} was submitted on {where}.")

    def _send(self, document: str) -> None:
        """Submit the document with an output file of its own, and keep the job's id."""
        # A file whose name is known here, and not only in the job
        batch_script = document.replace(self._record.output, self._output).encode()
        done = self._login.run(self._command(self._record.submit), stdin=batch_script)
        printed = "\n".join(done.out)
        match = re.search(self._record.submitted, printed, re.MULTILINE)
        if done.status or match is None:
            message = output_text((*done.err, *done.out))
            raise MachineError(
                f"{self.system} rejected the job: {message}.",
                hint="Change what it names: nodes, queue, account and time are options.",
            )
        self._id = match[1]

    @override
    def phase(self) -> Phase:
        done = self._login.run_idempotent(self._command(self._record.show))
        answer = "\n".join((*done.out, *done.err))
        # Of the record, `state` and `unknown` are patterns; `pending` and `runs` list states.
        if state := _first_group(self._record.state, answer):
            self._shown = answer
        if state in self._record.pending:
            return Phase.PENDING
        if state in self._record.runs:
            return Phase.RUNS
        if not state and not re.search(self._record.unknown, answer):
            return Phase.UNKNOWN
        # The job is over, or no longer known. While its start is awaited, one that has printed
        # something counts as started: `lines` then reads that.
        if self._awaited and self._lines_of(self._output):
            return Phase.RUNS
        return Phase.OVER

    def _command(self, words: Sequence[str]) -> Words:
        formatted = (word.format(job=self._id, own=self._own_output) for word in words)
        return tuple(formatted)

    @override
    def why_pending(self) -> Explanation | None:
        why = _first_group(self._record.why, self._shown)
        text = f"{self} waits: {shorten(why)}." if why else f"{self} waits in the queue."
        return Explanation(code="queue", text=text, advice="", final=False)

    @override
    def nodes(self) -> str:
        return _first_group(self._record.nodes, self._shown)

    @override
    def lines(self) -> Iterator[str]:
        self._awaited = False  # from here on, a job that is over counts as over
        yielded = 0
        is_over = False
        while not is_over:
            # Asked before the file is read: what it has after the end is all of it.
            is_over = self.phase() is Phase.OVER
            fresh = self._lines_of(self._output, after=yielded, whole=not is_over)
            yield from fresh
            yielded += len(fresh)
            if not fresh:
                time.sleep(_POLL_S)
        if not yielded:
            raise self.reason()
        if ended := _first_group(self._record.ended, self._shown):
            yield ended  # the system's own words, as `fabbench.evidence` knows them

    def _lines_of(self, path: str, after: int = 0, *, whole: bool = False) -> list[str]:
        """Return the lines of a file after the first so many; none: there is no such file.

        `whole`: without a last one that lacks its line break, since more of it may come.
        """
        start = str(after + 1)
        argv = ("sh", "-c", _LINES, "sh", start, path)
        *lines, last = self._login.run_idempotent(argv).out
        # `_END` is printed after the file, behind a last line that lacks its line break.
        if last != _END and not whole:
            lines.append(last.removesuffix(_END))
        return lines

    @override
    def reason(self) -> MachineError:
        said = output_text(self._lines_of(self._own_output))
        return MachineError(
            f"{self} ended before its script printed anything: {said}.",
            hint="Its first node must be able to write where it was submitted from: is it full?",
        )

    @override
    def cancel(self) -> None:
        self._awaited = False  # a job that is over now counts as over, whatever it has printed
        try:
            if self._id and self.phase() is not Phase.OVER:
                self._login.run_idempotent(self._command(self._record.cancel))
                await_end(self)
            self._login.run_idempotent(("rm", "-f", self._output, self._own_output))
        except MachineError as error:
            command = shlex.join(self._command(self._record.cancel))
            where = self._login.name
            raise MachineError(
                f"{self} may still exist: {error} Run {command} on {where}."
            ) from error


def _first_group(pattern: str, text: str) -> str:
    """Return what the first group of a pattern matches in a text; empty: nothing."""
    match = re.search(pattern, text, re.MULTILINE)
    return match[1].strip() if match else ""


class _OfBatchSystem:
    """What the format and the launcher of a batch system share."""

    def __init__(self, system: BatchSystem) -> None:
        self._system = system

    @property
    def name(self) -> str:
        """The name of the system."""
        return self._system.name


class QueueRendering(_OfBatchSystem, Rendering):
    """A script with the directives of a batch system."""

    options = QueueOptions

    @override
    def render(self, source: RenderInput) -> str:
        system = self._system
        requests = _requests(system, source)
        directives = "".join(f"{system.directive}{request}\n" for request in requests)
        opening = f"{system.opening}\n".lstrip()  # no line if the system needs none
        target = source.script_target(
            f"{system.hosts}\n",
            head=source.command + directives,
            # As it comes, and not when the job has ended
            opening=f'{opening}exec &>"{system.output}"\n',
        )
        return script(source.plan, target)


def _requests(system: BatchSystem, source: RenderInput) -> Iterator[str]:
    """Yield what the job of a plan requests, one directive each; empty ones are left out."""
    options = source.options_as(QueueOptions)
    plan = source.plan
    seconds = seconds_of(options.time) if options.time else longest_s(plan)
    tasks = most_ranks(plan)  # per node
    gpus = source.gpus
    values = {
        "name": f"fabbench-{plan.benchmark}",
        "nodes": plan.hosts,
        "tasks": tasks,
        "ranks": tasks * plan.hosts,
        "seconds": seconds,
        "minutes": -(-seconds // 60),  # rounded up
        # Parts of requests, as the system words them; empty: nothing is asked for
        "gpus": system.gpus.format(gpus=gpus) if gpus else "",
        "queue": system.queue.format(queue=options.queue) if options.queue else "",
        "account": system.account.format(account=options.account) if options.account else "",
    }
    for request in system.requests:
        if text := request.format(**values):
            yield text


class QueueLauncher(_OfBatchSystem, Launcher):
    """A launcher that submits a run to a batch system as one job, and follows it."""

    options = QueueOptions
    one_job = True
    open_starts_nothing = True

    @override
    @contextmanager
    def open(self, target: Target, needs: Needs) -> Iterator[JobAllocation]:
        """Take the nodes from the catalog: real ones are known once the job of a plan runs.

        Leaving it ends the job.
        """
        options = target.options_as(QueueOptions)
        rendering = rendering_named(self.name)
        inventory = rendering.inventory(target, needs)
        # On this machine no connection can break: it needs no agent.
        with login(target, follows=bool(options.login)) as login_node:
            job = QueueJob(self._system, login_node, options.start_timeout)
            allocation = JobAllocation(inventory, rendering, "job.sh", partial(follow, job))
            with closing(allocation):
                yield allocation

    @override
    def examine(self, target: Target, needs: Needs, *, deep: bool, progress: Progress) -> Examined:
        """Check whether the system has its submit command. No node is checked."""
        del needs, deep
        title = self._system.title
        progress(f"querying {title}", 0, 1)  # none done, of one step
        command = self._system.submit[0]
        with login(target) as login_node:
            found = login_node.run_idempotent(("sh", "-c", f"command -v {command}"))
            where = login_node.name
        result = "missing" if found.status else "found"
        outcome = _outcome(f"submit.{result}", command=command, where=where)
        check = outcome.of(title, "programs")
        return Examined(probes={}, relations=HostRelations(), checks=(check,))
