"""Process 1 of a pod.

It ends when fabbench is not heard of, and reaps what programs leave behind.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fabbench.launchers.kubernetes.manifests import watchdog_script
from tests.support.local_runs import eventually
from tests.support.needed import need

pytestmark = pytest.mark.local


@contextmanager
def kept(
    folder: Path, lease: int, *, before: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    command = [
        *before,
        "/bin/sh",
        "-c",
        watchdog_script(),
        "fabbench",
        f"{folder}-beat",
        str(lease),
    ]
    env = {**os.environ, "PATH": f"{folder.parent / 'bin'}:{os.environ['PATH']}"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def clock(folder: Path, second: str) -> None:
    """Let `sleep 1` of a pod be these commands."""
    sleep = folder / "bin/sleep"
    sleep.parent.mkdir()
    sleep.write_text(f"#!/bin/sh\n{second}\n")
    sleep.chmod(0o755)


def children(pid: int, name: str) -> list[str]:
    """Return the states of all processes of a name below one."""
    below, found = {pid}, []
    for path in sorted(Path("/proc").glob("[0-9]*/stat"), key=lambda path: int(path.parent.name)):
        try:
            own, _, rest = path.read_text().partition(" (")
        except OSError:
            continue  # it has just ended
        command, _, fields = rest.rpartition(") ")
        state, parent = fields.split()[:2]
        if int(parent) in below:
            below.add(int(own))
            found += [state] if command == name else []
    return found


def test_the_script_is_portable() -> None:
    need("shellcheck")
    done = subprocess.run(
        ["shellcheck", "-s", "sh", "-"],
        input=watchdog_script(),
        text=True,
        stdout=subprocess.PIPE,
        check=False,
    )
    assert done.stdout == ""


def test_a_pod_ends_after_its_last_beat(tmp_path: Path) -> None:
    """The clock is `sleep`.

    It counts the seconds, and there is a beat in each of the first eight.
    """
    seconds = tmp_path / "seconds"
    clock(tmp_path, f"echo >>{seconds}; [ $(wc -l <{seconds}) -gt 8 ] || : >{tmp_path}/f-beat")
    with kept(tmp_path / "f", 3) as process:
        assert process.wait(60) == 75
        assert process.stderr
        assert process.stderr.read() == "fabbench: No heartbeat from fabbench for 3 s.\n"
    assert len(seconds.read_text()) == 8 + 3


def test_a_pod_that_is_told_to_end_does_so_at_once(tmp_path: Path) -> None:
    """In the middle of a second that never ends."""
    second = tmp_path / "second"
    clock(tmp_path, f"echo $$ >{second}.new; mv {second}.new {second}; exec tail -f /dev/null")
    with kept(tmp_path / "f", 60) as process:
        assert eventually(second.exists)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 143
    os.kill(int(second.read_text()), signal.SIGKILL)


@pytest.mark.lab
@pytest.mark.slow
def test_what_programs_leave_behind_is_reaped(tmp_path: Path) -> None:
    """In a namespace of its own, as in a pod: it would stay as a zombie."""
    (tmp_path / "orphan").symlink_to("/bin/sleep")
    with kept(tmp_path / "f", 60, before=("unshare", "--pid", "--fork", "--kill-child")) as process:
        assert eventually(lambda: children(process.pid, "sh"))
        (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        enter = [
            "nsenter",
            "--target",
            first,
            "--pid",
            "sh",
            "-c",
            f"{tmp_path}/orphan 0.2 & exit 0",
        ]
        subprocess.run(enter, check=True)
        assert eventually(lambda: children(process.pid, "orphan"))
        assert eventually(lambda: children(process.pid, "orphan") == [])
