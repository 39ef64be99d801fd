"""Label selectors, as kubectl writes them: ``a=b,c!=d,e in (f,g),h notin (i),j,!k``. Pure.

The grammar and the meaning are those of k8s.io/apimachinery/pkg/labels.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from fabbench.errors import RequestError

_PREFIX = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?"
_WORD = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_KEY = re.compile(rf"{_PREFIX}{_WORD}")
_VALUE = re.compile(rf"(?:{_WORD})?")
_EQUALS = re.compile(r"(?P<key>[^=!()\s]+)\s*(?P<sign>==|=|!=)\s*(?P<value>[^=!()\s]*)")
_SET = re.compile(r"(?P<key>[^=!()\s]+)\s+(?P<sign>in|notin)\s*\((?P<values>[^()]*)\)")
_THERE = re.compile(r"(?P<sign>!?)\s*(?P<key>[^=!()\s]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One condition. `values` None: whether there is such a label; else whether its value is one of them."""

    key: str
    values: frozenset[str] | None
    negated: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels fulfil it. A label that is not there is not one of any values."""
        fulfilled = self.key in labels if self.values is None else labels.get(self.key) in self.values
        return fulfilled is not self.negated


def read_selector(text: str) -> tuple[Requirement, ...]:
    """Read a selector; all of its conditions must hold.

    Raises RequestError that names the part it cannot read.
    """
    return tuple(_requirement(part, text) for part in _parts(text)) if text.strip() else ()


def selects(requirements: Iterable[Requirement], labels: Mapping[str, str]) -> bool:
    """Whether labels fulfil every condition."""
    return all(each.matches(labels) for each in requirements)


def _parts(text: str) -> Iterator[str]:
    """Split at the commas outside brackets."""
    depth = start = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            yield text[start:index].strip()
            start = index + 1
    yield text[start:].strip()


def _requirement(part: str, text: str) -> Requirement:
    if match := _SET.fullmatch(part):
        values = frozenset(value.strip() for value in match["values"].split(","))
        return _checked(Requirement(key=match["key"], values=values, negated=match["sign"] == "notin"), text)
    if match := _EQUALS.fullmatch(part):
        values = frozenset({match["value"]})
        return _checked(Requirement(key=match["key"], values=values, negated=match["sign"] == "!="), text)
    if match := _THERE.fullmatch(part):
        return _checked(Requirement(key=match["key"], values=None, negated=bool(match["sign"])), text)
    raise _unreadable(part, text)


def _checked(requirement: Requirement, text: str) -> Requirement:
    wrong = [value for value in requirement.values or () if not _VALUE.fullmatch(value)]
    if wrong:
        raise _unreadable(min(wrong), text)
    if not _KEY.fullmatch(requirement.key):
        raise _unreadable(requirement.key, text)
    return requirement


def _unreadable(part: str, text: str) -> RequestError:
    return RequestError(
        f"{text!r} is no label selector: {part!r} cannot be read.",
        hint="Write it as kubectl does: 'a=b', 'a!=b', 'a in (b,c)', 'a notin (b)', 'a', '!a', with commas.",
    )
