"""Process 1 of a pod: it ends when fabbench is not heard of, and lets mpirun in by ssh."""

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
from tests.support.sshd import free_port

pytestmark = pytest.mark.local


@contextmanager
def kept(
    folder: Path, lease: int, *, agent: str = "exec", port: int = 0, before: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    arguments = [str(lease), agent, str(port), str(folder), str(folder.parent / "keys")]
    command = [*before, "/bin/sh", "-c", watchdog_script(), "fabbench", *arguments]
    path = f"{folder.parent / 'bin'}:{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "SAID": 'it\'s "here" $HOME'}
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
        ["shellcheck", "-s", "sh", "-"], input=watchdog_script(), text=True, stdout=subprocess.PIPE, check=False
    )
    assert done.stdout == ""


def test_a_pod_ends_after_its_last_beat(tmp_path: Path) -> None:
    """The clock is `sleep`: it counts the seconds, and there is a beat in each of the first eight."""
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


def test_a_key_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with kept(tmp_path / "f", 60, agent="ssh") as process:
        assert process.wait(60) == 126
        assert process.stderr
        assert "cannot read" in process.stderr.read()


@pytest.mark.lab
@pytest.mark.slow
def test_programs_come_in_by_ssh_with_the_pods_environment(tmp_path: Path) -> None:
    """In namespaces of its own and without new privileges, as in a pod; root is locked, as in some images."""
    (tmp_path / "orphan").symlink_to("/bin/sleep")
    keys, folder, port = tmp_path / "keys", tmp_path / "f", free_port()
    keys.mkdir(mode=0o700)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / "key"], check=True)
    (keys / "authorized_keys").write_text(f"restrict {(keys / 'key.pub').read_text()}")
    shadow = tmp_path / "shadow"
    shadow.write_text("root:!locked:19000:0:99999:7:::\nsshd:!:19000::::::\n")
    own = 'mount --bind "$0" /etc/shadow && exec setpriv --no-new-privs "$@"'
    before = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", own, str(shadow))
    with kept(folder, 30, agent="ssh", port=port, before=before) as process:
        host_key = folder / "host_key.pub"
        assert eventually(lambda: (folder / "ssh_config").exists() or process.poll() is not None)
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key.read_text()}")
        ssh: list[str | Path] = ["ssh", "-F", folder / "ssh_config", "-o", "ConnectionAttempts=10", "127.0.0.1"]
        command = f'printf "%s\\n" "$SAID"; sh -c "{tmp_path}/orphan 0.2 & exit 0"; exit 7'
        done = subprocess.run([*ssh, command], text=True, stdout=subprocess.PIPE, timeout=120, check=False)
        assert (done.stdout, done.returncode) == ('it\'s "here" $HOME\n', 7)
        assert shadow.read_text().splitlines()[0].startswith("root:*locked:")
        assert eventually(lambda: children(process.pid, "orphan") == [])  # it would stay as a zombie
