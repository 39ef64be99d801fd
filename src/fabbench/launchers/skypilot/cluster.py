"""A cluster of SkyPilot: launched with a task, given more of them, and torn down, whatever happens.

SkyPilot's own library is an optional one. Its errors become ours here, and nowhere else.
"""

import functools
import importlib
import os
import re
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import TextIOBase
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, Self

from fabbench.launchers import notify
from fabbench.logs.launcher_prefixes import uncoloured
from fabbench.model.errors import FabbenchError, MachineError, RequestError

_INSTALL = (
    "Run pip install 'fabbench[sky]', and SkyPilot's extra for the infrastructure: pip install "
    "'skypilot[aws]'."
)
_REQUESTS = frozenset({
    *("InvalidSkyPilotConfigError", "InvalidClusterNameError", "NotSupportedError", "ValueError"),
    "ResourcesMismatchError",
})  # fmt: skip
"""Names of SkyPilot errors that mean an invalid request."""
_OLDEST = (0, 14)
"""The release that fabbench is tried with; those before have not all of it."""
_RELEASE = re.compile(r"(\d+)\.(\d+)")
_LONGEST = 1500


class _Aside(TextIOBase):
    """Where SkyPilot's own words go: to standard error, as standard output is for results."""

    def write(self, text: str) -> int:
        """Pass text on, without colours where nobody sees them."""
        return sys.stderr.write(text if sys.stderr.isatty() else uncoloured(text))

    def flush(self) -> None:
        """Nothing is kept back."""
        sys.stderr.flush()

    def close(self) -> None:
        """Nothing is to be closed: Python does it at its end, where there is no standard error any more."""


ASIDE = _Aside()


@functools.cache
def sky() -> Any:
    """Load SkyPilot, which takes seconds. Raise MachineError where it is not installed."""
    try:
        # Its loggers keep the standard output that they find when they are made.
        with redirect_stdout(ASIDE):
            loaded = importlib.import_module("sky")
    except ImportError as error:
        raise MachineError(f"SkyPilot cannot be loaded: {error}.", hint=_INSTALL) from error
    if not hasattr(loaded, "tail_logs"):
        raise MachineError(f"The package sky in {loaded.__file__} is not SkyPilot.", hint=_INSTALL)
    release = _RELEASE.match(str(getattr(loaded, "__version__", "")))
    if release and tuple(map(int, release.groups())) < _OLDEST:
        wanted = ".".join(map(str, _OLDEST))
        raise MachineError(
            f"SkyPilot {loaded.__version__} is installed, but {wanted} or later is required.", hint=_INSTALL
        )
    return loaded


@contextmanager
def asking(what: str, hint: str | None = None) -> Iterator[Any]:
    """Yield SkyPilot's library for one request. Raise MachineError, or RequestError, for its errors.

    `what` begins a sentence: "The cluster x cannot be launched".
    """
    library = sky()
    try:
        with redirect_stdout(ASIDE):
            yield library
    except (FabbenchError, GeneratorExit):
        raise
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        wrong = kinds & _REQUESTS and "ClusterDoesNotExist" not in kinds
        kind = RequestError if wrong else MachineError
        raise kind(f"{what}: {told(error)}", hint=hint) from error


def told(error: BaseException) -> str:
    """Return the text of a SkyPilot error on one line."""
    text = " ".join(uncoloured(str(error)).split()) or type(error).__name__
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def is_gone(error: BaseException | None) -> bool:
    """Return whether an error, or what it comes from, says that there is no such cluster."""
    while error is not None:
        if type(error).__name__ == "ClusterDoesNotExist":
            return True
        error = error.__cause__
    return False


_FINE = "SUCCEEDED"
_TRIES, _PAUSE_S = 3, 2.0
_ACTIVE = ("PENDING", "RUNNING")


class JobEnd(NamedTuple):
    """How a job ended."""

    status: str
    """As SkyPilot calls it: ``SUCCEEDED``, ``FAILED``, ``FAILED_SETUP``, ``CANCELLED``."""

    @property
    def fine(self) -> bool:
        """Return whether everything went well."""
        return self.status == _FINE


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterOptions:
    """What a cluster is to be."""

    name: str
    idle_minutes: int | None = None
    """After how many idle minutes it tears itself down; None: never."""
    keep: bool = False
    """Whether it is left up at the end."""
    start_s: float | None = None
    """After how many seconds a cluster that is not up is given up; None: when SkyPilot does."""
    inherited: tuple[str, ...] = ()
    """Variables that jobs get as fabbench has them: SkyPilot secrets."""


class SkyCluster:
    """One cluster. Use it as a context: leaving it cancels what goes on there, and tears it down.

    A cluster that was there before stays, as does one that is to be kept.
    """

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self._stays = options.keep
        self._touched = False
        """Whether anything was asked of SkyPilot that may have made the cluster."""
        self._running: int | None = None
        """The job that has not been seen to end."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind. An interrupt meanwhile does not keep it from that."""
        try:
            self._leave()
        except KeyboardInterrupt:
            self._leave()
            raise

    # ------------------------------------------------------------ jobs

    def launch(self, document: str, env: Mapping[str, str]) -> int:
        """Make the cluster, and submit a task there. Return the job's number.

        Raise RequestError for a task that SkyPilot refuses, MachineError where there are no such machines.
        """
        name = self.options.name
        with asking("SkyPilot rejects the task") as sky:
            task = _task(sky, document, env, self.options.inherited)
        with asking("SkyPilot does not answer") as sky:
            if sky.get(sky.status(cluster_names=[name])):
                self._stays = True
                notify(f"Using the existing cluster {name}; it is left up.")
        idle = self.options.idle_minutes
        options = {} if idle is None else {"idle_minutes_to_autostop": idle, "down": True}
        hint = "sky check shows which infrastructures SkyPilot can use."
        with asking(f"The cluster {name} cannot be launched", hint) as sky:
            self._touched = True
            request = sky.launch(task, cluster_name=name, **options)
            return self._submitted(self._up(sky, request))

    def submit(self, document: str, env: Mapping[str, str]) -> int:
        """Submit a task to the cluster, and return the job's number. Raise MachineError."""
        with asking(f"The cluster {self.options.name} accepts no more jobs") as sky:
            request = sky.exec(
                _task(sky, document, env, self.options.inherited), cluster_name=self.options.name
            )
            return self._submitted(sky.stream_and_get(request, output_stream=ASIDE))

    def _up(self, sky: Any, request: Any) -> Any:
        """Wait until the cluster is up, and show SkyPilot's words meanwhile. Raises SkyPilot's errors."""
        limit_s = self.options.start_s
        if limit_s is None:
            return sky.stream_and_get(request, output_stream=ASIDE)
        answers: SimpleQueue[Any] = SimpleQueue()
        Thread(target=_answer, args=(answers, sky, request), daemon=True).start()
        try:
            answer = answers.get(timeout=limit_s)
        except Empty:
            raise MachineError(
                f"The cluster {self.options.name} cannot be launched: it was not up after {limit_s:g} s.",
                hint="Check the provisioning log while it is launched: sky logs --provision "
                f"{self.options.name}.",
            ) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _submitted(self, answer: Any) -> int:
        job = answer[0] if isinstance(answer, tuple) else None
        if not isinstance(job, int):
            raise MachineError(f"SkyPilot returned {answer!r} instead of a job id.")
        self._running = job
        return job

    def lines(self, job: int) -> Generator[str, None, JobEnd]:
        """Yield the lines of a job as they come, with SkyPilot's prefixes, and how it ended.

        Closing it early, or an exception through it, cancels the job.
        """
        last = ""
        try:
            for line in self._tail(job):
                yield line
                last = line if line.strip() else last
                if (end := ended(line)) is not None:
                    self._running = None
                    return end
            with asking(f"SkyPilot does not report the state of job {job}") as sky:
                states = sky.get(sky.job_status(self.options.name, job_ids=[job]))
                self._running = None
                return JobEnd(str(getattr(states.get(job), "value", "gone")))
        finally:
            self.cancel()

    def _tail(self, job: int) -> Iterator[str]:
        """Follow the log of a job. What had come before a broken connection is not given again."""
        given = 0
        for tries in range(_TRIES):
            seen = 0
            try:
                for line in self._stream(job):
                    seen += 1
                    if seen > given:
                        given = seen
                        yield line
            except MachineError:
                if tries == _TRIES - 1:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return

    def _stream(self, job: int) -> Iterator[str]:
        what = f"The log of job {job} on {self.options.name} cannot be followed"
        with asking(what) as sky:
            chunks = sky.tail_logs(self.options.name, job, follow=True, preload_content=False)
        while True:
            # No setting of SkyPilot may be in force while others go on with a line.
            with asking(what):
                chunk = next(chunks, None)
            if chunk is None:
                return
            yield from uncoloured(chunk).splitlines()

    def cancel(self) -> None:
        """Cancel the job that goes on, if there is one. Where that fails, it is only said."""
        job, self._running = self._running, None
        if job is None:
            return
        notify(f"Cancelling job {job} on {self.options.name}.")
        try:
            with asking(f"Job {job} on {self.options.name} could not be cancelled") as sky:
                sky.get(sky.cancel(self.options.name, job_ids=[job]))
        except FabbenchError as error:
            notify(str(error))

    # ------------------------------------------------------------ the end

    def _leave(self) -> None:
        name = self.options.name
        if not self._touched:
            return
        if self._stays:
            self.cancel()
            notify(f"The cluster {name} is still up. sky down {name} tears it down.")
            return
        # A job ends with its cluster: nothing that is closed later is to cancel it.
        self._running = None
        notify(f"Tearing down the cluster {name}.")
        for tries in range(_TRIES):
            try:
                self._down()
            except MachineError as error:
                if is_gone(error):
                    break
                if tries == _TRIES - 1:
                    hint = f"Run sky down {name}, and check sky status."
                    raise MachineError(f"{error} It may still be up.", hint=hint) from error
                time.sleep(_PAUSE_S)
            else:
                break
        self._touched = False

    def _down(self) -> None:
        """End what the API server still does for the cluster, such as launching it, and then the cluster."""
        name = self.options.name
        with asking(f"The cluster {name} could not be torn down") as sky:
            requests = sky.api_status(cluster_name=name)
            active = [each.request_id for each in requests if each.status in _ACTIVE]
            if active:
                sky.get(sky.api_cancel(active, silent=True))
            sky.get(sky.down(name))


def _task(sky: Any, document: str, env: Mapping[str, str], inherited: Sequence[str]) -> Any:
    """Read a task as SkyPilot does, and set variables as --env does, and as --secret."""
    task = sky.Task.from_yaml_str(document)
    task.update_envs(dict(env))
    if inherited:
        task.update_secrets({name: os.environ[name] for name in inherited})
    return task


def _answer(answers: SimpleQueue[Any], sky: Any, request: Any) -> None:
    """Hand over what SkyPilot answers, be it an error."""
    try:
        answers.put(sky.stream_and_get(request, output_stream=ASIDE))
    except Exception as error:  # noqa: BLE001 - it is raised again where somebody waits
        answers.put(error)


# ---------------------------------------------------------------- what a job's log says of its end

_FINISHED = re.compile(r"\W{0,3}Job finished \(status: (\w+)\)\.")
_NODE = re.compile(r"\([^()]*pid=\d+[^()]*\) ")
_ECHO = re.compile(
    r"ERROR: Job \d+ failed with return code"
    r"|srun: error: .*: (?:Exited with exit code \d+|Terminated|Killed)$"
)


def ended(line: str) -> JobEnd | None:
    """Read the last line of a job's log; None for any other line."""
    match = _FINISHED.fullmatch(line.strip())
    return JobEnd(match[1]) if match else None


def prefix(line: str) -> str:
    """Return SkyPilot's prefix of a node's line; empty where a line has none, and so is no node's."""
    match = _NODE.match(line)
    return match[0] if match else ""


def echo(line: str) -> bool:
    """Return whether a line says no more than that the job's script ended as it did."""
    return bool(_ECHO.match(line.strip()))


def failed(number: int, end: JobEnd, last: str) -> str:
    """Write the line that says in a log that a job failed, which `fabbench.evidence.known_errors` knows.

    `last` is the last that the job printed.
    """
    return f"fabbench: SkyPilot ended job {number} as {end.status}{f': {last}' if last else '.'}"
