"""Reaching the hosts that a user names, and asking them what they have."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from fabbench.errors import MachineError, RequestError
from fabbench.hosts.found import Probe
from fabbench.hosts.probe import probe_arguments, read_probe, script
from fabbench.inventory import folders, programs
from fabbench.machines import Needs, Where
from fabbench.remote.connection import Connection
from fabbench.remote.pool import connect_all
from fabbench.remote.settings import all_settings
from fabbench.remote.way import Way
from fabbench.variants import AS_IT_IS, Variant

T = TypeVar("T")

_PROBE_S = 60.0
_SHOWN = 5


@contextlib.contextmanager
def connected(
    where: Where, names: Sequence[str], on_progress: Callable[[int], None] | None = None
) -> Iterator[Mapping[str, Connection | MachineError]]:
    """Connect to hosts; `on_progress` gets the number of those done. All are closed at the end."""
    settings = where.settings
    found = connect_all(
        all_settings(
            names,
            config=settings.get("ssh_config"),
            user=settings.get("user"),
            port=settings.get("port"),
            identity=settings.get("identity"),
        ),
        accept_new=bool(settings.get("accept_new_host_keys")),
        on_progress=on_progress,
    )
    try:
        yield found
    finally:
        for connection in found.values():
            if isinstance(connection, Connection):
                connection.close()


def probe(connection: Way, where: Where, needs: Needs, variant: Variant = AS_IT_IS) -> Probe:
    """Ask a host everything. Raises MachineError where it does not answer."""
    # On standard input: the command line stays short, and any login shell can read it.
    asked = ("sh", "-s", "--", *probe_arguments(programs(needs), folders(where), variant.paths))
    settings = (f"{name}={value}" for name, value in variant.env.items())
    argv = ("env", *settings, *variant.words(asked))
    done = connection.run(argv, stdin=script().encode(), timeout_s=_PROBE_S)
    return read_probe(done.out)


def host_names(where: Where) -> tuple[str, ...]:
    """Choose the hosts. Raises RequestError where none, or too few, or one twice is named."""
    if not where.hosts:
        raise RequestError(
            "No host is named.", hint="Name each with --host, or a target of fabbench.yaml with --on."
        )
    twice = {name for name in where.hosts if where.hosts.count(name) > 1}
    if twice:
        raise RequestError(f"{', '.join(sorted(twice))} is named twice.", hint="Name every host once.")
    if where.nodes is not None and where.nodes > len(where.hosts):
        raise RequestError(f"{where.nodes} nodes are wanted, and {len(where.hosts)} hosts are named.")
    return where.hosts[: where.nodes]


def all_well(found: Mapping[str, T | MachineError]) -> dict[str, T]:
    """Raise MachineError that says what every host that failed said, and what to do about each."""
    failed = {name: result for name, result in found.items() if isinstance(result, MachineError)}
    if failed:
        shown = list(failed.items())[:_SHOWN]
        more = f" And {len(failed) - _SHOWN} more hosts." if len(failed) > _SHOWN else ""
        hints = {name: error.hint for name, error in shown if error.hint}
        if len(set(hints.values())) > 1:
            hints = {name: f"For {name}: {hint}" for name, hint in hints.items()}
        hint = " ".join(dict.fromkeys(hints.values()))
        raise MachineError(" ".join(str(error) for _, error in shown) + more, hint=hint or None)
    return {name: result for name, result in found.items() if not isinstance(result, MachineError)}
