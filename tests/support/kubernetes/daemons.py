"""Programs of the cluster: each is started in the namespaces of the control plane or of a node."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.hosts import processes

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Daemon:
    """A program that runs until it is stopped, and may be started again."""

    def __init__(
        self,
        argv: Sequence[str | Path],
        *,
        inside: int,
        log: Path,
        path: str = "",
        network: bool = True,
    ) -> None:
        self.argv, self.log = [*map(str, argv)], log
        self._enter = [
            "nsenter",
            "-t",
            str(inside),
            "-m",
            "-u",
            "-p",
            *(["-n"] if network else []),
            "--",
        ]
        self._env = {"PATH": f"{path}:{PATH}" if path else PATH, "HOME": "/root"}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The program's process, below the nsenter that waits for it; 0 if it does not run."""
        if self._process is None or self._process.poll() is not None:
            return 0
        return next(iter(processes.children(self._process.pid)), 0)

    def start(self, *, env: Mapping[str, str] | None = None, keep: Sequence[int] = ()) -> None:
        """Start the program; `keep` are files that it inherits."""
        assert not self.pid, f"{self.argv[0]} runs already"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._enter, *self.argv],
                env={**self._env, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=keep,
                start_new_session=True,
            )

    def stop(self, number: signal.Signals = signal.SIGKILL) -> None:
        """End the program, and wait until it has ended."""
        if self._process is None:
            return
        # nsenter takes a moment to start it.
        processes.eventually(lambda: self.pid or self.gone(), 5)
        if pid := self.pid:
            processes.send(number, pid)
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def gone(self) -> bool:
        """Whether the program was never started, or has ended."""
        return self._process is None or self._process.poll() is not None

    def tail(self, lines: int = 20) -> str:
        """The end of what the program wrote."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return os.linesep.join(text.splitlines()[-lines:])
