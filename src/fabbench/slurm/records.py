"""What ``scontrol show … --oneliner`` prints → fields. Pure.

A record is one line of ``Name=value`` words. Values may hold blanks (``Reason=Not responding [root@…]``):
they go on up to the next name, which begins with a capital letter. Read of Slurm 22.05; later versions add
fields.
"""

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias

Fields: TypeAlias = Mapping[str, str]
"""Name → value. ``(null)``, ``N/A`` and ``None`` are empty."""

_NAME = re.compile(r"(?:^| )([A-Z][A-Za-z0-9_:/]*)=")
_NOTHING = frozenset({"(null)", "N/A", "None", "Unknown"})


def record(line: str) -> dict[str, str]:
    """Read one record; empty where the line is none."""
    names = list(_NAME.finditer(line))
    ends = [match.start() for match in names[1:]] + [len(line)]
    found = {match[1]: line[match.end() : end].strip() for match, end in zip(names, ends, strict=False)}
    return {name: "" if value in _NOTHING else value for name, value in found.items()}


def records(lines: Iterable[str], first: str) -> list[dict[str, str]]:
    """Read all records whose first field is `first`; other lines are left out."""
    return [record(line) for line in lines if line.startswith(f"{first}=")]
