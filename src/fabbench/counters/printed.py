"""Counters that a script prints around each trial, as marker lines: what it is told, how it is read. Pure.

``#@fabbench nics 000-tcp-r1 when=before number=0 host=a fabric=tcp chosen=eth0 among=0,1 packed=H4sI…`` is
of one host. `number` counts hosts as the plan does. `packed` is what `SNAPSHOT` printed there, by gzip and
base64: of 32 NICs these are a thousand lines. Empty: the host did not tell in time. The other words say what
the NICs are judged by (`fabbench.counters.around`).
"""

import zlib
from base64 import b64decode
from collections.abc import Sequence

from fabbench.counters.around import Around, judged, whose
from fabbench.counters.findings import Asked
from fabbench.counters.reading import read_snapshot
from fabbench.counters.snapshot import Snapshot
from fabbench.counters.stored import Pair
from fabbench.machines import Host
from fabbench.markers import Marker, words
from fabbench.model import Log, Point, Trial

_LARGEST = 1 << 24
"""Bytes of a snapshot that are read; hosts of 32 NICs have some 70 KB."""
_GZIP = 31


def asked(trial: Trial, hosts: Sequence[Host]) -> str:
    """Write what the NICs of a trial are judged by, for the script to print with the counters."""
    by, among = whose(trial, hosts)
    numbers = [number for number, host in enumerate(hosts) if host.name in among]
    facts = {
        "fabric": by.fabric,
        "chosen": ",".join(by.chosen),
        "expected": "" if by.expected is None else str(by.expected),
        "among": ",".join(map(str, numbers)),
    }
    return words({name: text for name, text in facts.items() if text})


class Printed:
    """The counters that were printed of one trial."""

    def __init__(self, trial: str) -> None:
        self.trial = trial
        self.around: Around | None = None
        """What is known so far; None: nothing was printed yet."""
        self._names: dict[str, str] = {}
        """Number of a host → its name."""

    def take(self, marker: Marker) -> None:
        """Read a line. Counters from before, which come anew where a job does, replace those there are."""
        facts = marker.facts
        host = self._names.setdefault(facts.get("number", ""), facts.get("host", "a host without a name"))
        taken, failure = _unpacked(facts.get("packed", ""), host)
        known = dict(self.around.hosts) if self.around else {}
        failures = dict.fromkeys((*(self.around.failures if self.around else ()), failure))
        before = known[host].before if host in known else None
        known[host] = Pair(taken, None) if facts.get("when") == "before" else Pair(before, taken)
        expected = facts.get("expected", "")
        self.around = Around(
            asked=Asked(
                fabric=facts.get("fabric", ""),
                chosen=tuple(filter(None, facts.get("chosen", "").split(","))),
                expected=int(expected) if expected.isdecimal() else None,
            ),
            among=tuple(
                self._names[number] for number in facts.get("among", "").split(",") if number in self._names
            ),
            hosts=known,
            failures=tuple(filter(None, failures)),
        )


def _unpacked(text: str, host: str) -> tuple[Snapshot | None, str]:
    """Read a snapshot; where there is none a sentence may say why."""
    try:
        unpacking = zlib.decompressobj(_GZIP)
        plain = unpacking.decompress(b64decode(text, validate=True), _LARGEST)
    except (ValueError, zlib.error):
        return None, f"What was printed of the counters of {host} is damaged."
    if text and not unpacking.eof:
        return None, f"What was printed of the counters of {host} is not whole."
    lines = plain.decode("utf-8", "replace").splitlines()
    return (read_snapshot(lines), "") if lines else (None, "")


class Counted:
    """Adds to the logs of each trial what its NICs show, in a text whose script has printed that.

    Logs are kept back until all counters of their trial were read. Without any nothing is.
    """

    def __init__(self) -> None:
        self._now: Printed | None = None
        """Of the trial whose steps are read."""
        self._next: Printed | None = None
        """Of one that will begin: what is open of the trial before may not have become a log yet."""
        self._kept: list[Log] = []

    def take(self, marker: Marker) -> None:
        """Read counters."""
        if marker.facts.get("when") == "before":
            if self._next is None or self._next.trial != marker.trial:
                self._next = Printed(marker.trial)
            self._next.take(marker)
        elif self._now is not None and self._now.trial == marker.trial:
            self._now.take(marker)

    def begun(self, marker: Marker) -> Sequence[Log]:
        """Take note that a step begins: give the logs of the trial before, if it is of another one."""
        begins = self._next is not None and self._next.trial == marker.trial
        if not begins and self._now is not None and self._now.trial == marker.trial:
            return []
        logs = self.close()
        self._now, self._next = (self._next, None) if begins else (None, self._next)
        return logs

    def keep(self, results: list[Point | Log]) -> list[Point | Log]:
        """Keep the logs among what was read, where there are counters; give the rest."""
        if self._now is None:
            return results
        self._kept += [result for result in results if isinstance(result, Log)]
        return [result for result in results if not isinstance(result, Log)]

    def close(self) -> Sequence[Log]:
        """Give the logs that are kept."""
        logs = judged(self._kept, self._now.around if self._now is not None else None)
        self._kept = []
        return logs
