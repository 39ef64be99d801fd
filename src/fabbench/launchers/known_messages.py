"""What clusters say and what it means: the records of a launcher's table. Pure."""

import re

import msgspec

_FLAGS = re.IGNORECASE | re.DOTALL


class KnownMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message of a cluster: a record of messages.toml or job_errors.toml."""

    on: str = ""
    """What the message is about, where a table has messages on several things."""
    pattern: str = ""
    """It occurs in the message; empty: the record is for all others."""
    code: str
    text: str = ""
    advice: str
    final: bool = True
    """Whether waiting is pointless."""
    example: str
    counterexample: str = ""

    def match(self, message: str) -> re.Match[str] | None:
        """Return where the pattern occurs in a message; an empty one does in all."""
        return re.search(self.pattern, message, _FLAGS)
