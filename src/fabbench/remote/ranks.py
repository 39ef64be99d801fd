"""Notices that mpirun stays though all its ranks have ended.

Open MPI 5.0's prterun does so about once in fifty launches. It would be waited for until the silence counts
as a fault, and a whole table would be worth nothing.
"""

import re
import time
from collections.abc import Sequence

from fabbench.errors import MachineError
from fabbench.remote.host import RemoteHost
from fabbench.remote.pool import each

RANK = "FABBENCH_RANK"
"""The variable that every rank has in its environment, and mpirun and its daemons have not."""
LINGERS = "fabbench: all ranks have ended, and mpirun has not: it is ended."
_QUIET_S = 10.0
"""How long nothing is printed before hosts are asked, and between two times: asking costs them a little."""
_OF_A_RANK = re.compile(r"\[[^\]]*,\d+\]<stdout>")


class Ranks:
    """The ranks of one mpirun."""

    def __init__(self, remotes: Sequence[RemoteHost]) -> None:
        self._remotes = remotes
        self._began = False
        self._quiet_since = time.monotonic()

    def heard(self, text: str | None) -> None:
        """Take note that something was printed."""
        self._quiet_since = time.monotonic()
        if not self._began and text is not None:
            self._began = _OF_A_RANK.match(text) is not None

    def gone(self) -> bool:
        """Whether there were ranks, nothing was printed for a while, and there is none now on any host."""
        if not self._began or time.monotonic() - self._quiet_since < _QUIET_S:
            return False
        self._quiet_since = time.monotonic()
        counts = each({remote.name: remote for remote in self._remotes}, _count)
        return all(count == 0 for count in counts.values())


def _count(remote: RemoteHost) -> int:
    try:
        return int(remote.run("ranks").out[0])
    except (IndexError, ValueError) as error:
        raise MachineError(f"{remote.name} did not count its ranks.") from error
