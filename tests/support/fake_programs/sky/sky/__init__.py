"""Stands in for SkyPilot's library.

A cluster is this machine, and a job is the task's run text in a bash.

What it knows is in the folder SKY_STANDIN: `cluster` while there is one, and `calls`, a line for
each call. Files there let it misbehave: `launch` has the error that a launch ends with, `down` how
many times tearing down fails, `break` after how many lines a log breaks off once, `ended` the
status of a job that did not end well; with `hang` a launch takes for ever, with `mute` a log has no
last line. The process of the newest job is in `pid`.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

__version__ = os.environ.get("SKY_VERSION", "0.14.1")
_FOLDER = Path(os.environ["SKY_STANDIN"])
_JOBS: dict[int, "subprocess.Popen[bytes]"] = {}


class ResourcesUnavailableError(Exception):
    pass


class ClusterDoesNotExist(ValueError):  # noqa: N818 - as SkyPilot calls it
    pass


class JobStatus(Enum):
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"
    FAILED_DRIVER = "FAILED_DRIVER"


class Task:
    def __init__(self, text: str) -> None:
        import yaml

        self.config: dict[str, Any] = yaml.safe_load(text)
        self.envs: dict[str, str] = dict(self.config.get("envs", {}))
        self.secrets: dict[str, str] = {}

    @classmethod
    def from_yaml_str(cls, text: str) -> "Task":
        return cls(text)

    def update_envs(self, envs: dict[str, str]) -> None:
        self.envs |= envs

    def update_secrets(self, secrets: dict[str, str]) -> None:
        self.secrets |= secrets
        with (_FOLDER / "secrets").open("a") as file:
            file.write("".join(f"{name}\n" for name in secrets))


def _call(*words: object) -> None:
    with (_FOLDER / "calls").open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def _set(name: str) -> str:
    file = _FOLDER / name
    return file.read_text() if file.exists() else ""


def status(cluster_names: list[str]) -> Any:
    found = [name for name in cluster_names if _set("cluster") == name]
    return lambda: [{"name": name} for name in found]


def launch(task: Task, cluster_name: str, **options: Any) -> Any:
    _call("launch", cluster_name, *(f"{key}={value}" for key, value in sorted(options.items())))
    print(f"Running on cluster: {cluster_name}")

    def answer() -> Any:
        while (_FOLDER / "hang").exists():
            time.sleep(0.05)
        if error := _set("launch"):
            raise ResourcesUnavailableError(error)
        (_FOLDER / "cluster").write_text(cluster_name)
        return _submit(task)

    return answer


def _submit(task: Task) -> tuple[int, object]:
    number = len(_JOBS) + 1
    variables = {"SKYPILOT_NODE_RANK": "0", "SKYPILOT_NODE_IPS": "127.0.0.1"}
    with _log_of(number).open("w") as log:
        _JOBS[number] = subprocess.Popen(
            ["bash", "-c", task.config["run"]],
            env={**os.environ, **task.envs, **task.secrets, **variables},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    (_FOLDER / "pid").write_text(str(_JOBS[number].pid))
    return number, object()


def _log_of(number: int) -> Path:
    return _FOLDER / f"log-{number}"


def _end_jobs() -> None:
    for job in _JOBS.values():
        with suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGTERM)
        job.wait()


def _lines(number: int) -> Iterator[str]:
    """Yield the lines that a job prints until it has ended."""
    line = ""
    with _log_of(number).open() as log:
        while True:
            has_ended = _JOBS[number].poll() is not None
            line += log.readline()
            if line.endswith("\n"):
                yield line.rstrip("\n")
                line = ""
            elif has_ended:
                return
            else:
                time.sleep(0.05)


def get(request: Any) -> Any:
    return request()


def stream_and_get(request: Any, output_stream: Any = None) -> Any:
    output_stream.write("\x1b[2mLaunching.\x1b[0m\n")
    return request()


def tail_logs(
    cluster_name: str, job_id: int, *, follow: bool, preload_content: bool
) -> Iterator[str | None]:
    assert follow
    assert not preload_content
    _call("logs", cluster_name, job_id)
    yield "\x1b[2m└── \x1b[0mJob started. Streaming logs...\n"
    for number, line in enumerate(_lines(job_id)):
        if _set("break") == str(number):
            (_FOLDER / "break").unlink()
            raise ConnectionError("the stream broke")
        yield f"\x1b[36m(task, pid=1)\x1b[0m {line}\n"
    if code := _JOBS[job_id].wait():
        yield "srun: error: node0: task 0: Exited with exit code 4\n"
        yield (f"ERROR: \x1b[31mJob {job_id} failed with return code list:\x1b[0m [{code}] \n")
    if not (_FOLDER / "mute").exists():
        yield f"\x1b[32m✓ Job finished (status: {_status(job_id).value}).\x1b[0m\n"
    yield None


def _status(job_id: int) -> JobStatus:
    return JobStatus(_set("ended") or "FAILED") if _JOBS[job_id].wait() else JobStatus.SUCCEEDED


def job_status(cluster_name: str, job_ids: list[int]) -> Any:
    _call("job_status", cluster_name)
    return lambda: {number: _status(number) for number in job_ids}


def cancel(cluster_name: str, job_ids: list[int]) -> Any:
    _call("cancel", cluster_name, *job_ids)
    return _end_jobs


def api_status(cluster_name: str) -> list[Any]:
    hanging = (_FOLDER / "hang").exists()
    return [SimpleNamespace(request_id="r1", status="RUNNING" if hanging else "SUCCEEDED")]


def api_cancel(request_ids: list[str], *, silent: bool) -> Any:
    assert silent
    _call("api_cancel", *request_ids)
    return lambda: None


def down(cluster_name: str) -> Any:
    _call("down", cluster_name)

    def answer() -> None:
        if left := int(_set("down") or 0):
            (_FOLDER / "down").write_text(str(left - 1))
            raise RuntimeError("the cloud said no")
        if _set("cluster") != cluster_name:
            raise ClusterDoesNotExist(f"Cluster {cluster_name} does not exist.")
        _end_jobs()
        (_FOLDER / "cluster").unlink()

    return answer


print("SkyPilot says something as it is loaded.", file=sys.stdout)
