"""Programs on this machine, started as on any other: the transport of the launcher ``local``."""

from fabbench.model.compat import override
from fabbench.remote.openssh import PipedProgram
from fabbench.remote.ssh_transport import ProgramStream, SshHost, SshTransport


class Here(SshTransport):
    """This machine: nothing is to be connected."""

    client, alive = "here", True

    def __init__(self, name: str) -> None:
        super().__init__(SshHost(name=name))
        self.where = "here"

    @override
    def _connect(self) -> None:
        raise NotImplementedError  # it is always there

    @override
    def _start(self, line: str, program: str) -> ProgramStream:
        return PipedProgram(("/bin/sh", "-c", line), program, self)

    @override
    def _drop(self) -> None:
        pass
