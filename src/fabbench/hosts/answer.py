"""A probe's answer as it came: lines ``SECTION<TAB>TEXT``, by section, whatever they mean."""

import re
from collections.abc import Iterable

from fabbench.hosts.found import Ran

_NUMBER = re.compile(r"[0-9]{1,18}")
_SAID = 5
"""Lines kept of what a program said."""
_SHOWN = 200


class Answer:
    """What a host printed. `unread` grows while it is read: it says what could not be."""

    def __init__(self, lines: Iterable[str], known: frozenset[str]) -> None:
        self.unread: list[str] = []
        self._sections: dict[str, list[str]] = {}
        for line in lines:
            section, tab, text = line.rstrip("\r\n").partition("\t")
            if tab and section.removesuffix(".status") in known:
                self._sections.setdefault(section, []).append(text)
            elif line.strip():
                self.cannot_read("not from the probe", line.strip())

    def cannot_read(self, what: str, text: str) -> None:
        """Note something that could not be read."""
        self.unread.append(f"{what}: {text[:_SHOWN]}")

    def all(self, section: str) -> list[str]:
        """Give a section's lines."""
        return self._sections.get(section, [])

    def first(self, section: str) -> str:
        """Give a section's first line; empty where it has none."""
        return next(iter(self.all(section)), "").strip()

    def ran(self, section: str) -> Ran:
        """Give the end of the program that printed a section, and what it said first."""
        said = tuple(line for line in self.all(section) if line.strip())[:_SAID]
        return Ran(status=self.number(f"{section}.status", self.first(f"{section}.status")), said=said)

    def number(self, what: str, text: str) -> int | None:
        """Read a whole number; noted where it is none, unless it is empty."""
        if _NUMBER.fullmatch(text):
            return int(text)
        if text:
            self.cannot_read(what, text)
        return None
