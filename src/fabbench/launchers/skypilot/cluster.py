"""A SkyPilot cluster: launched, and torn down no matter what happens.

Only this module converts SkyPilot's errors.
"""

import importlib
import os
import re
import sys
import time
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, redirect_stdout
from functools import cache
from io import TextIOBase
from itertools import islice
from typing import Any, Self

from fabbench.execution.background import in_background
from fabbench.launchers import notify
from fabbench.logs.launcher_prefixes import strip_colors
from fabbench.model.errors import FabbenchError, MachineError, RequestError
from fabbench.model.messages import single_spaced
from fabbench.model.values import frozen

_INSTALL = (
    "Run pip install 'fabbench[sky]', and SkyPilot's extra for the infrastructure: pip "
    "install 'skypilot[aws]'."
)
# Names of SkyPilot errors that mean an invalid request.
_INVALID_REQUESTS = frozenset({
    *("InvalidSkyPilotConfigError", "InvalidClusterNameError", "NotSupportedError", "ValueError"),
    "ResourcesMismatchError",
})  # fmt: skip
# The oldest release that fabbench is tested with; earlier ones lack parts of the API.
_MIN_RELEASE = (0, 14)
_RELEASE = re.compile(r"(\d+)\.(\d+)")
_MAX_CHARACTERS = 1500


class _SkyPilotOutput(TextIOBase):
    """Sends SkyPilot's own output to standard error, since standard output is for results."""

    def write(self, text: str) -> int:
        """Pass text on, without colors unless standard error is a terminal."""
        return sys.stderr.write(text if sys.stderr.isatty() else strip_colors(text))

    def flush(self) -> None:
        sys.stderr.flush()

    def close(self) -> None:
        """Do nothing: Python calls this at exit, when standard error no longer exists."""


STDERR = _SkyPilotOutput()


@cache
def sky() -> Any:
    """Load SkyPilot, which takes seconds. Raise MachineError if it is not installed."""
    try:
        # Its loggers keep the standard output that they find when they are created.
        with redirect_stdout(STDERR):
            loaded = importlib.import_module("sky")
    except ImportError as error:
        raise MachineError(f"SkyPilot cannot be loaded: {error}.", hint=_INSTALL) from error
    if not hasattr(loaded, "tail_logs"):
        raise MachineError(f"The package sky in {loaded.__file__} is not SkyPilot.", hint=_INSTALL)
    release = _RELEASE.match(str(getattr(loaded, "__version__", "")))
    if release and tuple(map(int, release.groups())) < _MIN_RELEASE:
        required = ".".join(map(str, _MIN_RELEASE))
        raise MachineError(
            f"SkyPilot {loaded.__version__} is installed, but {required} or later is required.",
            hint=_INSTALL,
        )
    return loaded


@contextmanager
def sky_request(failure: str, hint: str | None = None) -> Iterator[Any]:
    """Yield SkyPilot's library for one request.

    Raise MachineError or RequestError for its errors, after `failure`.
    """
    library = sky()
    try:
        with redirect_stdout(STDERR):
            yield library
    except FabbenchError:
        raise
    except Exception as error:
        class_names = {kind.__name__ for kind in type(error).__mro__}
        # A cluster that does not exist is a ValueError, too.
        invalid = class_names & _INVALID_REQUESTS and "ClusterDoesNotExist" not in class_names
        error_type = RequestError if invalid else MachineError
        raise error_type(f"{failure}: {error_text(error)}", hint=hint) from error


def error_text(error: BaseException) -> str:
    """Return the text of a SkyPilot error on one line."""
    text = single_spaced(strip_colors(str(error))) or type(error).__name__
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]} …"


def is_missing_cluster(error: BaseException | None) -> bool:
    """Return whether an error, or one of its causes, means that the cluster does not exist."""
    while error is not None:
        if type(error).__name__ == "ClusterDoesNotExist":
            return True
        error = error.__cause__
    return False


_TRIES = 3
_PAUSE_S = 2.0
_ACTIVE = ("PENDING", "RUNNING")  # States of a request to SkyPilot's API server


@frozen
class ClusterOptions:
    """Options of a cluster."""

    name: str
    idle_minutes: int | None = (
        None  # After how many idle minutes it tears itself down; None for never
    )
    keep: bool = False  # Whether it is left up at the end
    start_s: float | None = (
        None  # When to give up on a cluster that is not up; None for SkyPilot's own limit
    )
    inherited: tuple[
        str, ...
    ] = ()  # Variables that jobs inherit from fabbench, as SkyPilot secrets


class SkyCluster:
    """One cluster.

    Leaving it cancels the job and tears down the cluster, unless it existed before or `keep` is
    set.
    """

    def __init__(self, options: ClusterOptions) -> None:
        self.options = options
        self._stays = options.keep  # Whether it is left up
        self._touched = False  # Whether a request was made that may have created the cluster
        self._running: int | None = None  # The job whose end has not been seen

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave nothing behind, even if interrupted meanwhile."""
        try:
            self._leave()
        except KeyboardInterrupt:
            self._leave()
            raise

    def launch(self, document: str) -> int:
        """Create the cluster, submit a task, return the job's id.

        Raise RequestError (rejected), MachineError.
        """
        name = self.options.name
        with sky_request("SkyPilot rejects the task") as sky:
            task = sky.Task.from_yaml_str(document)
            if self.options.inherited:  # as --secret does
                task.update_secrets({name: os.environ[name] for name in self.options.inherited})
        with sky_request("SkyPilot does not answer") as sky:
            if sky.get(sky.status(cluster_names=[name])):
                self._stays = True
                notify(f"Using the existing cluster {name}; it is left up.")
        idle = self.options.idle_minutes
        options = {} if idle is None else {"idle_minutes_to_autostop": idle, "down": True}
        hint = "sky check shows which infrastructures SkyPilot can use."
        with sky_request(f"The cluster {name} cannot be launched", hint) as sky:
            self._touched = True  # from here on, there may be a cluster to tear down
            answer = self._up(sky, sky.launch(task, cluster_name=name, **options))
        job = answer[0] if isinstance(answer, tuple) else None  # with it comes a handle
        if not isinstance(job, int):
            raise MachineError(f"SkyPilot returned {answer!r} instead of a job id.")
        self._running = job
        return job

    def _up(self, sky: Any, request: Any) -> Any:
        """Wait until the cluster is up, showing SkyPilot's output meanwhile; return its answer.

        Raise SkyPilot's errors, and MachineError after our own limit: SkyPilot goes on then.
        """
        limit_s = self.options.start_s
        if limit_s is None:
            return sky.stream_and_get(request, output_stream=STDERR)
        answer: Future[Any] = Future()

        def wait() -> None:
            try:
                answer.set_result(sky.stream_and_get(request, output_stream=STDERR))
            except Exception as error:  # noqa: BLE001 - raised again in the waiting thread
                answer.set_exception(error)

        in_background(wait, name="launch")
        try:
            return answer.result(limit_s)
        except TimeoutError:
            if answer.done():  # SkyPilot's own error
                raise
        name = self.options.name
        raise MachineError(
            f"The cluster {name} cannot be launched: it was not up after {limit_s:g} s.",
            hint=f"Check the provisioning log while it is launched: sky logs --provision {name}.",
        )

    def lines(self, job: int) -> Generator[str, None, str]:
        """Yield a job's lines, prefixes included; return its status (``SUCCEEDED``)."""
        for line in self._tail(job):
            yield line
            if (status := final_status(line)) is not None:
                self._running = None
                return status
        # The log ended without the line that has the status.
        with sky_request(f"SkyPilot does not report the state of job {job}") as sky:
            states = sky.get(sky.job_status(self.options.name, job_ids=[job]))
            self._running = None
            return str(getattr(states.get(job), "value", "gone"))

    def _tail(self, job: int) -> Iterator[str]:
        """Follow the log of a job. Lines that came before a broken connection are not repeated."""
        yielded = 0
        for tries in range(_TRIES):
            try:
                # Each try reads the log from its beginning.
                for line in islice(self._stream(job), yielded, None):
                    yielded += 1
                    yield line
            except MachineError:
                if tries == _TRIES - 1:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return

    def _stream(self, job: int) -> Iterator[str]:
        """Yield the lines of a job's log, from its beginning. SkyPilot yields whole lines."""
        failure = f"The log of job {job} on {self.options.name} cannot be followed"
        with sky_request(failure) as sky:
            lines = sky.tail_logs(self.options.name, job, follow=True, preload_content=False)
        while True:
            # The redirection for SkyPilot must not be in force while the caller handles a line.
            with sky_request(failure):
                line = next(lines, None)
            if line is None:
                return
            yield from strip_colors(line).splitlines()  # none if it is empty, several at a \r

    def cancel(self) -> None:
        """Cancel the running job, if there is one. A failure is only reported."""
        job = self._running
        if job is None:
            return
        self._running = None
        name = self.options.name
        notify(f"Cancelling job {job} on {name}.")
        try:
            with sky_request(f"Job {job} on {name} could not be cancelled") as sky:
                sky.get(sky.cancel(name, job_ids=[job]))
        except FabbenchError as error:
            notify(str(error))

    def _leave(self) -> None:
        """Cancel the job if the cluster stays, else tear the cluster down."""
        name = self.options.name
        if not self._touched:
            return
        if self._stays:
            self.cancel()
            notify(f"The cluster {name} is still up. sky down {name} tears it down.")
            return
        # A job ends with its cluster: nothing that is closed later should cancel it.
        self._running = None
        notify(f"Tearing down the cluster {name}.")
        self._tear_down()
        self._touched = False

    def _tear_down(self) -> None:
        """Tear it down, with several tries: it costs money as long as it is up."""
        name = self.options.name
        for tries_left in reversed(range(_TRIES)):
            try:
                self._down()
            except MachineError as error:
                if is_missing_cluster(error):
                    return
                if not tries_left:
                    hint = f"Run sky down {name}, and check sky status."
                    raise MachineError(f"{error} It may still be up.", hint=hint) from error
                time.sleep(_PAUSE_S)
            else:
                return

    def _down(self) -> None:
        """Cancel the API server's requests for the cluster, such as its launch; tear it down."""
        name = self.options.name
        with sky_request(f"The cluster {name} could not be torn down") as sky:
            requests = sky.api_status(cluster_name=name)
            active = [each.request_id for each in requests if each.status in _ACTIVE]
            if active:
                sky.get(sky.api_cancel(active, silent=True))
            sky.get(sky.down(name))


_FINISHED = re.compile(r"\W{0,3}Job finished \(status: (\w+)\)\.")
_NODE = re.compile(r"\((?=[^()]*pid=\d)[^()]*+\) ")
_ECHO = re.compile(
    r"ERROR: Job \d+ failed with return code"
    r"|srun: error: .*: (?:Exited with exit code \d+|Terminated|Killed)$"
)


def final_status(line: str) -> str | None:
    """Return the status in the last line of a job's log; None for any other line."""
    match = _FINISHED.fullmatch(line.strip())
    return match[1] if match else None


def node_prefix(line: str) -> str:
    """Return SkyPilot's prefix of a node's line; empty for a line that is not from a node."""
    match = _NODE.match(line)
    return match[0] if match else ""


def repeats_end(line: str) -> bool:
    """Return whether a line only repeats how the job's script ended."""
    return bool(_ECHO.match(line.strip()))


def failure_line(number: int, status: str, last: str) -> str:
    """Return the log's line on a failed job, for `fabbench.evidence.known_errors`.

    `last` is the last line of the job itself; empty: it printed nothing.
    """
    reason = f": {last}" if last else "."
    return f"fabbench: SkyPilot ended job {number} as {status}{reason}"
