"""Snapshots as JSON documents, for a run directory. Pure.

A run directory has `counters/NNN-ARM-rR.json`, one for each execution:
``{"format": 1, "hosts": {"a": {"before": SNAPSHOT, "after": SNAPSHOT}}}``. A snapshot that could not be taken
is null.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from fabbench.counters.snapshot import Kind, Nic, Snapshot
from fabbench.counters.traffic import Traffic, difference
from fabbench.errors import MachineError

FORMAT = 1


class Pair(NamedTuple):
    """The snapshots of one host around an execution; None: it could not be taken."""

    before: Snapshot | None
    after: Snapshot | None

    def traffic(self) -> Traffic | None:
        """Subtract them; None where one of the two is missing."""
        return difference(self.before, self.after) if self.before and self.after else None


def hosts_document(hosts: Mapping[str, Pair]) -> dict[str, Any]:
    """Make the document of one execution."""
    pairs = {
        host: {name: as_document(taken) if taken else None for name, taken in pair._asdict().items()}
        for host, pair in hosts.items()
    }
    return {"format": FORMAT, "hosts": pairs}


def hosts_from_document(document: Any) -> dict[str, Pair]:
    """Read the document of one execution. Raises MachineError for one that is damaged or newer."""
    _check_format(document)
    try:
        return {
            host: Pair(*(from_document(pair[name]) if pair[name] else None for name in Pair._fields))
            for host, pair in document["hosts"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise _damaged(error) from error


def as_document(snapshot: Snapshot) -> dict[str, Any]:
    """Make one snapshot's document. Its numbers are in base units."""
    nics = [
        {
            "name": nic.name,
            "kind": nic.kind.value,
            "counters": dict(nic.counters),
            "link_rate": nic.link_rate,
            "device": nic.device,
            "up": nic.up,
        }
        for nic in snapshot.nics
    ]
    return {"format": FORMAT, "time": snapshot.time, "nics": nics, "unread": list(snapshot.unread)}


def from_document(document: Any) -> Snapshot:
    """Read one snapshot's document. Raises MachineError for one that is damaged or of another format."""
    _check_format(document)
    try:
        nics = tuple(
            Nic(
                name=str(nic["name"]),
                kind=Kind(nic["kind"]),
                counters={str(name): _count(value) for name, value in nic["counters"].items()},
                link_rate=None if nic["link_rate"] is None else float(nic["link_rate"]),
                device=bool(nic["device"]),
                up=None if nic["up"] is None else bool(nic["up"]),
            )
            for nic in document["nics"]
        )
        time = None if document["time"] is None else float(document["time"])
        return Snapshot(time=time, nics=nics, unread=tuple(map(str, document["unread"])))
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise _damaged(error) from error


def _count(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError(f"{value!r} is no counter")
    return value


def _check_format(document: Any) -> None:
    number = document.get("format") if isinstance(document, Mapping) else None
    if number != FORMAT:
        raise MachineError(
            f"The stored counters have format {number}; this fabbench reads format {FORMAT}.",
            hint="Read them with the fabbench that wrote them.",
        )


def _damaged(error: Exception) -> MachineError:
    return MachineError(f"The stored counters are damaged: {type(error).__name__}: {error}.")
