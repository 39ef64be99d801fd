"""What SkyPilot's log says of the end of a job. Pure."""

import re
from typing import NamedTuple

_FINE = "SUCCEEDED"
_FINISHED = re.compile(r"\W{0,3}Job finished \(status: (\w+)\)\.")
_NODE = re.compile(r"\([^()]*pid=\d+[^()]*\) ")
_ECHO = re.compile(
    r"ERROR: Job \d+ failed with return code"
    r"|srun: error: .*: (?:Exited with exit code \d+|Terminated|Killed)$"
)


class Ended(NamedTuple):
    """How a job ended."""

    status: str
    """As SkyPilot calls it: ``SUCCEEDED``, ``FAILED``, ``FAILED_SETUP``, ``CANCELLED``."""

    @property
    def fine(self) -> bool:
        """Whether everything went well."""
        return self.status == _FINE


def ended(line: str) -> Ended | None:
    """Read the last line of a job's log; None for any other line."""
    match = _FINISHED.fullmatch(line.strip())
    return Ended(match[1]) if match else None


def prefix(line: str) -> str:
    """Give SkyPilot's prefix of a node's line; empty where a line has none, and so is no node's."""
    match = _NODE.match(line)
    return match[0] if match else ""


def echo(line: str) -> bool:
    """Whether a line says no more than that the job's script ended as it did."""
    return bool(_ECHO.match(line.strip()))


def failed(number: int, end: Ended, last: str) -> str:
    """Write the line that says in a log that a job failed, which `fabbench.launches` knows.

    `last` is the last that the job printed.
    """
    return f"fabbench: SkyPilot ended job {number} as {end.status}{f': {last}' if last else '.'}"
