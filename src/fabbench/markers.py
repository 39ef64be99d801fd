"""The marker lines that fabbench writes around each step, and the tag before each line of a pair.

``#@fabbench begin 000-shm-r1/64 benchmark=pingpong size=64`` … ``#@fabbench end 000-shm-r1/64 0``, and
``[fabbench:server] text``. With them one log can hold several steps, sides and repeats, and be read again.
What ``#@fabbench nics 000-tcp-r1 …`` says of a trial is in `fabbench.counters.printed`.
"""

import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

SIGN = "#@fabbench "
_MARKER = re.compile(r"#@fabbench (begin|end|nics) (\S+)(?: (.*))?")


class Marker(NamedTuple):
    """One marker line. `trial` is the step's id up to the slash."""

    kind: str
    """`begin`, `end` or `nics`."""
    step: str
    """Its id; in a `nics` marker that of the trial."""
    facts: Mapping[str, str]
    """What the marker says (`benchmark`, `size`, …); nothing in an end marker."""
    status: int | None
    """Exit status in an end marker; None: it was not seen."""

    @property
    def trial(self) -> str:
        """The trial that the step belongs to."""
        return self.step.partition("/")[0]

    @property
    def name(self) -> str:
        """The step, without its trial."""
        return self.step.partition("/")[2] or self.step

    def other(self, fact: str, used: str, side: str = "") -> str:
        """Say in a sentence that a side used something else than the marker says; empty if it did not.

        What the server is to use is in ``server_FACT`` where it is not the same.
        """
        wanted = (self.facts.get(f"server_{fact}") if side == "server" else None) or self.facts.get(fact)
        if not wanted or used == wanted:
            return ""
        who = f"the {side} used" if side else "it was"
        return f"Step {self.name} was asked for on {fact} {wanted}, but {who} {used}."


def begin(step: str, facts: Mapping[str, str | int]) -> str:
    """Write the marker line before a step."""
    return f"{SIGN}begin {step} {words(facts)}".rstrip()


def words(facts: Mapping[str, str | int]) -> str:
    """Write what a marker says."""
    return " ".join(shlex.quote(f"{key}={value}") for key, value in facts.items())


def end(step: str, status: int | None) -> str:
    """Write the marker line after a step."""
    return f"{SIGN}end {step} {'?' if status is None else status}"


def tag(side: str, text: str) -> str:
    """Write a line of one side of a pair."""
    return f"[fabbench:{side}] {text}"


def read_marker(text: str) -> Marker | None:
    """Read a marker line; None for any other line, also for a marker that is cut."""
    match = _MARKER.fullmatch(text)
    if match is None:
        return None
    kind, step, rest = match.groups()
    if kind == "end":
        if rest is None or not re.fullmatch(r"\?|-?\d{1,6}", rest):
            return None
        return Marker(kind, step, {}, None if rest == "?" else int(rest))
    try:
        said = shlex.split(rest or "")
    except ValueError:
        return None
    facts = dict(word.split("=", 1) for word in said if "=" in word)
    return Marker(kind, step, facts, None)
