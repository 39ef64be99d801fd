"""Launcher prefixes: cut from each line, and converted to the line's `Stream`.

A prefix is a pattern. Those of `prefixes.toml` are unmistakable. All others are learned from the
text before a line that only a benchmark prints: ``gpu-01: # nThread 1 nGpus 8 …`` shows that
``gpu-01: `` is a prefix, and that ``gpu-02: `` is one too. Where no line shows one, a rank, a
record of JSON, or a time or a service before nearly all lines does. Several may be stacked:
docs/formats.md.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, TypeAlias

from fabbench.logs.signs import all_signs, find_sign, signs_in
from fabbench.model import records
from fabbench.model.log import NO_STREAM, Stream
from fabbench.model.patterns import Match, lazy
from fabbench.model.signature import Signature


class KnownPrefix(records.PatternRecord, frozen=True):
    """A prefix of lines that no program prints itself.

    The only group of its pattern is a field of the stream, and a number.
    """

    program: str
    """Who writes it."""


KNOWN_PREFIXES = records.load("fabbench.logs", "prefixes.toml", KnownPrefix)
_PATTERNS = {prefix.program: prefix.pattern for prefix in KNOWN_PREFIXES}
_ANY_KNOWN = "|".join(_PATTERNS.values())
_KNOWN = lazy(f" *+(?:{_ANY_KNOWN})")
_STARTS = frozenset("[(#> 0123456789MTWFS")
"""First characters of the prefixes above: any other line has none."""
_NESTED = _STARTS - {" "}
_INNER = lazy(_PATTERNS["mpirun --tag-output, Open MPI 4 and 5"])
_COLOR = lazy(r"\x1b\[[0-9;?]*[A-Za-z]")

_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
_DAY = r"\d{4}[-/]\d\d[-/]\d\d[T ]"
_MONTH_DAY = r"[A-Z][a-z]{2} [ \d]\d "
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
_PLAIN_NUMBER = lazy(r"(?!\d+(?:\.\d+){3}$)(?:\d(?:\.\d)?(?:ns|us|ms|[smhd])?)+")
"""Maybe with a unit, and no address."""
_LONG_NUMBER = 9
"""From so many digits on, numbers (seconds since 1970) have equally many in each line."""
# {subprocess.py:93} is Airflow's
_NO_PREFIX = lazy(r"NCCL |\{(?!\w+\.py:\d+\})|(?<!\d)\}|\\n|#\s*[A-Za-z]")
_NO_ROW = lazy(r"\d{9}|[^\d.\s]")  # Part of any prefix that is not the beginning of a row
_LONGEST_PREFIX = 160
_LONGEST_KNOWN = 1024
"""Characters among which a known prefix ends, and what must follow it."""
_LABEL = lazy(r" *(?:\d+:|\[\d+\]) ")  # A rank
_DEBUG_LINE = lazy(r"[\w.-]+:\d+:\d+ \[-?\d+\] (?:\S+ )?NCCL (?:INFO|WARN) ")
_JSON_STRING = lazy(r'\s*(?:"[\w.@-]+":\s*)?"')
_ENDED = lazy(r"\bexit status ([1-9]\d{0,2})\b")
_ROW = lazy(r" *\d+ +\d")
_NEARLY_ALL = 0.9
_LINES_AGAIN = '"stdout_lines": ['
_with_fields = lru_cache(maxsize=1024)(Stream._replace)  # few prefixes recur on most lines
_OPENING = ("|", '"')
_MAX_FORMS = 16  # Limit of the learned prefixes that are tried: the latest
_MAX_STACKED = 32  # Limit of the prefixes of a line; real lines have three

_KEYS_OF_TEXT = ("log", "message", "msg")
"""Keys of what was printed, in records of Docker, Fluent Bit and their like."""
_KEYS_OF_LEVEL = frozenset({"level", "severity"})
"""Keys of a program's own records."""
_END_OF_MARGIN = lazy(r"(?:[]:|>)]|\dZ?| -) +(?=\S)")
_LABEL_OF_MARGIN = lazy(
    rf"[A-Za-z][\w.-]*-\d+ +\||(?![IWEF]\d{{4}} )(?:[^|]*[^\w|])?{_TIME}|1\d{{9}}\.\d+ "
)
"""A service of Docker Compose, a time among names and signs (not glog's), or seconds since 1970."""
_SAYS_MORE = lazy(r"NCCL|\|.*\||:.*\||(?i:err|warn|fail|fatal|critical|abort|rank|\.\w+[:(]\d+)")
"""Words, cells and source lines of a program."""
_LEVEL = lazy("(?i)err|warn|fatal")
"""What stands before it is the logger's."""
_FEWEST_LINES = 2  # that show a margin
_MOST_LINES = 1000  # that are asked for it


_Cut: TypeAlias = tuple[str, Mapping[str, str]]
"""What stands behind a prefix, and the fields that it states."""


class Prefixes:
    """Cuts the prefixes of one log: the known ones, and those learned from the log's own lines.

    `sample`: lines to learn from before the first one is cut.
    """

    def __init__(self, sample: Sequence[str] = ()) -> None:
        self.forms: list[_Text | _Json] = []
        """The learned prefixes, the latest first."""
        self._groups: dict[str, str] = {}
        """Names in learned prefixes before a banner → the stream group of their lines."""
        self._repeated = _LINES_AGAIN in "\n".join(sample)
        """Whether ansible prints a program's output twice: as one string, and line by line."""
        signed = self._learn_before_signs(sample)
        if not self.forms:
            self._learn_label(sample, signed=signed)
        record = None if self.forms else _form_of_record(next(iter(sample), ""))
        if record is not None:
            self.forms.append(record)
        if not self.forms:
            self._learn_margin(sample[:_MOST_LINES])

    def _learn_before_signs(self, sample: Sequence[str]) -> bool:
        """Learn what stands before lines that only a benchmark prints; return whether any is.

        Banners and headers show it best, then a footer or a row. A debug line itself shows nothing
        that others do not; one with a quotation mark may be a JSON string of many lines.
        """
        lines = [line for line in sample if " NCCL " not in line or '"' in line]
        signs = signs_in("\n".join(lines))
        begins = [sign for sign in signs if sign.begins]
        signed = _lines_with(begins, lines) or _lines_with(signs, lines)
        for line in signed:
            while self.learn(self.cut(line)[0], signs):
                pass  # another one may stand behind what is cut now
        return bool(signed)

    def _learn_label(self, sample: Sequence[str], *, signed: bool) -> None:
        """Learn a rank that stands before debug lines, or else before nearly all.

        `signed`: whether the sample has lines that only a benchmark prints. No prefix was learned
        from those: then only debug lines can show one.
        """
        lines = _debug_lines(sample) if signed else sample
        cut = [self.cut(line)[0] for line in lines]
        texts = [f"{text} " for text in cut if text.strip()]
        labels = [match for match in map(_LABEL.match, texts) if match is not None]
        # A number right before a debug line is a rank; before others, only if nearly all have one.
        certain = [label for label in labels if _DEBUG_LINE.match(label.string, label.end())]
        nearly_all = max(2, _NEARLY_ALL * len(texts))
        if not certain and not signed and len(labels) >= nearly_all:
            certain = labels
        if certain:  # one is enough: its pattern fits the labels of all ranks
            pattern = _pattern(certain[0][0])
            self.forms.append(_Text(re.compile(pattern)))

    def _learn_margin(self, sample: Sequence[str]) -> None:
        """Learn what stands before nearly all lines, if it has a time, or names a service."""
        printed = [line for line in sample if line.strip()]
        if len(printed) < _FEWEST_LINES:
            return
        for form in _margins(self.cut(printed[0])[0]):
            cut = (form.cut(self.cut(line)[0]) for line in printed)
            if sum(map(bool, cut)) >= _NEARLY_ALL * len(printed):
                self.forms.append(form)
                return

    def cut(self, raw: str, outer: Stream = NO_STREAM) -> tuple[str, Stream]:
        """Return the text without its prefixes, and the stream that it belongs to.

        `outer`: what prefixes cut before have stated. The text contains newlines if a log entry
        holds several lines.
        """
        text = _without_decoration(raw)
        if self._repeated and text.lstrip().startswith('"stdout":'):  # its lines follow, too
            return "", outer
        if not self.forms and text[:1] not in _STARTS:  # no known prefix begins like this
            return text, outer
        return self._cut_stacked(text, outer)

    def _cut_stacked(self, text: str, stream: Stream) -> tuple[str, Stream]:
        """Cut prefixes that stand before each other; each learned form occurs once."""
        forms = self.forms
        for _ in range(_MAX_STACKED):
            known_prefix = _KNOWN.match(text, 0, _LONGEST_KNOWN)
            if known_prefix is not None:
                text = text[known_prefix.end() :]
                stream = _with_known(stream, known_prefix)
            form, cut = _first_cut(forms, text)
            if cut is not None:
                forms = _without(forms, form)
                text, stream = self._with_learned(text, *cut, stream)
            may_have_more = bool(forms) or text[:1] in _NESTED
            is_cut = cut is not None or known_prefix is not None
            if not (is_cut and may_have_more):
                break
        return text, stream

    def learn(self, text: str, signs: Sequence[Signature] | None = None) -> bool:
        """Learn the prefix before a sign, of a text without known prefixes.

        Return whether there is a new one. `signs`: those to look for; None: all that begin an
        output.
        """
        at = find_sign(text, all_signs(begins=True) if signs is None else signs)
        inner = inner_tag(text)
        # A tag of mpirun is a prefix by itself: what stands before it is another, or is nothing if
        # it is text that has lost its newline.
        if 0 < inner < at:
            at = 0 if text[inner - 1].isalnum() else inner
        if at <= 0:
            return False
        form = _form(text, at)
        # One that does not cut the line that it is from would be wrong.
        if form is None or form in self.forms or form.cut(text) is None:
            return False
        self.forms = [form, *self.forms][:_MAX_FORMS]
        return True

    def _with_learned(
        self, text: str, rest: str, fields: Mapping[str, str], stream: Stream
    ) -> tuple[str, Stream]:
        """Return what is left of a text, and its stream with what a learned prefix states.

        `rest` and `fields`: the text without the prefix, and the rank and names in that.
        """
        rank = fields.get("rank", "")
        names_stated = (value for name, value in fields.items() if name != "rank")
        names = " ".join(names_stated)
        is_new = names not in self._groups
        if names and is_new and find_sign(rest, all_signs(begins=True)) >= 0:
            # Each name that begins an execution is a group. The first one's group also has all the
            # others.
            self._groups[names] = names if self._groups else ""
        if rank and _ROW.match(rest):
            # hydra labels each block that it reads, also in the middle of a row.
            label = text[: len(text) - len(rest)]
            rest = rest.replace(label, "")
        group = self._groups.get(names, "")
        if rank or group:
            stream = stream._replace(group=group or stream.group, rank=rank or stream.rank)
        return rest, stream


class RepeatedCuts:
    """The prefixes that were cut before: nearly all lines begin with one, which costs a lookup.

    Another one may stand behind it. A row or debug text shows that none does; any other line is cut
    again, as a whole.
    """

    __slots__ = ("_forms", "_lengths", "_prefixes", "_streams")

    def __init__(self, prefixes: Prefixes) -> None:
        self._prefixes = prefixes
        self._forget()

    def _forget(self) -> None:
        self._forms = self._prefixes.forms  # With others, lines are cut otherwise
        self._lengths: list[int] = []
        """The lengths of the prefixes below, the longest first."""
        self._streams: dict[str, Stream] = {}
        """Prefix → the stream that it states."""

    def cut(self, raw: str) -> tuple[str, Stream]:
        """Return a line without a prefix that was cut before, or else without all; its stream."""
        if self._prefixes.forms is not self._forms:
            self._forget()
        for length in self._lengths:
            stream = self._streams.get(raw[:length])
            if stream is not None:
                return raw[length:], stream
        return self.cut_whole(raw)

    def cut_whole(self, raw: str) -> tuple[str, Stream]:
        """Return a line without its prefixes, and its stream; remember them for the lines below."""
        text, stream = self._prefixes.cut(raw)
        prefix = raw[: len(raw) - len(text)]
        # Behind a quotation mark, or in a cell, the end of a line is cut, too.
        if raw.endswith(text) and not prefix.rstrip().endswith(_OPENING):
            self._remember(prefix, stream)
        return text, stream

    def _remember(self, prefix: str, stream: Stream) -> None:
        self._streams[prefix] = stream
        if len(prefix) not in self._lengths:
            self._lengths = sorted([*self._lengths, len(prefix)], reverse=True)


def _lines_with(signs: Sequence[Signature], lines: Sequence[str]) -> list[str]:
    return [line for line in lines if find_sign(line, signs) >= 0] if signs else []


def _debug_lines(sample: Sequence[str]) -> Iterable[str]:
    """Return a debug line of each thread, as all of one have the same prefix.

    Where that has a time, lines that differ in it count as of different threads.
    """
    by_origin: dict[str, str] = {}
    for line in sample:
        origin, debug, _ = line.partition(" NCCL ")
        if debug and line[:1] in _STARTS:
            by_origin[origin] = line
    return by_origin.values()


def _with_known(stream: Stream, prefix: Match) -> Stream:
    """Return a stream with what a known prefix states.

    Its only group is named after a field of the stream, with a digit, as names must differ.
    """
    name = prefix.lastgroup
    if name is None:
        return stream
    field_name = name.rstrip("1234")
    stated: Stream = _with_fields(stream, **{field_name: prefix[name]})
    return stated


def _without_decoration(raw: str) -> str:
    # The copy of a page of gist.github.com has empty cells behind each line.
    text = raw if raw[:1] == "|" else raw.removesuffix(" | |")
    return strip_colors(text) if "\x1b" in text else text


def strip_colors(text: str) -> str:
    """Remove terminal colors."""
    return _COLOR.sub("", text)


def inner_tag(text: str) -> int:
    """Return at which character of a line another mpirun tag begins; -1: at none.

    Open MPI 4 reads blocks and begins each with a tag, even in the middle of a line.
    """
    match = _INNER.search(text) if "<std" in text else None
    return match.start() if match else -1


@dataclass(slots=True)
class _Text:
    """A form of prefix before text: a pattern."""

    pattern: re.Pattern[str]
    fenced: bool = False  # Whether the line is a cell of a table, and ends with `|`

    def cut(self, text: str) -> _Cut | None:
        """Return the text without the prefix, and the prefix's fields.

        None if the line has none of this form.
        """
        match = self.pattern.match(text, 0, _LONGEST_KNOWN)
        if match is None:
            return None
        rest = text[match.end() :]
        fields = {name: value for name, value in match.groupdict().items() if value}
        if match[0].rstrip().endswith('"'):
            rest = _unquoted(rest)
        elif self.fenced:  # a cell of a table, whose other end is cut, too
            rest = rest.rstrip().removesuffix("|").rstrip()
        return rest, fields


@dataclass(slots=True)
class _Json:
    """Lines that are JSON objects, with the output of the program as one value."""

    key: str  # That of the value

    def cut(self, text: str) -> _Cut | None:
        """Return the value, which may hold several lines; None if the line is not such an object.

        An entry may also state how the program ended: that becomes a separate line. The fields
        are empty: nothing in an entry is known to tell streams apart.
        """
        entries = _entries(text)
        lines: list[str] = []
        value = entries.get(self.key)
        if isinstance(value, str):
            lines.append(value.rstrip("\r\n"))
        error = entries.get("error", "")
        ended = _ENDED.search(str(error))
        if ended is not None:
            lines.append(f"[exit status: {ended[1]}]")
        return ("\n".join(lines), {}) if lines else None


def _entries(text: str) -> dict[str, Any]:
    """Return the entries of a JSON object and of objects in it, by their own keys.

    Empty if the text is no object.
    """
    if not text.startswith("{"):
        return {}
    try:
        return _flat(json.loads(text))
    except (ValueError, RecursionError):
        return {}


def _form_of_record(line: str) -> _Json | None:
    """Return the form of records of what a program printed; None for its own, and other lines."""
    entries = _entries(line)
    keys = (key for key in _KEYS_OF_TEXT if key in entries)
    key = next(keys, "")
    return _Json(key) if key and _KEYS_OF_LEVEL.isdisjoint(entries) else None


def _flat(entries: dict[str, Any]) -> dict[str, Any]:
    # The entries, and those of the objects among their values. Of equal keys, the outermost counts.
    inner: dict[str, Any] = {}
    for value in entries.values():
        if isinstance(value, dict):
            inner |= _flat(value)
    return inner | entries


_Form: TypeAlias = _Text | _Json


def _without(forms: Sequence[_Form], form: _Form | None) -> list[_Form]:
    return [other for other in forms if other is not form]


def _first_cut(
    forms: Sequence[_Form],
    text: str,
) -> tuple[_Form | None, _Cut | None]:
    """Return the first form of a learned prefix that a text has, and what it cuts; else None."""
    for form in forms:
        cut = form.cut(text)
        if cut is not None:
            return form, cut
    return None, None


def _form(text: str, at: int) -> _Form | None:
    """Return the form of the prefix before a sign, which is at a character of a text.

    None if there is no prefix, or no certain one.
    """
    # A log entry in JSON that holds the line as the value of a key.
    for key, value in _entries(text).items():
        if isinstance(value, str) and find_sign(value) >= 0:
            return _Json(key)
    quoted = text.rstrip(" ,").endswith('"')
    string = _JSON_STRING.match(text, 0, at) if quoted else None
    prefix = string[0] if string is not None else text[:at]
    bare = prefix.strip()
    if not bare or len(prefix) > _LONGEST_PREFIX or _NO_PREFIX.search(prefix):
        return None
    pattern = _pattern(prefix)
    if not pattern:
        return None
    fenced = "|" in prefix and text.rstrip().endswith("|")  # a cell of a table
    return _Text(re.compile(pattern), fenced)


def _margins(line: str) -> Iterator[_Form]:
    """Yield forms of what may stand before each line, the longest first: no word of a program's."""
    label = _LABEL_OF_MARGIN.match(line, 0, _LONGEST_PREFIX)
    if label is None:
        return
    every = _END_OF_MARGIN.finditer(line, label.end() - len("0Z"), _LONGEST_PREFIX)
    for end in reversed([match.end() for match in every]):
        says_more = _SAYS_MORE.search(line, 0, end) or _LEVEL.match(line, end)
        form = None if says_more else _form(line, end)
        if form is not None:
            yield form


def _pattern(prefix: str) -> str:
    """Return a pattern of prefixes like this one; empty: it may be part of a row."""
    bare = prefix.strip(" \t")
    lead, _, blanks = prefix.partition(bare)  # the blanks before and after it
    is_number_of_line = not blanks and re.fullmatch(r"\d+:", bare)  # as grep -n prints it
    if is_number_of_line or not _NO_ROW.search(bare):
        return ""
    # One blank is the prefix's own. The others align a row, whose columns show what it has lost.
    end = rf"(?:{blanks[0]}|[ \t]*$)" if blanks else ""
    is_numbered = bare[0].isdigit() or bare[0] == "["  # numbers are aligned with blanks
    begin = r"[ \t]*" if is_numbered else re.escape(lead)
    # The blank after it only shows where a rank ends.
    parts = _parts(bare + blanks[:1], len(bare))
    return "".join((begin, *parts, end))


_ANY_OF_KIND = {"time": _TIME, "blank": r"[ \t]+"}


def _parts(text: str, length: int) -> Iterator[str]:
    """Yield patterns of a prefix's parts, as far as `length`.

    Any time, blanks and numbers match. The first rank and all names become groups: they tell
    streams apart. A number with a unit is no name.
    """
    has_rank = False
    names = 0
    every = _PART.finditer(text)
    inside = takewhile(lambda match: match.start() < length, every)
    for match in inside:
        part = match[0]
        kind = match.lastgroup or ""
        pattern = _ANY_OF_KIND.get(kind) or _with_any_numbers(part)
        if kind == "rank" and not has_rank:
            has_rank = True
            pattern = re.sub(r"\d+", r"(?P<rank>\\d+)", re.escape(part))
        elif kind == "name" and not _PLAIN_NUMBER.fullmatch(part):
            names += 1
            pattern = f"(?P<name{names}>{pattern})"
        yield pattern


def _with_any_numbers(part: str) -> str:
    """Return a pattern of this text, in which each number may be another one."""
    return re.sub(r"\d+", _any_number, re.escape(part))


def _any_number(number: Match) -> str:
    """Return a pattern of numbers like this one: long ones have as many digits."""
    digits = len(number[0])
    return rf"\d{{{digits}}}" if digits >= _LONG_NUMBER else r"\d+"


def _unquoted(text: str) -> str:
    """Return the content of a JSON string whose opening quotation mark is already cut."""
    before, quotation_mark, _ = text.rpartition('"')
    inside = before if quotation_mark else text
    try:
        content: str = json.loads(f'"{inside}"')
    except ValueError:  # it is quoted, and no JSON
        return inside
    return content.rstrip("\r\n")
