"""Process 1 of a pod: it ends when fabbench is not heard of, and lets mpirun in by ssh."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from fabbench.pods.workload import keeper
from remote_sshd import free_port

pytestmark = pytest.mark.local


@contextmanager
def kept(
    folder: Path, lease: int, *, agent: str = "exec", port: int = 0, before: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    arguments = [str(lease), agent, str(port), str(folder), str(folder.parent / "keys")]
    command = [*before, "/bin/sh", "-c", keeper(), "fabbench", *arguments]
    env = {**os.environ, "SAID": 'it\'s "here" $HOME'}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as process:
        try:
            yield process
        finally:
            process.kill()


def children(pid: int, name: str) -> list[str]:
    """Give the states of all processes of a name below one."""
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
    shellcheck = shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not there")
    done = subprocess.run(
        [shellcheck, "-s", "sh", "-"], input=keeper(), text=True, stdout=subprocess.PIPE, check=False
    )
    assert done.stdout == ""


def test_a_pod_ends_after_its_last_beat(tmp_path: Path) -> None:
    beat = tmp_path / "f-beat"
    with kept(tmp_path / "f", 3) as process:
        begun = time.monotonic()
        for _ in range(8):
            time.sleep(0.5)
            beat.touch()
        last = time.monotonic()
        assert process.wait(20) == 75
        assert 2 < time.monotonic() - last < 10
        assert time.monotonic() - begun > 5
        assert process.stderr
        assert process.stderr.read() == "fabbench: Nothing was heard of fabbench for 3 s.\n"


def test_a_pod_that_is_told_to_end_does_so_at_once(tmp_path: Path) -> None:
    with kept(tmp_path / "f", 60) as process:
        while not (tmp_path / "f").exists():
            time.sleep(0.01)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 143
        assert time.monotonic() - begun < 0.9


def test_a_key_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with kept(tmp_path / "f", 60, agent="ssh") as process:
        assert process.wait(10) == 126
        assert process.stderr
        assert "cannot read" in process.stderr.read()


def test_programs_come_in_by_ssh_with_the_pods_environment(tmp_path: Path) -> None:
    """In namespaces of its own and without new privileges, as in a pod; root is locked, as in some images."""
    if os.geteuid() != 0 or not Path("/usr/sbin/sshd").exists():
        pytest.skip("needs root and sshd")
    keys, folder, port = tmp_path / "keys", tmp_path / "f", free_port()
    keys.mkdir(mode=0o700)
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / "key"], check=True)
    (keys / "authorized_keys").write_text(f"restrict {(keys / 'key.pub').read_text()}")
    shadow = tmp_path / "shadow"
    shadow.write_text("root:!locked:19000:0:99999:7:::\nsshd:!:19000::::::\n")
    own = 'mount --bind "$0" /etc/shadow && exec setpriv --no-new-privs "$@"'
    before = (
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "--kill-child",
        "--mount-proc",
        "sh",
        "-c",
        own,
        str(shadow),
    )
    with kept(folder, 30, agent="ssh", port=port, before=before) as process:
        host_key = folder / "host_key.pub"
        while not (folder / "ssh_config").exists():
            assert process.poll() is None
            time.sleep(0.05)
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key.read_text()}")
        ssh: list[str | Path] = [
            "ssh",
            "-F",
            folder / "ssh_config",
            "-o",
            "ConnectionAttempts=10",
            "127.0.0.1",
        ]
        asked = 'printf "%s\\n" "$SAID"; sh -c "sleep 0.2 & exit 0"; exit 7'
        done = subprocess.run([*ssh, asked], text=True, stdout=subprocess.PIPE, timeout=30, check=False)
        assert (done.stdout, done.returncode) == ('it\'s "here" $HOME\n', 7)
        assert shadow.read_text().splitlines()[0].startswith("root:*locked:")
        time.sleep(1.5)
        assert [stat for stat in children(process.pid, "sleep") if stat == "Z"] == []
