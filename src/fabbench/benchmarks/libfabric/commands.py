"""Command lines of libfabric's programs in a log: which side each starts, and what it asks for."""

import getopt
import re
from dataclasses import dataclass
from typing import NamedTuple

_PROMPTS = ("$ ", "# ", "> ", "+ ", "% ", "Running: ")
_STOP = re.compile(r"(?:^|\s)(?:#|//|&|\||;|\d?>|<)")


class Asked(NamedTuple):
    """What a command line asks for. None or empty: it does not say."""

    program: str
    """Without its folder."""
    side: str
    endpoint: str = ""
    size: int | None = None
    iterations: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Syntax:
    """How a program, or a family of programs, is called."""

    names: str
    """A pattern of the programs' names."""
    short: str
    """Options of one letter, as getopt has them."""
    long: tuple[str, ...] = ()
    optional: str = ""
    """Letters of options whose value may be left out (``-E`` and ``-E=4000``)."""

    def command(self, text: str) -> Asked | None:
        """Read a line that starts a program; None for a line that merely names it."""
        match = re.search(rf"(?:^|(?<=[\s/]))(?:lt-)?({self.names})(?=\s|$)", text)
        if match is None:
            return None
        prompt, rest = text[: match.start()], _STOP.split(text[match.end() :], maxsplit=1)[0]
        words = rest.split()
        folder = prompt.rsplit(maxsplit=1)[-1] if prompt and not prompt[-1].isspace() else ""
        if not any(sign in prompt + " " for sign in _PROMPTS) and (
            prompt.removesuffix(folder).strip() or not any(word.startswith("-") for word in words)
        ):
            return None
        return self.arguments(match[1], words)

    def arguments(self, program: str, words: list[str]) -> Asked | None:
        """Read the arguments of a program; None if they cannot be its own."""
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
        return Asked(
            program=program,
            side="client" if operands else "server",
            endpoint=given.get("-e", ""),
            size=_whole(given.get("-S", "")),
            iterations=_whole(given.get("-I", "")),
        )


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,18}", text, re.ASCII) else None
