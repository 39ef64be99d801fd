"""What NCCL's RAS says of a running job, asked again and again on one of its hosts."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import TYPE_CHECKING

from fabbench.counters.watch import STILL_S, JobView
from fabbench.evidence.ras import ras_report
from fabbench.model.compat import override
from fabbench.model.errors import MachineError
from fabbench.remote.counter_shell import HostShell
from fabbench.remote.transport import Transport

if TYPE_CHECKING:
    from fabbench.model.log import Finding

_LIMIT_S = 60.0  # Longer than all tries of job.sh take


class RasThread(Thread):
    """Asks the first host where RAS answers: in a thread, so that no sample waits for it."""

    def __init__(self, connections: Mapping[str, Transport | MachineError], address: str) -> None:
        """Start nothing yet. `address` is that of NCCL_RAS_ADDR, on each host."""
        super().__init__(daemon=True)
        self.view = JobView()  # What the answers so far show together
        self.over = Event()  # To set when nothing is to be asked any more
        self._connections = connections
        self._question = f"fabbench_ras {shlex.quote(address)}"

    @override
    def run(self) -> None:
        for name, connection in self._connections.items():
            with suppress(MachineError):
                self._follow(HostShell(connection), f"NCCL's RAS answers on {name}.")
        if not self.over.is_set():  # Else the last answer counts
            self.view = JobView(note="NCCL's RAS (from 2.24 on) does not answer: see --ras.")

    def _follow(self, shell: HostShell, note: str) -> None:
        """Ask a host until RAS does not answer there. Raise MachineError."""
        before: Sequence[Finding] = ()
        while not self.over.is_set():
            report = ras_report("\n".join(shell.ask(self._question, _LIMIT_S)))
            if report is None:
                return
            # That counts differ at one moment is usual
            lasting = [each for each in report.findings if each in before]
            before = report.findings
            self.view = JobView(report.waits if lasting else "", lasting, note)
            self.over.wait(STILL_S)
