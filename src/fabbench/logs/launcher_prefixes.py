"""Launcher prefixes: cut from each line, and converted to the line's `Stream`.

A prefix is a pattern. Those of `prefixes.txt` are unmistakable. All others are learned from the
text before a line that only a benchmark prints: `gpu-01: # nThread 1 nGpus 8 …` shows that `gpu-01:
` is a prefix, and that `gpu-02: ` is one too. Several may be stacked: docs/formats.md.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from fabbench.benchmarks import Signature
from fabbench.logs.signs import all_signs, find_sign, patterns, signs_in
from fabbench.model.log import NO_STREAM, Stream
from fabbench.model.patterns import lazy

_NAMED = dict(patterns("prefixes.txt"))
_KNOWN = lazy(f" *+(?:{'|'.join(_NAMED.values())})")
_STARTS = frozenset("[(#> 0123456789MTWFS")
"""First characters of the prefixes above: any other line has none."""
_NESTED = _STARTS - {" "}
_INNER = lazy(_NAMED["mpirun --tag-output, Open MPI 4 and 5"])
_COLOR = lazy(r"\x1b\[[0-9;?]*[A-Za-z]")

_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_DAY, _MONTH_DAY = r"\d{4}[-/]\d\d[-/]\d\d[T ]", r"[A-Z][a-z]{2} [ \d]\d "
_TIME = (
    rf"(?:{_DAY}{_CLOCK}(?: ?(?:Z|UTC|[+-]\d\d:?\d\d))?"
    rf"|[A-Z][a-z]{{2}} {_MONTH_DAY}{_CLOCK} \d{{4}}|{_MONTH_DAY}{_CLOCK}|{_CLOCK})"
)
_PART = lazy(
    rf"(?P<time>(?<!\w){_TIME})"
    r"|(?P<rank>(?<!\S)\[(?:rank ?)?\d+\](?=:?\s)|(?<!\S)\d+(?=: (?:\S|$)))"
    r"|(?P<name>[A-Za-z\d][\w.-]*)"
    r"|(?P<blank>[ \t]+)"
    r"|(?P<sign>.)",
    re.DOTALL,
)
_PLAIN_NUMBER = lazy(
    r"(?!\d+(?:\.\d+){3}$)(?:\d+(?:\.\d+)?(?:ns|us|ms|[smhd])?)+"
)  # Maybe with a unit, and no address
_LONG_NUMBER = (
    9  # From this many digits on, a number such as seconds since 1970 has equally many in each line
)
_NO_PREFIX = lazy(
    r"NCCL |\{(?!\w+\.py:\d+\})|(?<!\d)\}|\\n|#\s*[A-Za-z]"
)  # {subprocess.py:93} is Airflow's
_NO_ROW = lazy(r"\d{9}|[^\d.\s]")  # Part of any prefix that is not the beginning of a row
_LONGEST_PREFIX = 160
_LABEL = lazy(r" *(?:\d+:|\[\d+\]) |[ \t]*\d+\t")  # A rank, or the number of a line
_DEBUG_LINE = lazy(r"[\w.-]+:\d+:\d+ \[-?\d+\] (?:\S+ )?NCCL (?:INFO|WARN) ")
_JSON_STRING = lazy(r'\s*(?:"[\w.@-]+":\s*)?"')
_ENDED = lazy(r"\bexit status ([1-9]\d{0,2})\b")
_ROW = lazy(r" *\d+ +\d")
_NUMBERED = lazy(r"\s*(?:#|\d+\s+\d+\s+[a-z])")  # Text after a number that is not the size of a row
_LINES_AGAIN = '"stdout_lines": ['
_with = lru_cache(maxsize=1024)(Stream._replace)  # few prefixes recur on most lines
_MAX_FORMS = 16  # Limit of the learned prefixes that are tried: the latest
_MAX_STACKED = 32  # Limit of the prefixes of a line; real lines have three


class Prefixes:
    """Cuts the prefixes of one log: the known ones, and those learned from the log's own lines.

    `sample`: lines to learn from before the first one is cut.
    """

    def __init__(self, sample: Sequence[str] = ()) -> None:
        self.forms: list[_Text | _Json] = []
        self._groups: dict[
            str, str
        ] = {}  # names in learned prefixes before a banner → the stream group of their lines
        # Whether ansible prints a program's output twice: as one string, and line by line.
        self._repeated = _LINES_AGAIN in "\n".join(sample)
        # Banners and headers show it best, then a footer or a row, a debug line after a rank, a
        # label on nearly all. A debug line shows no sign that others do not, unless it is a string
        # of many lines.
        lines = [line for line in sample if " NCCL " not in line or '"' in line]
        signs = signs_in("\n".join(lines))
        begins = [sign for sign in signs if sign.begins]
        signed = [line for line in lines if begins and find_sign(line, begins) >= 0]
        signed = signed or [line for line in lines if signs and find_sign(line, signs) >= 0]
        for line in signed:
            while self.learn(self.cut(line)[0], signs):
                pass
        if not self.forms:
            # Lines of one thread have the same prefix, unless it is a time.
            debug = {
                line.partition(" NCCL ")[0]: line
                for line in sample
                if " NCCL " in line and line[:1] in _STARTS
            }
            shown = list(debug.values()) if signed else sample
            texts = [f"{text} " for line in shown if (text := self.cut(line)[0]).strip()]
            labels = [match for match in map(_LABEL.match, texts) if match is not None]
            sure = [match for match in labels if _DEBUG_LINE.match(match.string, match.end())]
            if not sure and not signed and len(labels) > 1 and len(labels) >= 0.9 * len(texts):
                sure = labels
            self.forms += [_Text(re.compile(_pattern(match[0]))) for match in sure[:1]]
        for form in self.forms:
            if isinstance(form, _Text):
                form.last = 0

    def cut(self, raw: str, outer: Stream = NO_STREAM) -> tuple[str, Stream]:
        """Return the text without its prefixes, and the stream that it belongs to.

        `outer`: what prefixes cut before have stated. The text contains newlines if a log entry
        holds several lines.
        """
        # The copy of a page of gist.github.com has empty cells behind each line.
        text, stream, forms = raw if raw[:1] == "|" else raw.removesuffix(" | |"), outer, self.forms
        text = strip_colors(text) if "\x1b" in text else text
        if self._repeated and text.lstrip().startswith('"stdout":'):
            return "", stream
        if not forms and text[:1] not in _STARTS:
            return text, stream
        for _ in range(_MAX_STACKED):
            known = _KNOWN.match(text)
            if known is not None:
                text = text[known.end() :]
                if known.lastgroup is not None:
                    stream = _with(
                        stream, **{known.lastgroup.rstrip("1234"): known[known.lastgroup]}
                    )
            cut = None
            for form in forms:
                if (cut := form.cut(text)) is not None:
                    forms = [other for other in forms if other is not form]
                    text, stream = self._stated(text, *cut, stream)
                    break
            if (known is None and cut is None) or (not forms and text[:1] not in _NESTED):
                break
        return text, stream

    def learn(self, text: str, signs: Sequence[Signature] | None = None) -> bool:
        """Learn the prefix before a sign, of a text without known prefixes.

        Return whether there is an unknown one.
        """
        at = find_sign(text, all_signs(begins=True) if signs is None else signs)
        if (
            0 < (inner := inner_tag(text)) < at
        ):  # another prefix, unless it stands behind text without a newline
            at = 0 if text[inner - 1].isalnum() else inner
        if at <= 0:
            return False
        form = _form(text, at)
        if form is None or form in self.forms or form.cut(text) is None:
            return False
        self.forms = [form, *self.forms][:_MAX_FORMS]
        return True

    def _stated(
        self, text: str, rest: str, fields: Mapping[str, str], stream: Stream
    ) -> tuple[str, Stream]:
        """Return what is left of a text, and its stream with what a learned prefix states."""
        rank, names = (
            fields.get("rank", ""),
            " ".join(value for name, value in fields.items() if name != "rank"),
        )
        if names and names not in self._groups and find_sign(rest, all_signs(begins=True)) >= 0:
            # Each name that begins an execution is a group. The first one's group also has all the
            # others.
            self._groups[names] = names if self._groups else ""
        if rank and _ROW.match(rest):
            # hydra labels each block that it reads, also in the middle of a row.
            rest = rest.replace(text[: len(text) - len(rest)], "")
        if rank or self._groups.get(names):
            stream = stream._replace(
                group=self._groups.get(names) or stream.group, rank=rank or stream.rank
            )
        return rest, stream


def strip_colors(text: str) -> str:
    """Remove terminal colors."""
    return _COLOR.sub("", text)


def inner_tag(text: str) -> int:
    """Return where in a line another mpirun tag begins; -1 if nowhere.

    Open MPI 4 reads blocks and begins each with a tag, even in the middle of a line.
    """
    match = _INNER.search(text) if "<std" in text else None
    return match.start() if match else -1


@dataclass(slots=True)
class _Text:
    """A form of prefix before text: a pattern."""

    pattern: re.Pattern[str]
    fenced: bool = False  # Whether the line is a cell of a table, and ends with `|`
    last: int = field(
        default=0, compare=False
    )  # The number in the last line, if the lines are numbered

    def cut(self, text: str) -> tuple[str, Mapping[str, str]] | None:
        """Return the text without the prefix, and the prefix's fields.

        None if the line has none of this form.
        """
        match = self.pattern.match(text)
        if match is None:
            return None
        prefix, rest = match[0].rstrip(), text[match.end() :]
        fields = {name: value for name, value in match.groupdict().items() if value}
        if "line" in fields:  # as `cat -n` and `nl` number it; any other number may be a row's size
            number = int(fields.pop("line")[:18])
            if number != self.last + 1 and not _NUMBERED.match(rest):
                return None
            self.last = number
        if prefix.endswith('"'):
            rest = _unquoted(rest)
        elif self.fenced:
            rest = rest.rstrip().removesuffix("|").rstrip()
        return rest, fields


@dataclass(slots=True)
class _Json:
    """Lines that are JSON objects, with the output of the program as one value."""

    key: str

    def cut(self, text: str) -> tuple[str, Mapping[str, str]] | None:
        """Return the value, which may hold several lines; None if the line is not such an object.

        An entry may also state how the program ended: that becomes a separate line.
        """
        entries = _entries(text)
        value, ended = entries.get(self.key), _ENDED.search(str(entries.get("error", "")))
        lines = [value.rstrip("\r\n")] if isinstance(value, str) else []
        lines += [f"[exit status: {ended[1]}]"] if ended is not None else []
        return ("\n".join(lines), {}) if lines else None


def _entries(text: str) -> dict[str, Any]:
    """Return the entries of a JSON object and of objects in it, by their own keys; empty.

    It is not one.
    """
    try:
        return _flat(json.loads(text)) if text[:1] == "{" else {}
    except (ValueError, RecursionError):
        return {}


def _flat(entries: dict[str, Any]) -> dict[str, Any]:
    inner = [_flat(each) for each in entries.values() if isinstance(each, dict)]
    return {key: value for each in (*inner, entries) for key, value in each.items()}


def _form(text: str, at: int) -> _Text | _Json | None:
    """Return the form of the prefix before a sign.

    None if there is no prefix, or no certain one.
    """
    for key, value in _entries(text).items():
        if isinstance(value, str) and find_sign(value) >= 0:
            return _Json(key)
    string = _JSON_STRING.match(text, 0, at) if text.rstrip(" ,").endswith('"') else None
    prefix = string[0] if string is not None else text[:at]
    if not prefix.strip() or len(prefix) > _LONGEST_PREFIX or _NO_PREFIX.search(prefix):
        return None
    pattern, number, fenced = (
        _pattern(prefix),
        prefix.strip(),
        "|" in prefix and text.rstrip().endswith("|"),
    )
    return (
        _Text(re.compile(pattern), fenced, int(number[:18]) - 1 if number.isdigit() else 0)
        if pattern
        else None
    )


def _pattern(prefix: str) -> str:
    """Return a pattern of prefixes like this one; empty: it may be part of a row."""
    bare = prefix.strip(" \t")
    lead, _, blanks = prefix.partition(bare)
    if bare.isdigit():
        return r"[ \t]*(?P<line>\d+)" + re.escape(blanks[: blanks.find("\t") + 1] or blanks)
    if not blanks and re.fullmatch(r"\d+:", bare):
        return r"[ \t]*\d+[:-]"  # grep -n, and its context lines
    if not _NO_ROW.search(bare):
        return ""
    # One blank is the prefix's own. The others align a row, whose columns show what it has lost.
    end = rf"(?:{blanks[0]}|[ \t]*$)" if blanks else ""
    numbered = bare[0].isdigit() or bare[0] == "["
    # The blank after it only shows where a rank ends.
    return "".join(
        (r"[ \t]*" if numbered else re.escape(lead), *_parts(bare + blanks[:1], len(bare)), end)
    )


def _parts(text: str, length: int) -> Iterator[str]:
    """Yield patterns of a prefix's parts, as far as `length`."""
    ranked, names = False, 0
    for match in _PART.finditer(text):
        part = match[0]
        if match.start() >= length:
            return
        if match["time"]:
            yield _TIME
        elif match["blank"]:
            yield r"[ \t]+"
        elif match["rank"] and not ranked:
            ranked = True
            yield re.sub(r"\d+", lambda _: r"(?P<rank>\d+)", re.escape(part))
        elif match["name"] and not _PLAIN_NUMBER.fullmatch(part):
            names += 1
            yield rf"(?P<name{names}>{_numbers_vary(part)})"
        else:
            yield _numbers_vary(part)


def _numbers_vary(part: str) -> str:
    return re.sub(
        r"\d+",
        lambda found: rf"\d{{{len(found[0])}}}" if len(found[0]) >= _LONG_NUMBER else r"\d+",
        re.escape(part),
    )


def _unquoted(text: str) -> str:
    """Return the content of a JSON string whose opening quotation mark is already cut."""
    inside = text[: text.rfind('"')] if '"' in text else text
    try:
        return str(json.loads(f'"{inside}"')).rstrip("\r\n")
    except ValueError:
        return inside
