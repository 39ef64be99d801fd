"""A lab.

Hosts made of namespaces on two networks, and a client from which programs under test reach them.

All of a lab lives in one process tree whose first process ends when this program does: nothing is
left behind, however a test ends, and nothing at all is added to the machine's own network or
mounts.
"""

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from tests.support.hosts import processes, slurm, traces
from tests.support.hosts.host import PATH, Command, Host
from tests.support.hosts.layout import HOME, MAX_HOSTS, Options, write

TOOLS = ("ip", "tc", "unshare", "nsenter", "mount", "ssh", "ssh-keygen", "sshd")
_FOREIGN = ("FABBENCH_", "NCCL_", "FI_", "OMPI_", "PMIX_", "PRTE_", "STANDIN_", "SSH_", "XDG_")


def missing() -> str:
    """Return why no lab can be brought up here; empty if one can.

    A Slurm needs `slurm.TOOLS` too.
    """
    if os.name != "posix" or os.geteuid() != 0:
        return "a lab of hosts needs root (network, mount and process namespaces)"
    path = f"{PATH}:{os.environ.get('PATH', '')}"
    if lacking := [tool for tool in TOOLS if shutil.which(tool, path=path) is None]:
        return f"a lab of hosts needs {', '.join(lacking)}: setup/prepare dev installs them"
    probe = ["unshare", "--net", "--mount", "--pid", "--uts", "--ipc", "--fork", "true"]
    done = subprocess.run(probe, capture_output=True, text=True, check=False)
    return f"a lab of hosts needs namespaces: {done.stderr.strip()}" if done.returncode else ""


def _has_ended(line: str) -> bool:
    """Return whether a difference is a process that was still ending when it began."""
    return line.startswith("- ") and " process " in line


class Lab:
    """Hosts on two networks, and the client's side of both. Use it as a context, or call `down`."""

    def __init__(self, folder: Path, options: Options) -> None:
        assert 1 <= options.hosts <= MAX_HOSTS, options.hosts
        self.folder, self.options = folder, options
        self.touched = False
        """Whether anything was done to a host or its links that the next test must not meet."""
        self.ssh_client = ""
        """What fabbench is told to connect with (ssh-client); empty: nothing."""
        self.hosts: list[Host] = []
        self._is_down = False
        write(folder, options)
        self._log = (folder / "boot.log").open("w+")
        boot = Path(__file__).with_name("boot")
        apart = ["--net", "--uts", "--mount", "--pid", "--fork", "--kill-child"]
        self._outer = subprocess.Popen(
            ["unshare", *apart, "bash", str(boot), str(folder), "switch"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PATH": f"{os.environ.get('PATH', '')}:{PATH}"},
        )
        try:
            self._wait()
        except BaseException:
            self.down()
            raise

    def _wait(self) -> None:
        assert self._outer.stdout
        up = 0
        for line in self._outer.stdout:
            up += line.startswith("up ")
            if up == self.options.hosts:
                break
        assert up == self.options.hosts, (
            f"only {up} hosts came up: {(self.folder / 'boot.log').read_text()}"
        )
        (self.pid,) = processes.children(self._outer.pid)
        self._net = processes.namespace(self.pid, "net")
        self._space = processes.namespace(self.pid, "pid")
        first = {
            processes.command(pid)[-1]: processes.children(pid)[0]
            for pid in processes.children(self.pid)
        }
        self.hosts = [
            Host(self, number, first[str(number)]) for number in range(self.options.hosts)
        ]
        if self.options.slurm:
            slurm.await_idle(self.hosts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def __getitem__(self, number: int) -> Host:
        return self.hosts[number]

    def down(self) -> None:
        """End the lab and all that runs in it; may be called again."""
        # The kernel gives the numbers of namespaces that are gone to those of other labs.
        if self._is_down:
            return
        self._is_down = True
        for pid in self._client_pids():
            processes.send(signal.SIGKILL, pid)
        assert self._outer.stdin
        assert self._outer.stdout
        with contextlib.suppress(BrokenPipeError):
            self._outer.stdin.close()
        try:
            self._outer.wait(10)
        except subprocess.TimeoutExpired:
            self._outer.kill()
            self._outer.wait()
        self._outer.stdout.close()
        self._log.close()

    # -- the client

    @property
    def home(self) -> Path:
        """The client's home, seen from outside: .ssh holds config, known_hosts and lab_key."""
        return Path(f"/proc/{self.pid}/root{HOME}")

    def path(self, inside: str | Path) -> Path:
        """Where a file is found that only the client sees."""
        return Path(f"/proc/{self.pid}/root{inside}")

    def environment(self, env: Mapping[str, str] | None = None) -> dict[str, str]:
        """What a program on the client gets: this program's own, less what would decide for it."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}
        path = f"{os.environ.get('PATH', '')}:{PATH}"
        return {**kept, "HOME": str(HOME), "PATH": path, "COLUMNS": "200", **(env or {})}

    def argv(self, argv: Command, cwd: Path | None = None) -> list[str]:
        """The command line that runs a command on the client, as the same process."""
        enter = [
            "nsenter",
            "-t",
            str(self.pid),
            "-n",
            "-m",
            "-u",
            "--",
            "env",
            "-C",
            str(cwd or self.folder),
        ]
        return [*enter, *map(str, argv)]

    def run(
        self,
        argv: Command,
        *,
        env: Mapping[str, str] | None = None,
        timeout: float = 120,
        check: bool = False,
        given: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the client to its end; `given` is its input."""
        done = subprocess.run(
            self.argv(argv),
            env=self.environment(env),
            timeout=timeout,
            input=given,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        assert not check or done.returncode == 0, (argv, done.returncode, done.stdout, done.stderr)
        return done

    def popen(
        self,
        argv: Command,
        *,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        **options: Any,
    ) -> "subprocess.Popen[str]":
        """Start a command on the client.

        The process is the command's own, so that signals reach it.
        """
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        options = {"stdin": subprocess.DEVNULL, **pipes, **options}
        started: subprocess.Popen[str] = subprocess.Popen(
            self.argv(argv, cwd), env=self.environment(env), text=True, errors="replace", **options
        )
        return started

    def ssh(self, host: Host, command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a shell command on a host by the ssh program."""
        return self.run(["ssh", host.name, command], **options)

    def small_folder(self, size: str = "64k", name: str = "small") -> Path:
        """Make a directory that only the client sees, on a file system of this size."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        self.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
        return folder

    def new_host_key(self, number: int) -> None:
        """Replace a host's key by one that the client does not know, as a new installation."""
        self.touched = True
        host = self.hosts[number]
        host.sh(["rm", "-f", "/etc/ssh/ssh_host_ed25519_key", "/etc/ssh/ssh_host_ed25519_key.pub"])
        host.sh(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", "/etc/ssh/ssh_host_ed25519_key"]
        )
        host.kill_sshd(sessions=False)
        host.start_sshd()

    def second_switch(self, numbers: Sequence[int], rate: str) -> None:
        """Put these hosts' fab1 behind a switch of their own.

        What is between both goes at a rate.
        """
        self.touched = True
        ports = [f"link set sw{number}.1 master br2" for number in numbers]
        trunk = [f"link set trunk{end} master br{end} up" for end in (1, 2)]
        made = [
            "link add br2 type bridge forward_delay 0",
            "link set br2 up",
            "link add trunk1 type veth peer name trunk2",
        ]
        self.run(["ip", "-batch", "-"], given="\n".join([*made, *trunk, *ports]), check=True)
        for end in (1, 2):
            shape = ["tbf", "rate", rate, "burst", "16kb", "limit", "4mb"]
            self.run(["tc", "qdisc", "replace", "dev", f"trunk{end}", "root", *shape], check=True)

    # -- what is left behind

    def _client_pids(self) -> list[int]:
        if not self.hosts:
            return []
        found = processes.inside("net", self._net)
        apart = {self._outer.pid, self.pid}
        return [
            pid
            for pid in found
            if pid not in apart and processes.namespace(pid, "pid") != self._space
        ]

    def traces(self) -> list[str]:
        """A line for everything that a program could leave on the client or on a living host."""
        commands = (processes.command(pid) for pid in self._client_pids())
        lines = [f"client process {' '.join(command)}" for command in commands if command]
        lines += [f"client file {path} {sign[:12]}" for path, sign in self._client_files().items()]
        for host in self.hosts:
            if processes.alive(host.pid):
                lines += host.traces()
        return lines

    def _client_files(self) -> dict[str, str]:
        return traces.files(Path(f"/proc/{self.pid}/root"), f"{HOME}/.ssh")

    def left_since(self, before: Sequence[str], seconds: float = 30) -> list[str]:
        """Say what is new (+) or missing (-) since earlier `traces`, once endings have ended."""
        lines: list[str] = []

        def settled() -> bool:
            found = traces.difference(before, self.traces())
            lines[:] = [line for line in found if not _has_ended(line)]
            return not lines

        processes.eventually(settled, seconds)
        return lines
