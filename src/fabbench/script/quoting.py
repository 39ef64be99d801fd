"""Words of commands → words of a shell. The only place where a script's text is quoted. Pure."""

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence

_BEGIN, _END = "\ud800", "\ud801"
"""Stand around a shell's variable within a word: no text that can be printed has them."""
_VARIABLE = re.compile(f"{_BEGIN}([^{_END}]*){_END}")
_PLAIN = re.compile(r"[\w@%+=:,./-]*", re.ASCII)
_WIDTH = 100
_INDENT = "        "


def variable(name: str) -> str:
    """Give what stands for a shell's variable in a word: ``folder``, ``hosts[0]``."""
    return f"{_BEGIN}{name}{_END}"


def quote(word: str) -> str:
    """Write a word so that a shell reads it as it is, with the values of variables in it."""
    parts = _VARIABLE.split(word)
    if len(parts) > 1 and all(_PLAIN.fullmatch(part) for part in parts[::2]):
        inner = "".join(f"${{{part}}}" if index % 2 else part for index, part in enumerate(parts))
        return f'"{inner}"'
    quoted = (
        f'"${{{part}}}"' if index % 2 else shlex.quote(part) if part else ""
        for index, part in enumerate(parts)
    )
    return "".join(quoted) or "''"


def line(words: Iterable[str], indent: str = "    ") -> str:
    """Write a command: its words quoted, in lines that a reader can take in."""
    return wrapped([quote(word) for word in words], indent)


def wrapped(texts: Sequence[str], indent: str = "    ") -> str:
    """Write shell text word by word, in lines that a reader can take in."""
    lines = [indent]
    for text in _together(texts):
        blank = " " if lines[-1].strip() else ""
        if blank and len(lines[-1]) + len(text) > _WIDTH:
            lines.append(f"{indent}{_INDENT}{text}")
        else:
            lines[-1] += f"{blank}{text}"
    return " \\\n".join(lines)


def _together(texts: Sequence[str]) -> Iterator[str]:
    """Leave an option and its value in one line."""
    option = ""
    for text in texts:
        if option and not text.startswith("-"):
            yield f"{option} {text}"
            option = ""
            continue
        if option:
            yield option
        option = text if text.startswith("-") else ""
        if not option:
            yield text
    if option:
        yield option


def comment(text: str) -> str:
    """Write text as a comment: every line of it."""
    return "".join(f"# {part}\n" for part in text.splitlines())
