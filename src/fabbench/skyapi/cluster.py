"""A cluster of SkyPilot's: launched with a task, given more of them, and torn down. Whatever happens."""

import time
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Self

from fabbench.errors import FabbenchError, MachineError
from fabbench.prefixes import uncoloured
from fabbench.skyapi.ending import Ended, ended
from fabbench.skyapi.library import ASIDE, asking, is_gone
from fabbench.telling import tell

_TRIES, _PAUSE_S = 3, 2.0
_ACTIVE = ("PENDING", "RUNNING")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """What a cluster is to be."""

    name: str
    idle_minutes: int | None = None
    """After how many idle minutes it tears itself down; None: never."""
    keep: bool = False
    """Whether it is left up at the end."""
    start_s: float | None = None
    """After how many seconds a cluster that is not up is given up; None: when SkyPilot does."""


class Cluster:
    """One cluster. Use it as a context: leaving it cancels what goes on there, and tears it down.

    A cluster that was there before stays, as does one that is to be kept.
    """

    def __init__(self, wish: Wish) -> None:
        self.wish = wish
        self._stays = wish.keep
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
        """Make the cluster, and submit a task there. Gives the job's number.

        Raises RequestError for a task that SkyPilot refuses, MachineError where there are no such machines.
        """
        name = self.wish.name
        with asking("SkyPilot refuses the task") as sky:
            task = _task(sky, document, env)
        with asking("SkyPilot does not answer") as sky:
            if sky.get(sky.status(cluster_names=[name])):
                self._stays = True
                tell(f"Using the cluster {name}, which is there already and stays.")
        idle = self.wish.idle_minutes
        options = {} if idle is None else {"idle_minutes_to_autostop": idle, "down": True}
        hint = "sky check says which places SkyPilot can use."
        with asking(f"The cluster {name} cannot be launched", hint) as sky:
            self._touched = True
            request = sky.launch(task, cluster_name=name, **options)
            return self._submitted(self._up(sky, request))

    def submit(self, document: str, env: Mapping[str, str]) -> int:
        """Submit a task to the cluster. Gives the job's number. Raises MachineError."""
        with asking(f"The cluster {self.wish.name} takes no more jobs") as sky:
            request = sky.exec(_task(sky, document, env), cluster_name=self.wish.name)
            return self._submitted(sky.stream_and_get(request, output_stream=ASIDE))

    def _up(self, sky: Any, request: Any) -> Any:
        """Wait until the cluster is up, and show SkyPilot's words meanwhile. Raises SkyPilot's errors."""
        limit_s = self.wish.start_s
        if limit_s is None:
            return sky.stream_and_get(request, output_stream=ASIDE)
        answers: SimpleQueue[Any] = SimpleQueue()
        Thread(target=_answer, args=(answers, sky, request), daemon=True).start()
        try:
            answer = answers.get(timeout=limit_s)
        except Empty:
            raise MachineError(
                f"The cluster {self.wish.name} cannot be launched: it was not up after {limit_s:g} s.",
                hint=f"See what holds it up: sky logs --provision {self.wish.name}, while it is launched.",
            ) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _submitted(self, answer: Any) -> int:
        job = answer[0] if isinstance(answer, tuple) else None
        if not isinstance(job, int):
            raise MachineError(f"SkyPilot gave no number of a job, but {answer!r}.")
        self._running = job
        return job

    def lines(self, job: int) -> Generator[str, None, Ended]:
        """Give the lines of a job as they come, with SkyPilot's prefixes, and how it ended.

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
            with asking(f"SkyPilot does not say what became of job {job}") as sky:
                states = sky.get(sky.job_status(self.wish.name, job_ids=[job]))
                self._running = None
                return Ended(str(getattr(states.get(job), "value", "gone")))
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
        what = f"The log of job {job} on {self.wish.name} cannot be followed"
        with asking(what) as sky:
            chunks = sky.tail_logs(self.wish.name, job, follow=True, preload_content=False)
        while True:
            # Nothing of SkyPilot's may be in force while others go on with a line.
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
        tell(f"Cancelling job {job} on {self.wish.name}.")
        try:
            with asking(f"Job {job} on {self.wish.name} could not be cancelled") as sky:
                sky.get(sky.cancel(self.wish.name, job_ids=[job]))
        except FabbenchError as error:
            tell(str(error))

    # ------------------------------------------------------------ the end

    def _leave(self) -> None:
        name = self.wish.name
        if not self._touched:
            return
        if self._stays:
            self.cancel()
            tell(f"The cluster {name} is still up. sky down {name} tears it down.")
            return
        # A job ends with its cluster: nothing that is closed later is to cancel it.
        self._running = None
        tell(f"Tearing down the cluster {name}.")
        for tries in range(_TRIES):
            try:
                self._down()
            except MachineError as error:
                if is_gone(error):
                    break
                if tries == _TRIES - 1:
                    hint = f"Try sky down {name}, and see what sky status says."
                    raise MachineError(f"{error} It may still be up.", hint=hint) from error
                time.sleep(_PAUSE_S)
            else:
                break
        self._touched = False

    def _down(self) -> None:
        """End what the API server still does for the cluster, such as launching it, and then the cluster."""
        name = self.wish.name
        with asking(f"The cluster {name} could not be torn down") as sky:
            requests = sky.api_status(cluster_name=name)
            active = [each.request_id for each in requests if each.status in _ACTIVE]
            if active:
                sky.get(sky.api_cancel(active, silent=True))
            sky.get(sky.down(name))


def _task(sky: Any, document: str, env: Mapping[str, str]) -> Any:
    """Read a task as SkyPilot does, and set variables as --env does."""
    task = sky.Task.from_yaml_str(document)
    task.update_envs(dict(env))
    return task


def _answer(answers: SimpleQueue[Any], sky: Any, request: Any) -> None:
    """Hand over what SkyPilot answers, be it an error."""
    try:
        answers.put(sky.stream_and_get(request, output_stream=ASIDE))
    except Exception as error:  # noqa: BLE001 - it is raised again where somebody waits
        answers.put(error)
