"""Whether hosts reach each other: real connections between them, on ports that the kernel chooses.

On every host one program (contact.py or contact.pl) listens, and connects to its targets. It lives as long as
the ssh connection, at most 30 s, and writes nothing.
"""

import secrets
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fabbench.check import Connection, Contact
from fabbench.errors import MachineError
from fabbench.remote.pool import each
from fabbench.remote.shell import Conversation

_START_S = 20.0
_TRY_S = 8.0
"""Longer than what contact.py gives its connections."""
_NEITHER = "there is neither python3 nor perl on {}"
_EXEC_SCRIPT = """\
if [ -n {python} ]; then exec {python} -I -S -c {script} {arguments}
elif command -v perl >/dev/null 2>&1; then exec perl -e {perl} {arguments}
else printf 'error neither\\n'; fi
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Party:
    """One host that takes part."""

    name: str
    sh: Conversation
    address: str
    """Where the others reach it."""
    python: str
    """Path of its python3; empty: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listening:
    """What a host's program said: where it listens, or why it does not."""

    port: str = ""
    why: str = ""


def pairs(names: Sequence[str], *, full: bool) -> tuple[tuple[str, str], ...]:
    """Choose who connects to whom: the first with each, both ways, and a ring; or all with all.

    mpirun's daemons connect to the first host, and the rings of collectives go from each host to the next.
    """
    if full:
        return tuple((one, other) for one in names for other in names if one != other)
    head, others = names[0], names[1:]
    star = [pair for other in others for pair in ((head, other), (other, head))]
    ring = zip(names, (*others, head), strict=True)
    return tuple(dict.fromkeys(pair for pair in (*star, *ring) if pair[0] != pair[1]))


def try_connections(parties: Sequence[Party], *, full: bool) -> dict[tuple[str, str], Connection]:
    """Let hosts connect to each other, all at the same time. Never raises for a host."""
    by_name = {party.name: party for party in parties}
    wanted = pairs(tuple(by_name), full=full)
    words = {name: secrets.token_hex(8) for name in by_name}
    workers = len(parties)
    ports = {
        name: _Listening(why=str(told)) if isinstance(told, MachineError) else told
        for name, told in each(by_name, lambda party: _listen(party, words[party.name]), workers).items()
    }
    able = {name: party for name, party in by_name.items() if ports[name].port}
    targets = {name: [b for a, b in wanted if a == name and ports[b].port] for name in able}

    def attempt(party: Party) -> dict[str, Connection]:
        to = targets[party.name]
        calls = [f"{n} {by_name[b].address} {ports[b].port} {words[b]}\n" for n, b in enumerate(to)]
        return _attempt(party, to, "".join(calls))

    tried = each(able, attempt, workers)
    return {pair: _outcome(pair, ports, tried) for pair in wanted}


@cache
def _programs() -> tuple[str, str]:
    """Give the text of the program, in Python and in Perl."""
    folder = files("fabbench.remote")
    python, perl = ((folder / name).read_text("utf-8") for name in ("contact.py", "contact.pl"))
    return python, perl


def _listen(party: Party, word: str) -> _Listening:
    """Turn a host's shell into the program."""
    script, perl = _programs()
    words = {"python": party.python, "script": script, "perl": perl}
    quoted = {key: shlex.quote(text) for key, text in words.items()}
    party.sh.send(_EXEC_SCRIPT.format(**quoted, arguments=shlex.join((party.address, word))))
    for line in party.sh.until("", _START_S):
        kind, _, rest = line.partition(" ")
        if kind == "port" and rest.isdecimal():
            return _Listening(port=rest)
        if line == "error neither":
            return _Listening(why=_NEITHER.format(party.name))
        if kind == "error":
            return _Listening(why=f"{party.name} cannot listen at {party.address}: {rest}")
    return _Listening(why=f"{party.name} did not start to listen")


def _attempt(party: Party, to: Sequence[str], calls: str) -> dict[str, Connection]:
    """Let one host connect to its targets."""
    party.sh.send(calls)
    return dict(_read(to, party.sh.until("tried ", _TRY_S, count=len(to))))


def _read(to: Sequence[str], lines: Sequence[str]) -> Iterator[tuple[str, Connection]]:
    for line in lines:
        word, _, rest = line.partition(" ")
        number, _, why = rest.partition(" ")
        if word == "tried" and number.isdecimal() and int(number) < len(to):
            yield to[int(number)], Connection(contact=Contact.FAILED if why else Contact.OK, why=why)


def _outcome(
    pair: tuple[str, str],
    ports: Mapping[str, _Listening],
    tried: Mapping[str, dict[str, Connection] | MachineError],
) -> Connection:
    for name in pair:
        if not ports[name].port:
            return Connection(contact=Contact.UNTRIED, why=ports[name].why)
    told = tried[pair[0]]
    if isinstance(told, MachineError):
        return Connection(contact=Contact.UNTRIED, why=str(told))
    missing = Connection(contact=Contact.UNTRIED, why=f"{pair[0]} did not say what came of it")
    return told.get(pair[1], missing)
