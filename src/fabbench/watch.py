"""Takes snapshots of NIC counters around a trial, and while it goes on for whoever watches.

Nothing of this fails a run: what cannot be read is a note of the execution.

Other machines are looked at in a thread, which nothing waits for. Looking at this one starts a program, which
is to be done without threads (see process.py): the main thread does it between lines.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from fabbench.counters.around import Around, whose
from fabbench.counters.printed import Printed
from fabbench.counters.reading import read_snapshot
from fabbench.counters.snapshot import Snapshot
from fabbench.counters.stored import Pair
from fabbench.counters.traffic import Traffic, difference
from fabbench.errors import FabbenchError
from fabbench.launchers import Place
from fabbench.markers import SIGN, read_marker
from fabbench.model import Trial
from fabbench.prefixes import Prefixes

EVERY_S = 2.0
"""How often those who watch are told; seldomer where looking takes its time."""
_PART = 20
"""Looking takes at most one part in so many of the time."""

View = Callable[[Mapping[str, Traffic]], None]
"""Is told what the NICs of the fabric moved since it was last told, by host. May be called in a thread."""


class Watch:
    """The NICs of a place during one trial."""

    def __init__(self, place: Place, trial: Trial, view: View | None) -> None:
        self._place = place
        self._view = view
        self._remote = place.remote
        hosts = place.inventory.seen_by(trial.arm.variant)
        asked, among = whose(trial, hosts)
        self.around = Around(asked=asked, among=among, hosts={})
        self._printed = Printed(trial.id)
        self._cut = Prefixes().cut
        self._names = (
            [hosts[0].name] if any(host.virtual for host in hosts) else [host.name for host in hosts]
        )
        self._last: Mapping[str, Snapshot] = {}
        self._next = 0.0
        self._lock = threading.Lock()
        self._over = threading.Event()

    def begin(self) -> Around:
        """Take the snapshot before the trial, and begin to look."""
        taken = self._taken()
        pairs = {name: Pair(taken.get(name), None) for name in self._all(taken)}
        self.around = replace(self.around, hosts=pairs)
        self._last, self._next = taken, time.monotonic() + EVERY_S
        if self._view is not None and self._remote:
            threading.Thread(target=self._look_on, name="fabbench counters", daemon=True).start()
        return self.around

    def look(self) -> None:
        """Tell who watches, if it is time. For between lines; where a thread looks, this does nothing."""
        if self._view is not None and not self._remote and time.monotonic() >= self._next:
            self._look(self._view)

    def printed(self, line: str) -> bool:
        """Read a line of the trial: whether it holds counters, which a job's script prints with its lines."""
        marker = read_marker(self._cut(line)[0]) if SIGN in line else None
        if marker is None or marker.kind != "nics":
            return False
        self._printed.take(marker)
        return True

    def end(self) -> Around:
        """Take the snapshot after the trial. Nobody is told anything from now on."""
        with self._lock:
            self._over.set()
        if self._printed.around is not None:
            self.around = self._printed.around
            return self.around
        taken = self._taken()
        pairs = self.around.hosts
        before = {name: pairs[name].before if name in pairs else None for name in self._all(taken, pairs)}
        self.around = replace(
            self.around, hosts={name: Pair(first, taken.get(name)) for name, first in before.items()}
        )
        return self.around

    def _all(self, *found: Mapping[str, object]) -> Sequence[str]:
        return list(dict.fromkeys([*self._names, *(name for names in found for name in names)]))

    def _taken(self) -> dict[str, Snapshot]:
        """Take a snapshot of all hosts that answer; note why there is none of any."""
        try:
            return {host: read_snapshot(lines) for host, lines in self._place.counters().items() if lines}
        except (FabbenchError, OSError) as error:
            failures = dict.fromkeys((*self.around.failures, str(error)))
            self.around = replace(self.around, failures=tuple(failures))
            return {}

    def _look_on(self) -> None:
        """Look until the trial is over."""
        view = self._view
        while view is not None and not self._over.wait(max(0.0, self._next - time.monotonic())):
            self._look(view)

    def _look(self, view: View) -> None:
        begun = time.monotonic()
        try:
            lines = self._place.counters()
        except (FabbenchError, OSError):
            lines = {}
        now = {host: read_snapshot(texts) for host, texts in lines.items() if texts}
        moved = {
            host: difference(self._last[host], taken) for host, taken in now.items() if host in self._last
        }
        ended = time.monotonic()
        self._next = max(begun + EVERY_S, ended + _PART * (ended - begun))
        self._last = now
        own = self.around.own(moved)
        with self._lock:
            if not self._over.is_set():
                view(own)
