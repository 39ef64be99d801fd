"""Programs on this machine: those of the launcher ``local``, and of the ssh program that reaches others."""

import signal
from collections.abc import Callable, Mapping, Sequence

from fabbench.execution.process import PipedProcess
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.remote.transport import ProcessStream, Transport

_FAILED = frozenset({255, -signal.SIGKILL})  # ssh's own status, which a program's may be too; or it was killed


class PipedProgram(PipedProcess, ProcessStream):
    """A program on this machine; or on another, by an ssh process here."""

    def __init__(
        self,
        words: Sequence[str],
        owner: Transport,
        env: Mapping[str, str],
        failed: Callable[[Sequence[str]], MachineError | None] = lambda _: None,
    ) -> None:
        """Start it with `env` added. `failed` gets its standard error, and returns why ssh ended; None: it did not."""
        ProcessStream.__init__(self)
        PipedProcess.__init__(self, words, env)
        self._owner, self._failed = owner, failed

    @override
    def _receive(self, timeout_s: float) -> tuple[bytes, bytes] | None:
        return self.receive(timeout_s)

    @override
    def _exit_status(self) -> int:
        status = self.wait() or 0
        if status in _FAILED and (why := self._failed(self.err)):
            raise why
        return status

    @override
    def send(self, data: bytes) -> None:
        try:
            super().send(data)
        except TimeoutError as error:
            raise self._owner.lost(error) from error
        except (OSError, ValueError) as error:
            raise self._owner.lost("the program there has exited") from error


class Here(Transport):
    """This machine, which is always there."""

    def __init__(self, name: str) -> None:
        super().__init__(name, "here")

    @override
    def _start(self, argv: Sequence[str]) -> ProcessStream:
        return PipedProgram(argv, self, {})
