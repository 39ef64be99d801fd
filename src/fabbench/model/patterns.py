"""Regular expressions that are compiled when they are first used: most logs need few of them.

And the bound on what of a line they see: tests/architecture/test_patterns.py times every pattern.
"""

import re
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from fabbench.model.compat import override

Match: TypeAlias = re.Match[str]
LONGEST_LINE = 4096
"""Characters of a line that patterns see; lines of the field's tools have at most a few hundred."""
_LONGEST_END = 1024
# Other digits than ASCII's, or more than any number has: 64 bits have 20
_UNUSUAL = re.compile(r"(?:(?![0-9])\d)+|\d{25,}")
_OVERLONG_ZERO = "0" * 25
_AS_ZEROS = str.maketrans("123456789", "000000000")
_NAME = re.compile("<([A-Z]+)>")
NO_NUMBER = "…"
"""Stands for a number that no program prints, and that no pattern is to take for one."""
_CUT = f" {NO_NUMBER} "  # No pattern takes this for a name or a blank, either


class _Pattern:
    """Stands for `re.compile(pattern, flags)` until one of its attributes is used."""

    def __init__(self, pattern: str, flags: int) -> None:
        self.pattern = pattern
        self._source = pattern, flags

    def __getattr__(self, name: str) -> Any:
        compiled = re.compile(*self._source)
        # From now on `match` and the like are found directly, as on a compiled pattern.
        for method in (
            "match",
            "search",
            "fullmatch",
            "sub",
            "subn",
            "split",
            "findall",
            "finditer",
        ):
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return lazy, self._source


def lazy(pattern: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that is compiled when it is first used."""
    return cast("re.Pattern[str]", _Pattern(pattern, int(flags)))


def bounded(line: str) -> str:
    """Return a line as patterns may see it: of one that is too long, its beginning and its end."""
    if len(line) <= LONGEST_LINE:
        return line
    beginning = line[: LONGEST_LINE - _LONGEST_END - len(_CUT)]
    return beginning + _CUT + line[-_LONGEST_END:]


def with_usual_numbers(text: str) -> str:
    """Return text without numbers that no program prints: of 600 digits, or of Arabic ones."""
    # Searching all text for so many digits would take ten times as long.
    if text.isascii() and _OVERLONG_ZERO not in text.translate(_AS_ZEROS):
        return text
    return _UNUSUAL.sub(NO_NUMBER, text)


def expand(pattern: str, names: Mapping[str, str]) -> str:
    """Return a pattern in which each `<NAME>` is replaced by the expression of that name.

    Raise ValueError for a name that there is not.
    """
    unknown = [name for name in _NAME.findall(pattern) if name not in names]
    if unknown:
        known = ", ".join(names)
        raise ValueError(f"<{unknown[0]}> is none of the names {known}")
    return _NAME.sub(lambda name: names[name[1]], pattern)
