"""How mpirun on one host starts its daemons on the others: fabbench runs the commands.

mpirun calls an agent (relay.sh) as it would call ssh. The agent sends its request to fabbench,
through a program that fabbench runs on the same host, and gets the output and the exit status of
the command; fabbench is connected to all hosts. So hosts need no keys for each other, and pods need
no sshd.
"""

import base64
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from fabbench.execution.background import in_background
from fabbench.execution.worker_pool import OutputQueue, map_hosts, require_all
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Inventory
from fabbench.model.plan import Words
from fabbench.model.templates import text_of
from fabbench.remote.host import RemoteHost
from fabbench.remote.session import MARK, AgentStream, RemoteProcess

_WAKE_S = 0.5
_FAILED = 255  # ssh's exit status if it was not the command that failed


@contextmanager
def relay(
    inventory: Inventory, remotes: Sequence[RemoteHost], *, any_head: bool
) -> Iterator[Words]:
    """Yield the command by which mpirun reaches the hosts; empty for one host.

    What it starts ends with the run.

    mpirun runs on the first host, or with `any_head` on any.
    """
    if len(remotes) < 2:
        yield ()
        return
    # A variant may see the same hosts, in the same order, by other addresses.
    views = inventory.variants.values() or (inventory.hosts,)
    by_address: dict[str, RemoteHost] = {}
    for hosts in views:
        addresses = (host.address for host in hosts)
        by_address |= zip(addresses, remotes, strict=True)
    heads = remotes if any_head else remotes[:1]
    relays = {head.name: _Relay(head, by_address) for head in heads}
    try:
        require_all(map_hosts(relays, _Relay.start))
        yield relays[remotes[0].name].agent  # all hosts have the same folder
    finally:
        for each in relays.values():
            each.close()


class _Relay:
    """The requests of one agent, each run by its own thread."""

    def __init__(self, head: RemoteHost, by_address: Mapping[str, RemoteHost]) -> None:
        self._head = head
        self._by_address = by_address
        self._script = f"{head.folder}/relay/relay.sh"
        self.agent = ("sh", self._script, f"{head.folder}/relay")  # What mpirun calls as its ssh
        self._stream = AgentStream(head, "relay")
        self._sending = threading.Lock()
        self._closing = threading.Event()
        self._names_seen: set[str] = set()  # Of requests
        self._statuses: dict[str, int] = {}  # Request that has ended → exit status

    def start(self) -> None:
        """Install the agent, and serve its requests in a thread."""
        script = text_of("fabbench.remote", "relay.sh")
        self._head.put({self._script: script.encode()})
        self._stream.open()
        in_background(self._serve, name="relay")

    def close(self) -> None:
        """Accept no more requests. What still runs is ended with everything else of the run."""
        self._closing.set()
        self._stream.close()

    def _serve(self) -> None:
        """Serve requests; after a reconnect, the agent repeats those without an answer."""
        # The host may be lost or released: mpirun's stream raises it too.
        with suppress(MachineError):
            for lines in self._stream.batches():
                for line in lines:
                    self._handle_request(line)

    def _handle_request(self, line: str) -> None:
        """Run what ``request NAME BASE64`` asks for, once: an address, a newline, a command.

        If it comes again, its answer was lost, and is sent again.
        """
        _, name, text = line.split(" ", 2)
        if name in self._statuses:
            self._send(name, f"ended {self._statuses[name]}")
        elif name not in self._names_seen:
            self._names_seen.add(name)
            address, _, command = base64.b64decode(text).decode().partition("\n")
            command = command.rstrip("\n")
            in_background(self._run_and_answer, name, address, command, name="mpirun's daemon")

    def _run_and_answer(self, name: str, address: str, command: str) -> None:
        """Run a command, and send what it prints and how it ends."""
        status = _FAILED
        try:
            status = self._run_daemon(name, address, command)
        except MachineError as error:
            self._send(name, f"out fabbench: {error}")
        self._statuses[name] = status
        self._send(name, f"ended {status}")

    def _run_daemon(self, name: str, address: str, command: str) -> int:
        """Run a command on the host with this address; return its exit status."""
        remote = self._by_address.get(address)
        if remote is None:
            raise MachineError(f"mpirun requested {address}, which is not a host of this run.")
        output = OutputQueue()
        # Its mark and its files' folder, by which the agent ends and removes all of a run.
        words = ("env", f"{MARK}={remote.token}", f"TMPDIR={remote.folder}", "sh", "-c", command)
        try:
            RemoteProcess("mpirun's daemon", remote, f"relay-{name}", words).start(output)
            return self._forward_output(name, output)
        finally:
            output.leave()

    def _forward_output(self, name: str, output: OutputQueue) -> int:
        """Send what a command prints until it ends; return its status."""
        while not self._closing.is_set():
            item = output.get(_WAKE_S)
            if item is None:
                continue
            if item.status is not None:
                return item.status
            for text in item.texts:
                self._send(name, f"out {text}")
        return _FAILED

    def _send(self, name: str, text: str) -> None:
        """Send one line to the agent. It requests lost lines again, except for output."""
        with self._sending:
            self._stream.send(f"{name} {text}\n".encode())
