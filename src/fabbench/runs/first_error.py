"""What a program that failed said itself, in its first line about an error."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.model.log import MARKER_SIGN
from fabbench.model.messages import quoted

_ERROR = re.compile(
    r"\b(?:error|usage|fail(?:ed|ure|s)?|cannot|can't|could not|couldn't|unable|not found|no such"
    r"|unknown|unrecognized|invalid|denied|illegal|fault|abort(?:ed)?|exception|exceeded|r\^2)\b",
    re.IGNORECASE,
)
_STANDARD_ERROR = "<stderr>"
_MOST_LINES = 20_000


def first_error(log: Path) -> str:
    """Return the first line of a log that a program printed itself about an error; empty: none.

    What its launcher says of it only follows, and counts if there is nothing else.
    """
    try:
        with log.open(encoding="utf-8", errors="replace") as lines:
            return first_error_line(lines)
    except OSError:
        return ""


def first_error_line(lines: Iterable[str]) -> str:
    """Return the same of the lines of a log."""
    of_launcher = ""
    for text, is_programs_own in _errors(lines):
        if is_programs_own:
            return quoted(text)
        of_launcher = of_launcher or text
    return quoted(of_launcher)


def _errors(lines: Iterable[str]) -> Iterator[tuple[str, bool]]:
    """Yield the lines about errors, and whether a rank or a side printed them."""
    prefixes = Prefixes()
    for _, raw in zip(range(_MOST_LINES), lines, strict=False):
        if raw.startswith((MARKER_SIGN, "fabbench: ")):
            continue
        line = raw.rstrip("\n")
        text, stream = prefixes.cut(line)
        tag = line.removesuffix(text)
        if _ERROR.search(text):
            yield text.strip(), bool(stream.rank or stream.side)
        elif _STANDARD_ERROR in tag and text.strip(" -=*"):
            yield text.strip(), True
