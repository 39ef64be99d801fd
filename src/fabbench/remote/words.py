"""The command line that a login shell over there gets, for the words that a program is to get.

The shell may be any: sh, bash and zsh, but csh and fish too, which read quotes, ``!``, backslashes and
newlines in their own ways. Within single quotes they agree on all other printable characters. So words of
those go as they are; any others go in an encoding of harmless characters, which a POSIX shell undoes there.
"""

import re
from collections.abc import Sequence

from fabbench.errors import RequestError

_BARE = re.compile(r"[A-Za-z0-9_./:,+-][A-Za-z0-9_./:,+=@%-]*")
_QUOTABLE = re.compile(r"[ -~]*")
_NOT_ALIKE = re.compile(r"['!\\]")
_HARMLESS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789 _./:,+=-")
# tr makes the backslash, the one between [ and ], so that the line needs none.
_UNDO = """exec sh -c 'eval "$(printf "$(printf %s "{}" | tr "#%@" "[-]")")"'"""


def command_line(argv: Sequence[str]) -> str:
    """Write words for the login shell. The program takes the shell's place.

    Raises RequestError for a word with a NUL character, which no program can get.
    """
    if any("\0" in word for word in argv):
        raise RequestError(f"A word of the command {argv[0]!r} holds a NUL character.", hint="Take it out.")
    words = [_word(word) for word in argv]
    if None not in words:
        return " ".join(("exec", *(word for word in words if word is not None)))
    posix = " ".join(("exec", *(_posix(word) for word in argv)))
    return _UNDO.format("".join(_coded(byte) for byte in posix.encode("utf-8", "surrogateescape")))


def _word(word: str) -> str | None:
    """Write a word so that every shell reads it alike, if there is a way."""
    if _BARE.fullmatch(word):
        return word
    return f"'{word}'" if _QUOTABLE.fullmatch(word) and not _NOT_ALIKE.search(word) else None


def _posix(word: str) -> str:
    quoted = word.replace("'", "'\"'\"'")
    return f"'{quoted}'"


def _coded(byte: int) -> str:
    return chr(byte) if byte in _HARMLESS else f"%{byte:03o}"
