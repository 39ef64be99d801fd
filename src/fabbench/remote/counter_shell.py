"""The NIC counters of hosts, again and again, from one shell on each: nothing is written there."""

import time
from collections.abc import Iterator, Mapping
from functools import partial

from fabbench.counters.snapshot import SNAPSHOT, Snapshot, read_snapshot
from fabbench.counters.watch import HostSamples, carries
from fabbench.execution.worker_pool import Results, map_hosts
from fabbench.model.errors import MachineError
from fabbench.model.mappings import Reasons, map_values
from fabbench.model.templates import text_of
from fabbench.remote.transport import ProcessStream, Transport

_ANSWER_S = 10.0
_END = "fabbench ends"
_SCRIPT = SNAPSHOT + text_of("fabbench.remote", "job.sh")


class HostShell:
    """A shell on a host that answers questions. It ends with the connection."""

    def __init__(self, connection: Transport | MachineError) -> None:
        """Start nothing yet."""
        self._connection = connection
        self._stream: ProcessStream | None = None

    def ask(self, question: str, limit_s: float = _ANSWER_S) -> list[str]:
        """Return what a command prints. Raise MachineError."""
        if isinstance(self._connection, MachineError):
            raise self._connection
        if self._stream is None:
            self._stream = self._connection.open(("sh", "-s"))
            self._stream.send(_SCRIPT.encode())
        # Its last line may have no end of its own
        self._stream.send(f"{question}; echo; echo {_END}\n".encode())
        lines = self._stream.answer(self._connection.name, limit_s, last=_END)
        if _END in lines:
            return lines[:-1]
        raise MachineError("No answer came in time.")


def _read(shell: HostShell, *, waits: bool) -> Snapshot:
    """Read all counters, with the loopback: a job of one host may use it. Raise MachineError.

    Who uses the devices is read once while a job is waited for, and once when it moves data.
    """
    question = f"fabbench_devices {waits}; fabbench_counters"
    return read_snapshot(shell.ask(question), loopback=True)


def _restart(hosts: Mapping[str, HostSamples]) -> None:
    for samples in hosts.values():
        samples.restart()


def rounds(
    connections: Results[Transport],
    hosts: Mapping[str, HostSamples],
    every_s: float,
    for_s: float,
    wait_s: float = 0.0,
) -> Iterator[Reasons]:
    """Sample all hosts at once, and again, into `hosts`; yield those that failed so far → why.

    Those are left out from then on; it ends after `for_s`, or when no host is left. With `wait_s`
    it counts from when NICs carry a job, and ends if none has for so long.
    """
    shells = map_values(HostShell, connections)
    failed: dict[str, str] = {}
    every_s = min(every_s, for_s)  # Of one sample there is no rate
    due = time.monotonic()
    at_the_end = every_s / 2  # A sample due at the very end is still taken
    waits = wait_s > 0
    end = due + (wait_s or for_s) + at_the_end
    while shells:
        read = partial(_read, waits=waits)
        for name, result in map_hosts(shells, read, len(shells)).items():
            if isinstance(result, Snapshot):
                hosts[name].take(result)
            else:
                failed[name] = str(result)
                shells.pop(name)
        yield failed
        if waits and carries(hosts):
            waits = False
            end = due + for_s + at_the_end
            _restart(hosts)
        due += every_s
        if due > end:
            return
        time.sleep(max(0.0, due - time.monotonic()))
