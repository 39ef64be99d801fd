"""Programs in pairs: a server on one host, and a client on another."""

from collections.abc import Mapping

from fabbench.model.plan import Command, Step
from fabbench.model.units import format_size

PORT = "{port}"
"""A word of a command: a free port, when it runs."""
SERVER = "{server}"
"""A word of a command: the server's address, when it runs."""


def pair_step(
    execution: str,
    commands: tuple[Command, ...],
    facts: Mapping[str, str | int],
    *,
    timeout_s: float,
) -> Step:
    """Return the step of a server and a client.

    It is named after the `device` and the `size` in its facts, where it has them.
    """
    device = str(facts.get("device", ""))
    size = facts.get("size")
    named = "all" if size is None else str(size)
    shown = "all sizes" if size is None else format_size(int(size))
    return Step(
        id=f"{execution}/{device}-{named}" if device else f"{execution}/{named}",
        label=f"{device} {shown}".strip(),
        commands=commands,
        timeout_s=timeout_s,
        facts=facts,
    )
