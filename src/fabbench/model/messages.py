r"""Text from logs, hosts, clusters and file names as it is shown: quoted, merged, and only text.

Pure.

Escape sequences and other control characters (C0 and C1) that a terminal would obey, and characters
that reorder text or are invisible, are written as ``\u001b``: visible, and the same in JSON. Colors
are left out. Newlines and tabs stay. So is the character that would make text a command of a CI
system, which obeys those in the output of its steps: ``##[…]``, ``##vso[…]``, ``##teamcity[…]``,
and ``::…::`` where a line begins.

Values with secret names, and passwords in URLs, are redacted before they go into a document. A
variable that fabbench takes from its own environment (`--env NAME`) needs none of this: its value
is in no document at all.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

from fabbench.model.mappings import Variables, map_values
from fabbench.model.patterns import lazy

ACTIONS = "fabbench.actions"  # The logger of `action`, which only ``--verbose`` reads
# Begins the flag of a rare option, `--set KEY=VALUE`; KEY alone is its key in `fabbench.yaml`
RARE = "--set "
LONGEST_QUOTE = 300  # Characters of a line that a finding shows
_NUMBER = lazy(r"0x[\da-fA-F]+|\d+")


def quoted(text: str, limit: int = LONGEST_QUOTE) -> str:
    """Return `text` as one line of at most so many characters.

    Of a longer one, its beginning and its end: errors that wrap others have the reason last.
    """
    words = single_spaced(text)
    if len(words) <= limit:
        return words
    end = limit // 3
    beginning = words[: limit - 1 - end]
    return beginning + "…" + words[-end:]


def single_spaced(text: str) -> str:
    """Return text on one line, with one blank between words."""
    return " ".join(text.split())


def shorten(message: str) -> str:
    """Return a message of another program as `quoted` does, without its period."""
    return quoted(message.rstrip().rstrip("."))


def output_text(lines: Iterable[str]) -> str:
    """Return what a program printed as `shorten` does, or that it printed nothing."""
    return shorten(" ".join(lines)) or "no output"


def with_line_feeds(lines: Iterable[str]) -> str:
    """Return lines as text, each with its end."""
    return "".join(f"{line}\n" for line in lines)


def merged(counts: Iterable[tuple[str, int]]) -> list[tuple[str, str]]:
    """Merge texts that differ in numbers only.

    Return the first of each, and `` 3 times`` to follow a verb; empty: once.
    """
    first_of: dict[str, str] = {}
    totals: Counter[str] = Counter()
    for text, count in counts:
        without_numbers = _NUMBER.sub("0", text)
        first_of.setdefault(without_numbers, text)
        totals[without_numbers] += count
    return [
        (text, _times_words(count))
        for text, count in zip(first_of.values(), totals.values(), strict=True)
    ]


def _times_words(count: int) -> str:
    return "" if count == 1 else f" {count} times"


def listed(names: Sequence[str], limit: int = 4) -> str:
    """Write names with commas: all of a few, else the first `limit` and how many more."""
    first = ", ".join(names[:limit])
    more = len(names) - limit
    return f"{first} and {more} more" if more > 0 else first


def key_words(key: Mapping[str, str], without: Collection[str] = ()) -> Iterator[str]:
    """Yield what a key states, but for some of its fields: ``dtype float``, ``redop unknown``."""
    for name, value in key.items():
        if name not in without:
            known = value or "unknown"
            yield f"{name} {known}"


def nearest(text: str, known: Iterable[str]) -> str:
    """Return the name closest to a text; empty: none is close."""
    import difflib  # not needed for correct names

    close = difflib.get_close_matches(text.lower(), list(known), n=1)
    return close[0] if close else ""


def did_you_mean(name: str) -> str:
    """Return `` Did you mean NAME?``; empty for no name."""
    return f" Did you mean {name}?" if name else ""


def with_remark(text: str, remark: str) -> str:
    """Return ``TEXT (REMARK)``; without a remark the text alone."""
    return f"{text} ({remark})" if remark else text


def counted(number: int, noun: str) -> str:
    """Write a number of things: ``1 host``, ``2 hosts``."""
    plural = "" if number == 1 else "s"
    return f"{number} {noun}{plural}"


def tally(counts: Mapping[Any, int]) -> str:
    """Write how many there are of each kind, but for those without any: ``3 ok, 1 failed``."""
    present = ((kind, count) for kind, count in counts.items() if count)
    return ", ".join(f"{count} {kind}" for kind, count in present)


_COLOR = lazy(r"\x1b\[[\d;:]*m")
_UNSAFE = lazy(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # C0 except tab and newline, DEL, C1
    "\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # direction, invisible
    "\u2028\u2029"  # line separators that not every program treats as such
    "\ud800-\udfff"  # bytes that are not UTF-8, as in file names: they cannot be encoded
    "\U000e0000-\U000e007f"  # tags
    "]"
)
_PLAIN = bytes((*b"\t\n", *range(32, 127)))
_COMMAND = lazy(r"(?m)(^[^\S\n]*:(?=:[A-Za-z]|:\Z)|##\w*(?=\[))(.)")
"""The start of a command, and the character that completes it.

IPv6 addresses (``::1``) are none.
"""
_UNFINISHED = lazy(r"(##)\w*\Z|(#)\Z|\A\s*(:?)\Z")


def printable(text: str) -> str:
    """Return `text` with anything but plain text written as escapes. Idempotent."""
    # Of megabytes, a few characters or none
    others = text.encode("utf-8", "surrogatepass").translate(None, _PLAIN)
    # Nothing in _UNSAFE is printable
    if not others.decode("utf-8", "surrogatepass").isprintable():
        plain = _COLOR.sub("", text).replace("\r\n", "\n")
        text = _UNSAFE.sub(_escaped, plain)
    if _may_have_command(text):
        text = _COMMAND.sub(_escaped, text)
    return text


def _may_have_command(text: str) -> bool:
    """Return whether a text has what each `_COMMAND` has; one character is found fastest."""
    if "#" in text and "##" in text:
        return True
    return ":" in text and "::" in text


def unfinished(text: str) -> str:
    """Return the shortest text that leaves the same command open as `text`: ``#``, ``##``, ``:``.

    CI systems obey lines such as ``::error::`` and ``##[error]``.

    What is written next may complete one. Empty: it begins a line; ``x``: nothing is open.
    """
    last_line = text.rpartition("\n")[2]
    match = _UNFINISHED.search(last_line)
    return match[match.lastindex or 0].strip() if match else "x"


def unbroken(text: str) -> str:
    """Return `text` printable and on one line.

    A line break, as in the name of a file, becomes an escape.
    """
    return printable(text.replace("\r\n", "\n").replace("\n", "\\u000a"))


def one_line(text: str) -> str:
    """Return `text` as `unbroken` does, with runs of blanks collapsed."""
    return single_spaced(unbroken(text.strip()))


def _escaped(match: re.Match[str]) -> str:
    """Write the last group of a match, which is at its end, or all of it, as escapes."""
    text = match[match.lastindex or 0]
    digits = text.encode("utf-16-be", "surrogatepass").hex()
    escapes = "".join(f"\\u{unit}" for unit in re.findall("....", digits))
    return match[0].removesuffix(text) + escapes


REDACTED = "(redacted)"
_SECRET = lazy(
    r"""
      SECRET | TOKEN(?!IZER) | PASSW(OR)?D | PASSPHRASE | PASSCODE | _PWD$ | (^|_)PASS$
    | CREDENTIAL | PRIVATE | BEARER | AUTH(?!OR(S?(_|$)|ITY)) | COOKIE | SIGNATURE | JWT
    | API_?KEYS? | ACCESS_?KEY | (^|_)KEYS?(_|$) | KEY_?ID
    | (^|_)PAT$ | (^|_)(DSN|SAS|SIG)$ | CONN(ECTION)?_?STR
    | ^AWS_(?!(DEFAULT_)?REGION$)
    | (^|_)[HT]?OTP(_|$) | (?<!I_MPI)(^|_)PIN(_?CODE|$) | (^|_)SALT(_|$)
    | LICEN[CS]E | WEBHOOK
    """,
    re.IGNORECASE | re.VERBOSE,
)
_LOCATION = lazy(r"_(SOCK(ET)?|FILE|PATH|DIR)$", re.IGNORECASE)
"""A name that ends like this tells where a secret is, not what it is: ``SSH_AUTH_SOCK``."""
_SETTING = lazy(
    r"(?P<option>--?)?(?P<name>[A-Za-z_][\w.-]*)(?P<set>[=:](?!(?<=:)\d{2,5}/)\s*)(?P<value>.+)",
    re.DOTALL,
)
"""A setting that is a whole word: ``NAME=VALUE``, ``--name=VALUE``, ``Name: VALUE``.

A registry with a port, ``private-registry:5000/image``, is none.
"""
_USER = lazy(r"(?<=://)(?:[^\s/@?#]*:[^\s@]*|(?<=http://)[^\s/@?#]+|(?<=https://)[^\s/@?#]+)(?=@)")
_QUERY = lazy(r"(?<=[?&;])([\w.-]+)=([^&;#\s]+)")
_HOOK = lazy(
    r"(?i)(://[^\s?#]{0,200}?hooks?[^\s?#/]{0,200}/|://[^\s?#/]{1,200}/bot(?=\d+:))[^\s?#]+"
)
"""A URL that posts a message for anyone who has it.

The host or the start of the path names a hook.
"""
_BEARER = lazy(r"(?i)\b(bearer|basic)\s+[\w+/=.~-]{8,}")
# Keys of documents that hold environment variables
_ENVIRONMENTS = frozenset({"env", "envs", "environment"})


def is_secret(name: str) -> bool:
    """Return whether the name of a variable, an option or a header tells of a secret value."""
    name = name.replace("-", "_")
    return _SECRET.search(name) is not None and _LOCATION.search(name) is None


def shown(name: str, value: str) -> str:
    """Return the value of a variable as it may be shown."""
    return REDACTED if value and is_secret(name) else without_secrets(value)


def without_secrets(text: str) -> str:
    """Return text without secrets that can be anywhere in it.

    Passwords and hooks in URLs, bearer tokens.
    """
    text = _USER.sub(REDACTED, text)
    text = _HOOK.sub(rf"\1{REDACTED}", text)
    text = _QUERY.sub(_parameter_without_secret, text)
    return _BEARER.sub(rf"\1 {REDACTED}", text)


def _parameter_without_secret(match: re.Match[str]) -> str:
    """Return a parameter of a URL as it may be shown."""
    name = match[1]
    return f"{name}={REDACTED}" if is_secret(name) else match[0]


def word_without_secrets(text: str) -> str:
    """Return a word of a command, or an option's value, as it may be shown.

    A setting with a secret name loses its value; a URL is none, although it has a colon.
    """
    match = _SETTING.fullmatch(text)
    if match is None:
        return without_secrets(text)
    start = match.start("value")
    name = text[:start]
    # In `https://host` the name is a scheme, and the value begins with `//`.
    if "://" not in text[: start + 2] and is_secret(match["name"]):
        return name + REDACTED
    if match["set"] == "=" and "://" not in text:  # the value may be one, too: --env=NAME=VALUE
        return name + word_without_secrets(match["value"])
    return without_secrets(text)


def environment(env: Variables) -> dict[str, str]:
    """Return variables as they may be shown."""
    return {name: shown(name, value) for name, value in env.items()}


def redacted(value: Any) -> Any:
    """Return a document of plain values or frozen dataclasses (a plan) as it may be shown."""
    if is_dataclass(value) and not isinstance(value, type):
        # Fields that are not `init` are made of the others, as `replace` expects.
        names = (field.name for field in fields(value) if field.init)
        changes = {name: _redacted_field(name, getattr(value, name)) for name in names}
        return replace(value, **changes)
    if isinstance(value, Mapping):
        return {key: _redacted_field(key, inner) for key, inner in value.items()}
    if type(value) in {list, tuple}:  # but no named tuple: it is not made of an iterable
        return type(value)(map(redacted, value))
    return word_without_secrets(value) if type(value) is str else value


def _redacted_field(name: object, value: Any) -> Any:
    # Of an environment, the names of its variables tell which values are secret.
    if name in _ENVIRONMENTS and isinstance(value, Mapping):
        return environment(map_values(str, value))
    return redacted(value)


def action(where: str, what: str | Sequence[str]) -> None:
    """Log that a program is started, a host is reached, or a request is made.

    A sentence, or a command's words.
    """
    import logging  # few commands need it
    import shlex

    logger = logging.getLogger(ACTIONS)
    if not logger.handlers:
        return
    if isinstance(what, str):
        text = word_without_secrets(what)
    else:
        text = shlex.join(map(_first_line, what))
    logger.debug("%s: %s", where, quoted(text, limit=2000))


def _first_line(text: str) -> str:
    """Return an argument of a command without secrets; of a script only the first line."""
    shown_text = word_without_secrets(text)
    first, line_break, _ = shown_text.strip().partition("\n")
    return f"{first} …" if line_break else shown_text
