"""Command lines in logs: which program a line starts, and with which words. Pure."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from fabbench.model.patterns import lazy
from fabbench.model.units import parse_whole

_PROMPTS = ("$ ", "# ", "> ", "+ ", "% ", "Running: ")
_STOP = lazy(r"(?:^|\s)(?:#|//|&|\||;|\d?>|<)")
_SETTING = lazy(r"(?:^|(?<=\s))[A-Za-z_]\w*=\S*(?=\s)")
"""A variable, set for the program."""
_PLACEHOLDERS = ("[", "<")
"""Begin a word in the synopsis of a manual."""


class CommandLine(NamedTuple):
    """A line that starts a program."""

    program: str
    """Without its directory."""
    words: list[str]

    @property
    def arguments(self) -> str:
        """The words behind the program."""
        return " ".join(self.words)


def read_command_line(
    text: str, program: re.Pattern[str], stop: re.Pattern[str] = _STOP
) -> CommandLine | None:
    """Read a line that starts a program; None for other lines.

    `program`: a pattern whose first group is the name; `stop`: where its arguments end.
    """
    match = program.search(text)
    if match is None:
        return None
    before = text[: match.start()]  # a prompt, settings, or prose
    if before.startswith("##"):  # a heading in Markdown; a single hash is the prompt of root
        before = before.lstrip("# ")
    behind = text[match.end() :]
    end = stop.search(behind)
    words = behind[: end.start() if end else None].split()
    # Without a prompt, only options behind the name tell a command from a sentence.
    if not _has_prompt(before) and (_is_prose(before) or not _has_option(words)):
        return None
    # A synopsis names options, and starts nothing.
    if any(word.startswith(_PLACEHOLDERS) for word in words):
        return None
    return CommandLine(match[1], words)


def whole_number(given: Mapping[str, str], name: str) -> int | None:
    """Return an option or a fact as a number; None if it is not given, or is none (``-S all``)."""
    return parse_whole(given.get(name, ""))


def _has_prompt(before: str) -> bool:
    return any(sign in f"{before} " for sign in _PROMPTS)


def _is_prose(before: str) -> bool:
    """Return whether more than settings and the program's folder stands before its name."""
    folder = ""
    if before and not before[-1].isspace():
        folder = before.rsplit(maxsplit=1)[-1]
    return bool(_SETTING.sub("", before.removesuffix(folder)).strip())


def _has_option(words: list[str]) -> bool:
    return any(word.startswith("-") for word in words)
