"""Records of TOML files: what is wrong in one is said with its file and line."""

from inspect import getsource
from types import ModuleType

import msgspec
import pytest

from fabbench.analysis import gate
from fabbench.evidence import judge
from fabbench.evidence.judge import VerdictText
from fabbench.model.patterns import expand
from fabbench.model.records import RecordError, Sentence, load, parse, sentence, sentences


class Cause(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: str
    lines: int = 1

    def __post_init__(self) -> None:
        if self.code == "bad":
            raise ValueError("there is no such code")


GOOD = '# A comment\n\n[[cause]]\ncode = "a"\n\n[[cause]]\ncode = "b"\nlines = 2\n'


def test_records_are_returned_in_their_order() -> None:
    assert parse(GOOD, "causes.toml", Cause) == (Cause("a"), Cause("b", 2))


def test_a_sentence_has_values_in_its_places() -> None:
    footnotes = ("fabbench.analysis", "footnotes.toml")
    assert sentence(*footnotes, "sources", sources="a from x.log") == "Sources: a from x.log."
    assert len(sentences(*footnotes)) == len(load(*footnotes, Sentence))  # a code is one sentence


@pytest.mark.parametrize(
    ("package", "name", "kind", "module"),
    [
        ("fabbench.analysis", "gates.toml", Sentence, gate),
        ("fabbench.evidence", "verdicts.toml", VerdictText, judge),
    ],
)
def test_each_sentence_has_one_code_that_its_module_asks_for(
    package: str, name: str, kind: type[Sentence], module: ModuleType
) -> None:
    codes = [each.code for each in load(package, name, kind)]
    assert len({*codes}) == len(codes)
    asked = getsource(module)
    assert [code for code in codes if f'"{code}"' not in asked] == []


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("lines = 2", "line = 2", 6),
        ("lines = 2", 'lines = "2"', 6),
        ('code = "a"', "", 3),
        ('code = "b"', 'code = "bad"', 6),
        ("lines = 2", "lines 2", 8),
        ('code = "a"', 'code = """\n[[cause]]"""\nx = 1', 3),
    ],
    ids=["unknown key", "type", "missing", "refused", "syntax", "header inside of a text"],
)
def test_an_error_names_file_and_line(old: str, new: str, line: int) -> None:
    with pytest.raises(RecordError, match=rf"^causes\.toml:{line}: "):
        parse(GOOD.replace(old, new), "causes.toml", Cause)


def test_names_in_patterns_are_replaced_and_unknown_ones_refused() -> None:
    assert expand("<RUN>: (?P<name>x)", {"RUN": "a|b"}) == "a|b: (?P<name>x)"
    with pytest.raises(ValueError, match="<OTHER>"):
        expand("<OTHER>", {"RUN": "a|b"})
