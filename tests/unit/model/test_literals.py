"""Which texts every match of an expression contains, and the index made of them."""

import re
from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabbench.evidence.known_errors import by_code, fatal_texts
from fabbench.model.literals import Index, Literal, required_literals
from tests.support.any_text import CHARACTERS
from tests.support.tiers import sampled

EXPRESSIONS = [each for text in fatal_texts() for each in text.expressions]
EXPRESSIONS += [each for error in by_code().values() for each in error.patterns]


@pytest.mark.parametrize(
    ("pattern", "texts"),
    [
        ("Killed$", {"Killed"}),
        (r"\bA b\b", {"A b"}),
        ("(?:ORTE|PRTE) was lost", {" was lost"}),
        ("a(?:bc|bd)e?", {"ab"}),
        ("(?:first|second) x", {"first", "second"}),
        ("(?:first|.*)xy", {"xy"}),
        ("(?:first|.*)", None),
        (r"\w+", None),
        ("(?:abc)?d", {"d"}),
        ("(?:abc)+d", {"abc"}),
        ("(?!abc)de", {"de"}),
        ("(?>abc)[de]", {"abc"}),
        ("", None),
    ],
)
def test_required_literals_are_the_longest_runs_of_each_alternative(
    pattern: str, texts: set[str] | None
) -> None:
    needed = required_literals(pattern)
    assert (None if needed is None else {each.text for each in needed}) == texts


def possible(patterns: Iterable[str], text: str) -> list[str]:
    return [pattern for pattern, _ in Index((each, None) for each in patterns).possible(text)]


@pytest.mark.parametrize("pattern", ["(?i)exit", "(?i:exit)"])
def test_a_literal_in_any_case_is_found_in_any_case(pattern: str) -> None:
    assert required_literals(pattern) == frozenset({Literal("exit", any_case=True)})
    for text in ("exit", "EXIT", "eXıt", "EX\u0130T"):
        assert re.search(pattern, text)
        assert possible([pattern], text)
    assert not possible([pattern], "sent")


@pytest.mark.parametrize("text", ["kind", "sign", "ik", "éa", "É", "[s"])
def test_letters_with_more_spellings_than_two_are_found(text: str) -> None:
    pattern = f"(?i:{re.escape(text)})"
    for spelling in (text, text.upper(), text.replace("k", "\u212a"), text.replace("s", "\u017f")):
        assert possible([pattern], spelling)


def test_a_pattern_without_literals_may_match_any_text() -> None:
    assert possible(["abc", r"\d+"], "") == [r"\d+"]


def test_what_a_text_may_match_are_patterns_in_their_order_each_once() -> None:
    patterns = ["No such file", "file not found", "No", "(?:first|second) x?"]
    assert possible(patterns, "such file was found: 1st") == []
    found = possible(patterns, "No such file; first second ")
    assert found == ["No such file", "No", "(?:first|second) x?"]


def test_a_pattern_that_does_not_compile_is_refused() -> None:
    with pytest.raises(ValueError, match="does not compile"):
        required_literals("(a")


WORDS = st.text("abcA.", min_size=1, max_size=4)


@given(st.lists(WORDS, min_size=1, max_size=8, unique=True), WORDS, st.data())
def test_of_texts_exactly_those_in_a_line_are_found(
    texts: list[str], line: str, data: st.DataObject
) -> None:
    line += data.draw(st.sampled_from(["", *texts])) + data.draw(WORDS)
    found = possible(map(re.escape, texts), line)
    assert found == [re.escape(text) for text in texts if text in line]


@pytest.mark.parametrize("pattern", sampled(EXPRESSIONS, every=10))
def test_the_index_hides_no_match_of_a_pattern(pattern: str) -> None:
    @settings(max_examples=10, suppress_health_check=list(HealthCheck), database=None)
    @given(st.from_regex(pattern, alphabet=CHARACTERS))
    def hides_none(line: str) -> None:
        assert possible([pattern], line)

    hides_none()
