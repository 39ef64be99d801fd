"""What NCCL's inspector writes on the hosts of a running job while it is watched."""

import shlex
from collections import deque

from fabbench.execution.worker_pool import Results, map_hosts
from fabbench.model.errors import MachineError
from fabbench.model.mappings import map_values
from fabbench.remote.counter_shell import HostShell
from fabbench.remote.transport import Transport

_MOST = 10_000  # lines are kept, the newest ones


class InspectorShells:
    """A shell on each host that reads what is new in a folder there."""

    def __init__(self, connections: Results[Transport], folder: str) -> None:
        """Start nothing yet. `folder`: that of NCCL_INSPECTOR_DUMP_DIR; empty: none is read."""
        self.lines = deque[str](maxlen=_MOST)
        asked = connections if folder else {}
        self._shells = map_values(HostShell, asked)
        self._question = f"fabbench_inspector {shlex.quote(folder)}"

    def read(self) -> None:
        """Add what is new. A host that does not answer is left out from then on."""
        answers = map_hosts(self._shells, lambda shell: shell.ask(self._question))
        for name, answer in answers.items():
            if isinstance(answer, MachineError):
                del self._shells[name]
            else:
                self.lines += filter(None, answer)
