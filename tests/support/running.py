"""A run of fabbench that goes on while tests do something to it."""

from collections.abc import Callable
from dataclasses import dataclass
from subprocess import Popen

from tests.support.hosts import processes


@dataclass
class Running:
    """The run's process, and what it said once it has ended."""

    process: Popen[str]
    out: str = ""
    err: str = ""

    def until(self, ready: Callable[[], object], seconds: float = 90) -> None:
        """Wait until something is so, while it goes on."""
        assert processes.eventually(lambda: ready() or self.process.poll() is not None, seconds)
        assert self.process.poll() is None, self.process.communicate()

    def ends(self, seconds: float = 150) -> int:
        """Wait until it ends, and give its exit status."""
        self.out, self.err = self.process.communicate(timeout=seconds)
        assert "Traceback" not in self.err, self.err
        return self.process.returncode
