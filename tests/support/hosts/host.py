"""One host of a lab: what can be done to it, and what is seen on it."""

import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.hosts import processes, traces
from tests.support.hosts.layout import HOME, address
from tests.support.paths import ROOT

if TYPE_CHECKING:
    from tests.support.hosts.laboratory import Lab

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
Command = Sequence[str | Path]
_SILENT = "02:00:00:00:00:01"
"""A link address that nobody has: what is sent there is lost without a word."""
_OURS = (
    " /run/sshd.log ",
    " /run/sshd.pid ",
    "/.filling ",
    " /run/standin",
    "/var/tmp/standin-",
    " /run/munge/",
    " /run/slurm/",
)
"""Files that the lab itself writes while a test runs."""


class Host:
    """One host. What is done to it here goes through no network."""

    def __init__(self, lab: "Lab", number: int, pid: int) -> None:
        self.lab, self.number, self.pid = lab, number, pid
        self.name = f"node{number}"
        self.address, self.slow_address = address(number), address(number, 2)
        self.root = Path(f"/proc/{pid}/root")
        """Its file system as seen from outside: `host.path("/tmp/x")` is a file in it."""
        self._space = processes.namespace(pid, "pid")

    def path(self, inside: str | Path) -> Path:
        """Where a file of the host is found from outside."""
        return Path(f"{self.root}{inside}")

    def sh(
        self, argv: Command, *, check: bool = True, timeout: float = 60, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the host, with the environment that sshd would give it."""
        enter = [
            "nsenter",
            "-t",
            str(self.pid),
            "-m",
            "-u",
            "-i",
            "-n",
            "-p",
            "--",
            *map(str, argv),
        ]
        done = subprocess.run(
            enter,
            env={"PATH": PATH, "HOME": str(HOME), "USER": "root", "LOGNAME": "root", **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
        )
        assert not check or done.returncode == 0, (argv, done.stdout, done.stderr)
        return done

    # -- what happens to hosts

    def freeze(self) -> None:
        """Stop all of the host's processes (SIGSTOP), as if it hung."""
        self.lab.touched = True
        stopped: set[int] = set()
        while found := set(self._pids()) - stopped:
            for pid in found:
                processes.send(signal.SIGSTOP, pid)
            stopped |= found

    def thaw(self) -> None:
        """Let a frozen host go on."""
        for pid in self._pids():
            processes.send(signal.SIGCONT, pid)

    def kill(self) -> None:
        """End the host at once, with all its processes."""
        self.lab.touched = True
        processes.send(signal.SIGKILL, self.pid)
        assert processes.eventually(lambda: not list(self._pids()))

    def kill_sshd(self, *, sessions: bool = True) -> None:
        """End the sshd that listens; with `sessions` also those that serve connections."""
        self.lab.touched = True
        listening = self.path("/run/sshd.pid").read_text().strip()
        self.sh(["kill", "-9", listening])
        # It holds its port until then.
        assert processes.eventually(lambda: not processes.alive(int(listening), self.path("/proc")))
        for pid in self._pids() if sessions else ():
            if any(word.startswith("sshd:") for word in processes.command(pid)[:1]):
                processes.send(signal.SIGKILL, pid)

    def start_sshd(self) -> None:
        """Start sshd again after `kill_sshd`."""
        self.path("/run/sshd.pid").unlink(missing_ok=True)
        self.sh(["/usr/sbin/sshd", "-E", "/run/sshd.log"])
        assert processes.eventually(self.path("/run/sshd.pid").exists)

    def cut(self, *links: str) -> None:
        """Take links down: both, or those named (fab0, fab1)."""
        self.lab.touched = True
        self._links(links, "down")

    def heal(self, *links: str) -> None:
        """Take links up again."""
        self._links(links, "up")

    def _links(self, links: Sequence[str], state: str) -> None:
        for link in links or ("fab0", "fab1"):
            self.sh(["ip", "link", "set", link, state])

    def rate(self, rate: str, link: str = "fab1") -> None:
        """Shape what a link sends (`50mbit`); `off` lets it go."""
        self.lab.touched = True
        if rate == "off":
            self.sh(["tc", "qdisc", "del", "dev", link, "root"], check=False)
        else:
            shape = ["tbf", "rate", rate, "burst", "16kb", "limit", "4mb"]
            self.sh(["tc", "qdisc", "replace", "dev", link, "root", *shape])

    def lose(self, percent: float, link: str = "fab1", rate: str = "400mbit") -> None:
        """Lose some packets that a link receives, by chance.

        Those that are not lost come at a rate.

        Without netem, which kernels may lack: what is drawn goes into a queue without room. It is
        the switch's, as what a host's own queue loses its TCP does not take for sent.
        """
        self.lab.touched = True
        for host in self.lab.hosts:
            # Else one packet here would be many of the wire.
            host.sh(["ip", "link", "set", link, "gso_max_segs", "1"])
        drawn = int(percent / 100 * 2**32)
        # ld rand; jgt #drawn; ret -1 (the filter's class); ret 0 (the next filter, or the default)
        chance = f"4,32 0 0 4294963256,37 1 0 {drawn},6 0 0 4294967295,6 0 0 0"
        device = ["dev", f"sw{self.number}.{link.removeprefix('fab')}"]
        commands = [["qdisc", "replace", *device, "root", "handle", "1:", "htb", "default", "10"]]
        for classid, at in (("1:10", rate), ("1:20", "8bit")):
            commands.append(
                ["class", "add", *device, "parent", "1:", "classid", classid, "htb", "rate", at]
            )
        commands.append(["qdisc", "add", *device, "parent", "1:20", "pfifo", "limit", "0"])
        chosen = ["protocol", "ip", "prio", "1", "bpf", "bytecode", chance, "flowid", "1:20"]
        commands.append(["filter", "add", *device, "parent", "1:", *chosen])
        for words in commands:
            self.lab.run(["tc", *words], check=True)

    def keep(self, link: str = "fab1") -> None:
        """Undo `lose`."""
        for host in self.lab.hosts:
            host.sh(["ip", "link", "set", link, "gso_max_segs", "65535"])
        device = f"sw{self.number}.{link.removeprefix('fab')}"
        self.lab.run(["tc", "qdisc", "del", "dev", device, "root"], check=True)

    def wall(self, other: "Host") -> None:
        """Lose silently all that this host and another send each other, as security groups do."""
        self.lab.touched = True
        for one, two in ((self, other), (other, self)):
            for link, place in (("fab0", two.address), ("fab1", two.slow_address)):
                lost = ["lladdr", _SILENT, "dev", link, "nud", "permanent"]
                one.sh(["ip", "neigh", "replace", place, *lost])

    def fill_disk(self, folder: str = "/tmp") -> None:
        """Fill the file system of a directory."""
        self.lab.touched = True
        self.sh(["dd", "if=/dev/zero", f"of={folder}/.filling", "bs=64k"], check=False)

    def free_disk(self, folder: str = "/tmp") -> None:
        """Undo `fill_disk`."""
        self.path(f"{folder}/.filling").unlink(missing_ok=True)

    # -- what is there

    def _pids(self) -> list[int]:
        return list(processes.inside("pid", self._space))

    def processes(self) -> dict[int, list[str]]:
        """Command lines of all that runs on the host, by process id as this program sees it."""
        found = {pid: processes.command(pid) for pid in self._pids() if pid != self.pid}
        ours = (["sleep", "infinity"], processes.command(self.pid))
        return {pid: line for pid, line in found.items() if line and line not in ours}

    def files(self, folder: str) -> dict[str, str]:
        """All that is below a directory of the host: path → a sign of its content."""
        return traces.files(self.root, folder)

    @property
    def home(self) -> Path:
        """The host's home, seen from outside."""
        return self.path(HOME)

    def traces(self) -> list[str]:
        """A line for every process, and every file in the temporary directories and in ~/.ssh."""
        found: dict[str, str] = {}
        for folder in (
            *traces.WHERE,
            f"{HOME}/.ssh",
            f"{HOME}/.cache/fabbench",
            f"{HOME}/.fabbench",
        ):
            found |= self.files(folder)
        # A checkout that lies in such a directory is seen there too, and changes by itself.
        found = {path: sign for path, sign in found.items() if not path.startswith(f"{ROOT}/")}
        lines = [f"{self.name} file {path} {sign[:12]}" for path, sign in found.items()]
        lines = [line for line in lines if not any(name in line for name in _OURS)]
        running = [" ".join(line) for line in self.processes().values()]
        return lines + [
            f"{self.name} process {line}" for line in running if "[listener]" not in line
        ]
