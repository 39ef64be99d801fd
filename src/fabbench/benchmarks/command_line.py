"""Command lines in a log: the program that each starts, its side of a pair, and its options."""

import getopt
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from fabbench.model.patterns import lazy

_PROMPTS = ("$ ", "# ", "> ", "+ ", "% ", "Running: ")
_STOP = lazy(r"(?:^|\s)(?:#|//|&|\||;|\d?>|<)")


class ProgramWords(NamedTuple):
    """A program that a line starts, and the words after it."""

    program: str  # without its directory
    words: list[str]


def read_words(text: str, program: re.Pattern[str], stop: re.Pattern[str] = _STOP) -> ProgramWords | None:
    """Read a line that starts a program; None for a line that only names it.

    `program`: a pattern whose first group is the name; `stop`: where its arguments end.
    """
    match = program.search(text)
    if match is None:
        return None
    prompt, rest = text[: match.start()], stop.split(text[match.end() :], maxsplit=1)[0]
    words = rest.split()
    folder = prompt.rsplit(maxsplit=1)[-1] if prompt and not prompt[-1].isspace() else ""
    if not any(sign in f"{prompt} " for sign in _PROMPTS) and (
        prompt.removesuffix(folder).strip() or not any(word.startswith("-") for word in words)
    ):
        return None
    # A manual's synopsis, with placeholders.
    if any(word.startswith(("[", "<")) for word in words):
        return None
    return ProgramWords(match[1], words)


class CommandLine(NamedTuple):
    """The options on a command line of libfabric's programs. None or empty: not given."""

    program: str  # without its directory
    side: str
    endpoint: str = ""
    size: int | None = None  # in bytes
    iterations: int | None = None

    @classmethod
    def of_facts(cls, program: str, side: str, facts: Mapping[str, str]) -> "CommandLine":
        """Build it from the facts in the begin marker of a step, for a program that fabbench started."""
        size, iterations = (_whole(facts.get(name, "")) for name in ("size", "iterations"))
        return cls(program, side, facts.get("endpoint", ""), size, iterations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """The command-line syntax of a program or a family of programs."""

    names: str  # a pattern for the programs' names
    short: str  # single-letter options, in getopt's notation
    long: tuple[str, ...] = ()
    optional: str = ""  # letters of options whose value may be omitted (``-E`` and ``-E=4000``)

    def read(self, text: str) -> CommandLine | None:
        """Read a line that starts a program; None for a line that only names it."""
        command = read_words(text, re.compile(rf"(?:^|(?<=[\s/]))(?:lt-)?({self.names})(?=\s|$)"))
        return self.read_arguments(*command) if command else None

    def read_arguments(self, program: str, words: list[str]) -> CommandLine | None:
        """Read the arguments of a program; None if they are not valid for it."""
        if any(word.startswith(("[", "<")) for word in words):
            return None
        kept = [word for word in words if not (word[:1] == "-" and word[1:2] and word[1] in self.optional)]
        try:
            options, operands = getopt.gnu_getopt(kept, self.short, list(self.long))
        except getopt.GetoptError:
            return None
        if len(operands) > 1:
            return None
        given = dict(options)
        return CommandLine(
            program=program,
            side="client" if operands else "server",
            endpoint=given.get("-e", ""),
            size=_whole(given.get("-S", "")),
            iterations=_whole(given.get("-I", "")),
        )


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None
