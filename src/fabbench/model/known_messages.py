"""What clusters and hosts say and what it means: the records of a table of messages. Pure."""

import re
from functools import cache

import msgspec

from fabbench.model import records
from fabbench.model.mappings import Variables
from fabbench.model.messages import shorten
from fabbench.model.values import frozen

_FLAGS = re.IGNORECASE | re.DOTALL


class KnownMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message: a record of a table such as messages.toml or job_errors.toml."""

    on: str = ""
    """What the message is about, where a table has messages on several things; empty: any."""
    pattern: str = ""
    """It occurs in the message; empty: the record is for all others."""
    code: str
    text: str = "{subject}: {message}."
    """What is said of it, with places for values, for the message and for the pattern's groups."""
    advice: str = ""
    final: bool = True
    """Whether waiting is pointless."""
    example: str
    counterexample: str = ""

    def match(self, message: str) -> re.Match[str] | None:
        """Return where the pattern occurs in a message; an empty one does in all."""
        return re.search(self.pattern, message, _FLAGS)

    def explain(self, message: str, values: Variables) -> "Explanation | None":
        """Return what a message means; None: the pattern does not occur in it."""
        match = self.match(message)
        if match is None:
            return None
        places = {"message": shorten(message), **values, **match.groupdict()}
        return Explanation(
            code=self.code,
            text=self.text.format(**places),
            advice=self.advice.format(**places),
            final=self.final,
        )


@frozen
class Explanation:
    """What a message means: why a pod does not run, what ended a job."""

    code: str  # A word or two, machine-readable: `insufficient`, `image`, `quota`, `oom-killed`, …
    text: str  # One or two sentences, quoting the cluster where that says more
    advice: str  # What to do next
    final: bool = True  # Whether waiting is pointless

    def __str__(self) -> str:
        return f"{self.text} {self.advice}"


@cache
def known_messages(package: str, file: str) -> tuple[KnownMessage, ...]:
    """Return the records of a package's table."""
    return records.load(package, file, KnownMessage)


def explain(package: str, file: str, on: str, message: str, **values: str) -> Explanation:
    """Explain a message by the first record of a table that is about `on` and matches it.

    Each table has a record without a pattern for everything that it is asked about.
    """
    known = known_messages(package, file)
    on_this = (each for each in known if each.on in {"", on})
    explanations = (each.explain(message, values) for each in on_this)
    return next(filter(None, explanations))
