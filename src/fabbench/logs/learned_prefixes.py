"""Prefixes that are not listed: learned from the text before a line that only a benchmark prints.

`gpu-01: # nThread 1 nGpus 8 …` shows that `gpu-01: ` is a prefix, and that `gpu-02: ` is one too. It is cut at its
position only. Times and numbers in it vary; a rank and names show what printed the line. The same lines explain why
a file gave no result.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

from fabbench.benchmarks import benchmarks
from fabbench.model.log import MARKER_SIGN
from fabbench.model.patterns import lazy

_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_DAY, _MONTH_DAY = r"\d{4}[-/]\d\d[-/]\d\d[T ]", r"[A-Z][a-z]{2} [ \d]\d "
_TIMES = (
    rf"{_DAY}{_CLOCK} ?(?:Z|UTC|[+-]\d\d:?\d\d)",
    rf"{_DAY}{_CLOCK}",
    rf"[A-Z][a-z]{{2}} {_MONTH_DAY}{_CLOCK} \d{{4}}",
    rf"{_MONTH_DAY}{_CLOCK}",
    _CLOCK,
)
_TIME = "|".join(_TIMES)
_PART = lazy(
    rf"(?P<time>(?<!\w)(?:{_TIME}))"
    r"|(?P<rank>(?<!\S)\[(?:rank ?)?\d+\](?=:?\s)|(?<!\S)\d+(?=: (?:\S|$)))"
    r"|(?P<name>[A-Za-z\d][\w.-]*)"
    r"|(?P<blank>[ \t]+)"
    r"|(?P<sign>.)",
    re.DOTALL,
)
_PLAIN_NUMBER = lazy(r"(?:\d+(?:\.\d+)?(?:ns|us|ms|[smhd])?)+")
_ADDRESS = lazy(r"\d+(?:\.\d+){3}")
_DIGITS = lazy(r"\d+")
_LONG_NUMBER = 9
"""From this many digits on, a number such as seconds since 1970 has equally many in each line."""
_ONLY_NUMBERS = lazy(r"[\d.\s]*")
_NO_PREFIX = lazy(r"NCCL |[{}]|\\n|#\s*[A-Za-z]")
_LONGEST_PREFIX = 160
_DECIMALS, _BLANKS, _CAPITALS = frozenset("0123456789"), frozenset(" \t"), frozenset("ADFJMNOSTW")
_RANK_LABEL = lazy(r" *(?:\d+:|\[\d+\]) ")
_JSON_STRING = lazy(r'\s*(?:"[\w.@-]+":\s*)?"')
_DEBUG_LINE = lazy(r"[\w.-]+:\d+:\d+ \[-?\d+\] (?:\S+ )?NCCL (?:INFO|WARN) ")


class HeaderSign(NamedTuple):
    """Where a line that only a benchmark prints begins."""

    at: int
    begins: bool
    """Whether an execution begins with it: a banner or a header, not a footer."""


Signs = Sequence[tuple[str, re.Pattern[str], bool]]
"""A word, the pattern of the line that contains it, and whether an execution begins there."""


@cache
def _all_signs() -> Signs:
    markers = ((MARKER_SIGN, lazy(re.escape(MARKER_SIGN)), True),)
    return markers + tuple(
        (signature.word, lazy(signature.pattern), signature.begins)
        for benchmark in benchmarks().values()
        for signature in benchmark.signatures
    )


def signs_in(text: str) -> Signs:
    """Return the signs whose words occur in a text."""
    return [entry for entry in _all_signs() if entry[0] in text]


def find_sign(text: str, signs: Signs | None = None) -> HeaderSign | None:
    """Find where a line that only a benchmark prints begins, anywhere in a text."""
    for word, pattern, begins in _all_signs() if signs is None else signs:
        if word in text and (match := pattern.search(text)) is not None:
            return HeaderSign(match.start(), begins)
    return None


class Stripped(NamedTuple):
    """A line without a prefix."""

    text: str
    rank: str = ""
    names: tuple[str, ...] = ()
    """The words of the prefix that show the origin of the line: a host, a pod, a file."""


@dataclass(slots=True)
class TextPrefix:
    """A form of prefix before plain text."""

    pattern: re.Pattern[str]
    starts: frozenset[str]
    """First characters of lines that may have the prefix."""
    quoted: bool = False
    """Whether the line is a JSON string, and the prefix ends with its quotation mark."""
    fenced: bool = False
    """Whether the line is a cell of a table, and ends with `|`."""

    def cut(self, text: str) -> Stripped | None:
        """Cut the prefix; None if the line has none of this form."""
        match = self.pattern.match(text)
        if match is None:
            return None
        rest = text[match.end() :]
        if self.quoted:
            rest = _unquoted(rest)
        elif self.fenced:
            rest = rest.rstrip(" \t").removesuffix("|").rstrip(" \t")
        named = match.groupdict()
        rank = named.pop("rank", None) or ""
        return Stripped(rest, rank, tuple(name for name in named.values() if name))


@dataclass(slots=True)
class NumberedPrefix:
    """Line numbers, as `cat -n` and `nl` print them: each is one more than the last."""

    pattern: re.Pattern[str]
    first: int = field(compare=False)
    """The number in the line that it was learned from."""
    last: int = field(compare=False)
    starts: frozenset[str] = _BLANKS | _DECIMALS

    def rewind(self, lines: int) -> None:
        """Expect the number that is `lines` lines above the one that the form was learned from."""
        self.last = max(self.first - lines - 1, 0)

    def cut(self, text: str) -> Stripped | None:
        """Cut the number; None if the line begins with a different one, which may be a row's size."""
        match = self.pattern.match(text)
        if match is None:
            return None
        number = int(match[1][:18])
        if number != self.last + 1 and not (number > self.last and _NUMBERED.match(text, match.end())):
            return None
        self.last = number
        return Stripped(text[match.end() :])


_LINE_NUMBER = lazy(r"[ \t]*(\d{1,18})\t")
_NUMBERED = lazy(r"\s*(?:#|\d+\s+\d+\s+[a-z])")
"""Text after a number that is not the size of a row."""
_ENDED = lazy(r"\bexit status ([1-9]\d{0,2})\b")


@dataclass(frozen=True, slots=True)
class JsonPrefix:
    """Lines that are JSON objects with the output of the program as one value."""

    path: tuple[str, ...]
    starts: frozenset[str] = frozenset("{")

    def cut(self, text: str) -> Stripped | None:
        """Return the value, which may hold several lines; None if the line is not such an object.

        An entry may also state how the program ended: that becomes a separate line.
        """
        import json

        if text[:1] != "{":
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        ended = _ENDED.search(str(value.get("error", "")))
        status = f"[exit status: {ended[1]}]" if ended is not None else ""
        for key in self.path:
            value = value.get(key) if isinstance(value, dict) else None
        if not isinstance(value, str):
            return Stripped(status) if status else None
        text = value.rstrip("\r\n")
        return Stripped(f"{text}\n{status}" if status else text)


Prefix = TextPrefix | NumberedPrefix | JsonPrefix


def learn(text: str, sign: HeaderSign) -> Prefix | None:
    """Return the form of the prefix before a sign; None if there is no prefix, or no certain one."""
    if text[:1] == "{" and (path := _json_path(text)) is not None:
        return JsonPrefix(path)
    string = _JSON_STRING.match(text, 0, sign.at) if text.rstrip(" ,").endswith('"') else None
    prefix = string[0] if string is not None else text[: sign.at]
    if not prefix.strip() or len(prefix) > _LONGEST_PREFIX or _NO_PREFIX.search(prefix):
        return None
    return _text_form(prefix, fenced="|" in prefix and text.rstrip().endswith("|"))


def learn_rank(text: str) -> Prefix | None:
    """Learn the rank label that srun and hydra print from an NCCL debug line after it."""
    match = _RANK_LABEL.match(text) if " NCCL " in text else None
    if match is None or _DEBUG_LINE.match(text, match.end()) is None:
        return None
    return _text_form(match[0])


def rank_labels(lines: Iterable[str]) -> Prefix | None:
    """Return the form of the rank label that nearly all lines begin with, for text without any sign."""
    texts = [line for line in lines if line.strip()]
    labels = [match[0] for match in map(_RANK_LABEL.match, (f"{text} " for text in texts)) if match]
    return _text_form(labels[0]) if len(labels) > 1 and len(labels) >= 0.9 * len(texts) else None


def line_numbers(lines: Iterable[str]) -> Prefix | None:
    """Return the form of the numbers that `cat -n` prints, if all lines have them, for text without any sign."""
    texts = [line for line in lines if line]
    first = int(match[1]) if len(texts) > 1 and (match := _LINE_NUMBER.match(texts[0])) is not None else 0
    counter = NumberedPrefix(_LINE_NUMBER, first, first - 1)
    whole = first and all(map(counter.cut, texts))
    counter.rewind(0)
    return counter if whole else None


def _text_form(prefix: str, *, fenced: bool = False) -> Prefix | None:
    body = prefix.rstrip(" \t")
    blanks, bare = prefix[len(body) :], body.lstrip(" \t")
    if bare.isdigit():
        number = int(bare[:18])
        return NumberedPrefix(re.compile(rf"[ \t]*(\d+){re.escape(blanks)}"), number, number - 1)
    if not blanks and re.fullmatch(r"\d+:", bare):
        # grep -n, and its context lines.
        return TextPrefix(re.compile(r"[ \t]*\d+[:-]"), _BLANKS | _DECIMALS)
    if _ONLY_NUMBERS.fullmatch(body) and max(map(len, _DIGITS.findall(body)), default=0) < _LONG_NUMBER:
        return None
    numbered = bare[0].isdigit() or bare[0] == "["
    lead = r"[ \t]*" if numbered else re.escape(body[: len(body) - len(bare)])
    starts = {prefix[0], bare[0]} | (_BLANKS if numbered else set())
    if bare[0].isdigit():
        starts |= _DECIMALS
    elif re.match(_TIME, bare):
        starts |= _CAPITALS
    some = rf" {{1,{len(blanks)}}}" if blanks.isspace() and "\t" not in blanks else re.escape(blanks)
    end = rf"(?:{some}|[ \t]*$)" if blanks else ""
    parts = "".join(_parts(prefix[len(body) - len(bare) : len(body) + 1], len(bare)))
    pattern = re.compile(lead + parts + end)
    return TextPrefix(pattern, frozenset(starts), quoted=bare.endswith('"'), fenced=fenced)


def _parts(text: str, length: int) -> Iterator[str]:
    """Yield patterns of a prefix's parts; text after `length` only shows where a rank ends."""
    ranked, names = False, 0
    for match in _PART.finditer(text):
        if match.start() >= length:
            return
        part = match[0]
        if match["time"]:
            yield next(time for time in _TIMES if re.match(time, part))
        elif match["blank"]:
            yield r"[ \t]+"
        elif match["rank"] and not ranked:
            ranked = True
            before, digits, behind = re.split(r"(\d+)", part, maxsplit=1)
            yield rf"{re.escape(before)}(?P<rank>\d+){re.escape(behind)}" if digits else ""
        elif match["name"] and (not _PLAIN_NUMBER.fullmatch(part) or _ADDRESS.fullmatch(part)):
            names += 1
            yield rf"(?P<name{names}>{_numbers_vary(part)})"
        else:
            yield _numbers_vary(part)


def _numbers_vary(part: str) -> str:
    def digits(match: re.Match[str]) -> str:
        return rf"\d{{{len(match[0])}}}" if len(match[0]) >= _LONG_NUMBER else r"\d+"

    return _DIGITS.sub(digits, re.escape(part))


def _unquoted(text: str) -> str:
    """Return the content of a JSON string whose opening quotation mark is already cut."""
    import json

    inside, mark, _ = text.rpartition('"')
    if not mark:
        return text
    try:
        value = json.loads(f'"{inside}"')
    except ValueError:
        return inside
    return str(value).rstrip("\r\n")


def _json_path(text: str) -> tuple[str, ...] | None:
    """Return the keys that lead to the output of a program in a JSON object."""
    import json

    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return next(_paths(value), None)


def _paths(value: Any, keys: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict) and len(keys) < 5:
        for key, entry in value.items():
            yield from _paths(entry, (*keys, key))
    elif isinstance(value, str) and find_sign(value) is not None:
        yield keys


NO_KNOWN_OUTPUT = "No recognized output of a benchmark or launcher."


@cache
def _foreign() -> Sequence[tuple[str, str]]:
    lines = (files("fabbench.logs") / "foreign.txt").read_text("utf-8").splitlines()
    return [(name, pattern) for name, sign, pattern in (line.partition(" : ") for line in lines[1:]) if sign]


_TABLE = lazy(r"(?m)^ *\|.{0,200}\b(?:busbw|algbw)\b.{0,200}\|")
_OWN = lazy(
    r'\s*\{\s*"format":\s*\d+,?\s*("logs"|"metric":[^{[]*"lower_is_better")?'
    r"|((?:\w+,)*size,(?:\w+,)*metric,(?:\w+,)*value,)"
)
"""The beginning of fabbench's own files, which quote lines of logs."""
_RESULTS = "This is a table of results and no log: fabbench compare and report read it."


class Unread(NamedTuple):
    """A file without a result, and the reason."""

    source: str
    reason: str
    remark: bool = False
    """Whether nothing seems to be lost: the file names a program, and no more."""
    damaged: bool = False
    """Whether the file itself cannot be read."""


class UnreadWarning(UserWarning):
    """A file of a directory has a benchmark's output, but no result could be read."""


def unread_reason(text: str) -> tuple[str, bool]:
    """Return why a text that begins like this has no result, and whether that is only a remark.

    The reason is empty if nothing in the text is related to a benchmark.
    """
    if (match := _OWN.match(text)) is not None:
        return _RESULTS if match[1] or match[2] else "", True
    for name, pattern in _foreign():
        if re.search(pattern, text):
            return f"This is output of {name}, which fabbench does not read.", False
    if _TABLE.search(text):
        return _RESULTS, True
    signs = signs_in(text)
    for number, line in enumerate(text.split("\n") if signs else (), start=1):
        for word, sign, _ in signs:
            if word in line and sign.search(line):
                words, more = " ".join(line.split()), " …" if len(line) > 100 else ""
                return f"Line {number} is from a benchmark, but no result could be read: {words[:100]}{more}", False
    for benchmark in benchmarks().values():
        named = re.search(benchmark.program_names, text) if benchmark.program_names else None
        if named is not None:
            return f"It names {named[0]}, but has no result of it.", True
    return "", False
