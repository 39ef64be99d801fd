"""Users without privileges who run fabbench over ssh, with uids, homes and keys of their own."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fabbench.model.log import Log
from fabbench.runs.store import StoredRun, runs
from tests.support.hosts import Host, Lab, traces

if TYPE_CHECKING:
    import subprocess

_OF_CLIENT = ("/tmp", "/dev/shm", "/var/tmp", "/home")
OWN_CONNECTIONS = "ControlMaster auto\nControlPath ~/.ssh/%C\n"
"""As many configurations have it: ssh keeps a connection, and others use it."""


@dataclass(frozen=True)
class User:
    """A user of a lab (Options.users)."""

    lab: Lab
    name: str

    @property
    def home(self) -> Path:
        """On the client, and on the hosts."""
        return Path("/home", self.name)

    def argv(self, *words: str) -> list[str]:
        """The command line that runs a command as this user, for root."""
        return [
            "setpriv",
            f"--reuid={self.name}",
            f"--regid={self.name}",
            "--init-groups",
            "--",
            *words,
        ]

    def start(self, words: list[str]) -> "subprocess.Popen[str]":
        """Start fabbench, with an empty store in the user's home."""
        self.lab.run(["rm", "-rf", f"{self.home}/runs"])
        words = [*words[: words.index("--store")], "--store", f"{self.home}/runs"]
        env = {"HOME": str(self.home), "USER": self.name, "LOGNAME": self.name}
        return self.lab.popen(self.argv(*words), env=env, cwd=self.home)

    def log(self) -> Log:
        """What became of the newest run's only configuration."""
        (log,) = StoredRun(next(runs(self.lab.path(self.home / "runs")))).logs("tcp")
        return log

    def can_get_at(self, other: "User") -> list[str]:
        """What this user may read or write of another's on the client or any host, sockets too.

        Where the stand-in's ranks meet is no matter of fabbench.
        """
        owned = ["-user", other.name, "!", "-type", "l"]
        allowed = ["(", "-readable", "-o", "-writable", ")"]
        text = self.lab.run(self.argv("find", *_OF_CLIENT, *owned, *allowed)).stdout
        for host in self.lab.hosts:
            text += host.sh(self.argv("find", *traces.WHERE, *owned, *allowed), check=False).stdout
        return [path for path in text.splitlines() if not path.startswith("/var/tmp/standin-")]

    def owns(self, host: Host) -> list[str]:
        """What lies on a host and is the user's, in directories for temporary files."""
        return host.sh(["find", *traces.WHERE, "-user", self.name]).stdout.split()
