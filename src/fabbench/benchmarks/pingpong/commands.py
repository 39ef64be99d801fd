"""A ``fi_pingpong …`` command line in a log: which side it starts, and what it asks for."""

import getopt
import re
from typing import NamedTuple

_PROGRAM = re.compile(r"(?:^|(?<=[\s/]))fi_pingpong(?=\s|$)")
_PROMPTS = ("$ ", "# ", "> ", "+ ", "% ", "Running: ")
_STOP = re.compile(r"(?:^|\s)(?:#|//|&|\||;|\d?>|<)")


class Asked(NamedTuple):
    """What a command line asks for. None or empty: it does not say."""

    side: str
    endpoint: str = ""
    size: int | None = None
    iterations: int | None = None


def read_command(text: str) -> Asked | None:
    """Read a command line that starts fi_pingpong; None for a line that merely names it."""
    match = _PROGRAM.search(text)
    if match is None:
        return None
    prompt, rest = text[: match.start()], _STOP.split(text[match.end() :], maxsplit=1)[0]
    try:
        options, operands = getopt.gnu_getopt(rest.split(), "B:P:d:p:f:e:s:I:S:m:chv6")
    except getopt.GetoptError:
        return None
    if len(operands) > 1 or any(word.startswith(("[", "<")) for word in rest.split()):
        return None
    folder = prompt.rsplit(maxsplit=1)[-1] if prompt and not prompt[-1].isspace() else ""
    if not any(sign in prompt + " " for sign in _PROMPTS) and (
        prompt.removesuffix(folder).strip() or not options
    ):
        return None
    given = dict(options)
    return Asked(
        side="client" if operands else "server",
        endpoint=given.get("-e", ""),
        size=_whole(given.get("-S", "")),
        iterations=_whole(given.get("-I", "")),
    )


def _whole(text: str) -> int | None:
    return int(text) if re.fullmatch(r"\d{1,18}", text) else None
