"""Words of commands as words of a shell, and commands as readable lines. Pure.

All quoting for a script's text is done here.
"""

import base64
import re
import shlex
import textwrap
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING

from fabbench.model.errors import RequestError
from fabbench.model.mappings import map_values
from fabbench.model.messages import printable
from fabbench.model.plan import Words
from fabbench.model.templates import environment

if TYPE_CHECKING:
    from jinja2 import Template

_BEGIN = "\ud800"
_END = "\ud801"
"""These enclose a shell variable within a word: no printable text contains them."""
_VARIABLE = re.compile(f"{_BEGIN}([^{_BEGIN}{_END}]*){_END}")
_PLAIN = re.compile(r"[\w@%+=:,./-]*", re.ASCII)
_WIDTH = 108


def variable(name: str) -> str:
    """Return the placeholder for a shell variable in a word: ``port``, ``hosts[0]``."""
    return f"{_BEGIN}{name}{_END}"


def quote(word: str) -> str:
    """Quote a word so that a shell reads it literally, except for the variables in it."""
    parts = _VARIABLE.split(word)  # text, the name of a variable, text, …
    if len(parts) == 1:
        return _literal(word)
    # Literal texts, with a variable between each two; within double quotes, blanks are harmless.
    texts = [part.replace(" ", "") for part in parts[::2]]
    if all(map(_PLAIN.fullmatch, texts)):
        inner = _VARIABLE.sub(r"${\1}", word)
        return f'"{inner}"'
    quoted = ""
    for index, part in enumerate(parts):
        is_variable = index % 2
        if is_variable:
            quoted += f'"${{{part}}}"'
        elif part:
            quoted += _literal(part)
    return quoted


def _literal(text: str) -> str:
    """Quote text on one line.

    What must not be printed as it is is written as bash escapes; see `model.messages`.
    """
    if printable(text) != text or "\n" in text:
        return _escaped(text)
    return shlex.quote(text)


def _escaped(text: str) -> str:
    escaped = "".join(map(_escape, text))
    return f"$'{escaped}'"


def _escape(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    # `[` and `:` could make the text a command of a CI system.
    if char in "\n[:" or printable(char) != char:
        return _bytes(char)
    return char


def _bytes(char: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "surrogateescape"))


def wrapped(texts: Sequence[str], indent: str, newline: str = " \\\n") -> str:
    """Join words of shell text, wrapped into readable lines."""
    lines = [indent]
    for text in _options_with_values(texts):
        blank = " " if lines[-1].strip() else ""
        width = len(lines[-1]) + len(text)
        if blank and width > _WIDTH:
            lines.append(f"{indent}    {text}")
        else:
            lines[-1] += f"{blank}{text}"
    return newline.join(lines)


def command(words: Sequence[str], indent: str) -> str:
    """Return a command with quoted words."""
    return wrapped([quote(word) for word in words], indent) + "\n"


def array(name: str, words: Sequence[str], indent: str) -> str:
    """Return the assignment of an array."""
    first, *others = [*map(quote, words)] or [""]
    return wrapped([f"{name}=({first}", *others], indent, newline="\n") + ")\n"


def array_of(name: str) -> str:
    """Return the placeholder for all words of an array."""
    return variable(f"{name}[@]")


def _options_with_values(texts: Sequence[str]) -> list[str]:
    """Keep an option and its value on one line.

    A word after an option that takes none counts as its value: only the layout depends on it.
    """
    kept: list[str] = []
    after_option = False
    for text in texts:
        is_option = text.startswith("-")
        if after_option and not is_option:
            kept[-1] += f" {text}"
        else:
            kept.append(text)
        after_option = is_option
    return kept


@cache
def script_template(package: str, name: str) -> "Template":
    """Return a template of bash text, in which ``@{`` and ``@%`` stand for Jinja's usual signs.

    Bash uses the braces of these.
    """
    made = environment(
        package,
        variable_start_string="@{",
        variable_end_string="}@",
        block_start_string="@%",
        block_end_string="%@",
        comment_start_string="@#",
        comment_end_string="#@",
    )
    made.filters |= {"quote": quote, "dedent": textwrap.dedent, "shifted": textwrap.indent}
    made.globals |= {"array": array, "command": command, "wrapped": wrapped}
    return made.get_template(name)


def shared_environment(
    environments: Mapping[str, Sequence[str]],
) -> tuple[list[str], dict[str, list[str]]]:
    """Return the words of env that all have in common, and label → those that it has besides.

    Both have the word env: the command of the first runs that of the second.
    """
    split = map_values(_env_parts, environments)
    first, *others = split.values()
    shared = [part for part in first if all(part in parts for parts in others)]
    differing: dict[str, list[str]] = {}
    for label, parts in split.items():
        rest = [part for part in parts if part not in shared or part == ("env",)]
        differing[label] = list(chain.from_iterable(rest))
    return list(chain.from_iterable(shared)), differing


def _env_parts(words: Sequence[str]) -> list[Words]:
    """Split the words of `env`: what starts env, env itself, each option, each variable."""
    start = words.index("env")
    parts = [tuple(words[:start])] if start else []
    parts.append(("env",))
    rest = iter(words[start + 1 :])
    for word in rest:
        part = (word, next(rest)) if word == "-u" else (word,)
        parts.append(part)
    return parts


_ANY_SHELL = re.compile(r"[A-Za-z0-9_./:,+-][A-Za-z0-9_./:,+=@%-]*")


def login_command(argv: Sequence[str]) -> str:
    """Return the command line for any login shell: csh and fish read quotes and ``!`` differently.

    Words that mean the same to all are as they are; any others are base64, which a POSIX shell
    there decodes.

    Raise RequestError for a word with a NUL character, which cannot be passed to a program.
    """
    if any("\0" in word for word in argv):
        raise RequestError(
            f"An argument of the command {argv[0]!r} contains a NUL character.", hint="Remove it."
        )
    line = f"exec {shlex.join(argv)}"
    if all(map(_ANY_SHELL.fullmatch, argv)):
        return line
    encoded = base64.b64encode(line.encode("utf-8", "surrogateescape")).decode()
    return f"""exec sh -c 'eval "$(printf %s {encoded} | base64 -d)"'"""
