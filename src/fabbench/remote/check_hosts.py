"""Collects what a check needs from all hosts at once: probes, and connections between them.

The connections are real, on ports that the kernel chooses. One program on every host
(connect_probe.py) listens, and connects to its targets. It runs as long as the ssh connection, at
most 30 s, and writes no files.
"""

import re
import secrets
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from fabbench.execution.worker_pool import Results, failed, map_hosts, succeeded
from fabbench.hosts.check import Connection, HostRelations, Opening
from fabbench.hosts.discover import inventory
from fabbench.hosts.probe import read_probe, script
from fabbench.hosts.probe_result import Probe
from fabbench.model.errors import MachineError
from fabbench.model.hosts import Needs, Target
from fabbench.model.mappings import distinct, map_values, without_empty, without_none
from fabbench.model.messages import output_text
from fabbench.model.templates import text_of
from fabbench.model.values import frozen
from fabbench.remote.host import RemoteHost, UnwritableError
from fabbench.remote.transport import LostError, ProcessStream, Transport

_START_S = 20.0
_SHELL_S = 20.0
_PROBE_S = 60.0
_READY = "fabbench ready"
_CLOCK = "fabbench clock"
_END_OF_PROBE = "end\t"
_TRIED = re.compile(r"tried (\d{1,9}) ?(.*)")
_TRY_S = 8.0  # Longer than connect_probe.py's timeout for connections


@frozen
class ProbedHost:
    """Probe result of a host, with the open shell that it came from."""

    probe: Probe
    shell: ProcessStream
    clock_s: float | None = None
    """By how many seconds its clock is surely ahead of this machine's; None: not known."""


def pairs(names: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Choose which hosts connect: the first with each, in both directions, and a ring.

    mpirun's daemons connect to the first host, and the rings of collectives go from each host to
    the next.
    """
    head, *others = names
    with_head = [pair for other in others for pair in _both_ways(head, other)]
    ring = zip(names, (*others, head), strict=True) if others else ()
    return distinct((*with_head, *ring))


def _both_ways(one: str, other: str) -> tuple[tuple[str, str], ...]:
    return (one, other), (other, one)


def _try_connections(
    probed: Mapping[str, ProbedHost], addresses: Mapping[str, str]
) -> dict[tuple[str, str], Connection]:
    """Connect hosts to each other, all concurrently: (from, to) → result.

    No host's failure is raised.
    """
    requested = pairs(tuple(addresses))  # (from, to)
    tokens = {name: secrets.token_hex(8) for name in addresses}
    workers = len(addresses)  # All at once: a program listens for a short time only

    def listen(name: str) -> str:
        return _start_to_listen(name, probed[name], addresses[name], tokens[name])

    ports = map_hosts({name: name for name in addresses}, listen, workers)
    # The others have an error in place of a port: nothing connects to them, and they try nothing.
    listening = {name: name for name in succeeded(ports)}

    def attempt(name: str) -> dict[str, Connection]:
        # The host answers a line for each request: "tried NUMBER" and, if it failed, why.
        peers = [to for start, to in requested if start == name and to in listening]
        shell = probed[name].shell  # By now the program that listens, which reads requests
        requests = ""
        for number, peer in enumerate(peers):
            requests += f"{number} {addresses[peer]} {ports[peer]} {tokens[peer]}\n"
        _send(shell, requests)
        lines = shell.answer(name, _TRY_S, last="tried ", count=len(peers))
        connections: dict[str, Connection] = {}
        for match in filter(None, map(_TRIED.fullmatch, lines)):
            number = int(match[1])
            why = match[2]
            if number < len(peers):  # else it is no answer to these requests
                connections[peers[number]] = Connection(made=not why, why=why)
        return connections

    attempts = map_hosts(listening, attempt, workers)
    return {pair: _result_of_pair(pair, ports, attempts) for pair in requested}


def _start_to_listen(name: str, host: ProbedHost, address: str, token: str) -> str:
    """Replace a host's shell with the program, and return the port where it listens.

    Raise MachineError.
    """
    python = host.probe.tools.get("python3", "")
    if not python:
        raise MachineError(f"python3 was not found on {name}")
    program = text_of("fabbench.remote", "connect_probe.py")
    command = shlex.join((python, "-I", "-S", "-c", program, address, token))
    _send(host.shell, f"exec {command}\n")
    for line in host.shell.answer(name, _START_S, last=""):  # "": up to the first line, any one
        kind, _, rest = line.partition(" ")
        if kind == "port" and rest.isdecimal():
            return rest
        if kind == "error":
            raise MachineError(f"{name} cannot listen at {address}: {rest}")
    raise MachineError(f"{name} did not start to listen")


def _result_of_pair(
    pair: tuple[str, str],
    ports: Results[str],
    attempts: Results[dict[str, Connection]],
) -> Connection:
    """Return what became of a connection: an error of either host says why it was not tried.

    `ports` and `attempts` have the answers of each host: to listening, and to its requests.
    """
    tester, peer = pair
    attempted = attempts.get(tester)  # None: it does not listen, and `ports` says why
    for result in (ports[tester], ports[peer], attempted):
        if isinstance(result, MachineError):
            return Connection(made=None, why=str(result))
    if isinstance(attempted, dict) and peer in attempted:
        return attempted[peer]
    return Connection(made=None, why=f"{tester} did not report the result")


def _send(shell: ProcessStream, text: str) -> None:
    # If the program accepts no more input, its lines tell what it printed, or that the connection
    # broke.
    with suppress(LostError):
        shell.send(text.encode())


def host_relations(target: Target, probed: Mapping[str, ProbedHost]) -> HostRelations:
    """Have probed hosts connect to each other, and return their relations.

    Raise MachineError if the address of every host failed to be found. A host without an address
    has a result for each of its connections, too: why it was not tried.
    """

    def address_of(name: str) -> str:
        # Of this host alone, and without needs: what it lacks is for other checks to say.
        hosts = inventory(target, {name: probed[name].probe}, Needs()).hosts
        return hosts[0].address

    answers = map_hosts({name: name for name in probed}, address_of)  # an address, or an error
    addresses = succeeded(answers)
    for error in failed(answers).values():
        if not addresses:
            raise error  # Most likely all for one reason, as a wrong --interface
    known = without_empty(addresses)
    connections = _try_connections(probed, known) if len(known) > 1 else {}
    for name, answer in answers.items():
        if name in known:
            continue
        untried = _without_address(name, answer)
        for other in probed.keys() - {name}:
            connections |= dict.fromkeys(_both_ways(name, other), untried)
    ahead_s = {name: each.clock_s for name, each in probed.items()}
    clocks = without_none(ahead_s)
    return HostRelations(addresses=addresses, connections=connections, clocks=clocks)


def _without_address(name: str, answer: str | MachineError) -> Connection:
    """Return the result of all connections of a host that has no address."""
    if isinstance(answer, MachineError):
        return Connection(made=False, why=in_one_line(answer))
    return Connection(made=None, why=f"{name} did not report its address")


def try_to_open(connections: Mapping[str, Transport]) -> dict[str, Opening]:
    """Start the agent on hosts, as a run does, and remove it: name → what became of it."""
    token = secrets.token_hex(6)
    hosts = {
        name: RemoteHost(name, each, token=token, lost_after_s=_PROBE_S)
        for name, each in connections.items()
    }
    results = map_hosts(hosts, _start_and_clean)
    return map_values(_opening, results)


def _start_and_clean(host: RemoteHost) -> None:
    try:
        host.start()
    finally:
        host.clean()


def _opening(result: MachineError | None) -> Opening:
    # What a host does with fabbench's agent: without an error it writes and starts it.
    if result is None:
        return Opening()  # Both, by default
    writes = not isinstance(result, UnwritableError)
    return Opening(writes=writes, starts=False, why=in_one_line(result) + ".")


def probe_in_shell(connection: Transport, host: str, arguments: Sequence[str]) -> ProbedHost:
    """Probe a host; `arguments` are the probe's. Raise MachineError that names it `host`."""
    started = time.monotonic()
    shell = connection.open(("sh", "-s", "--", *arguments))
    _send(shell, f"echo {_READY}\n")
    # Text that the login itself prints is not part of the answer, but worth reporting.
    noise = shell.answer(host, _SHELL_S, last=_READY)
    if _READY not in noise:
        took_s = time.monotonic() - started
        printed = output_text(noise[-2:])
        raise MachineError(
            f"Login to {host} succeeded, but no shell answered in {took_s:.0f} s: {printed}",
            hint="The user needs a login shell, and sh in its PATH. Its home or startup files may "
            "be hanging.",
        )
    noise.remove(_READY)
    clock_s = _ahead_s(shell, host)
    _send(shell, script())
    answer = shell.answer(host, _PROBE_S, last=_END_OF_PROBE)
    probe = read_probe([*noise, *answer])
    return ProbedHost(probe=probe, shell=shell, clock_s=clock_s)


def _ahead_s(shell: ProcessStream, host: str) -> float | None:
    """Return by how many seconds a host's clock is surely ahead of this one; negative: behind.

    None: not known.
    """
    before = time.time()
    _send(shell, f"echo {_CLOCK} $(date +%s.%N)\n")
    answer = shell.answer(host, _SHELL_S, last=_CLOCK)
    after = time.time()
    try:
        clock_s = float(answer[-1].removeprefix(_CLOCK))
    except (IndexError, ValueError):
        return None
    # It was read between `before` and `after`: only what is beyond these is certain.
    return max(clock_s - after, 0.0) + min(clock_s - before, 0.0)


def in_one_line(error: MachineError) -> str:
    """Return an error with its advice."""
    if not error.hint:
        return str(error)
    sentence = str(error).rstrip(".")
    hint = error.hint.rstrip(".")
    return f"{sentence} ({hint})"
