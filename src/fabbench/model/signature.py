"""By which line a text is known."""

from typing import NamedTuple


class Signature(NamedTuple):
    """A line that only one benchmark prints. Any text before it is a launcher's prefix."""

    word: str
    """A word of the line, searched for first."""
    pattern: str
    """A regular expression that matches from the first nonblank character of the program's."""
    begins: bool = True
    """Whether results follow: true for a banner or a header, false for a footer."""
