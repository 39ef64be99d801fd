"""Which texts every match of an expression contains, and the filter made of them."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fabbench.evidence.known_errors import by_code, fatal_texts
from fabbench.model.literals import Literal, may_match, prefilter, required_literals
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


@pytest.mark.parametrize("pattern", ["(?i)exit", "(?i:exit)"])
def test_a_literal_in_any_case_is_found_in_any_case(pattern: str) -> None:
    assert required_literals(pattern) == frozenset({Literal("exit", any_case=True)})
    for text in ("exit", "EXIT", "eXıt", "EX\u0130T"):
        assert re.search(pattern, text)
        assert prefilter([pattern]).search(text)


@pytest.mark.parametrize("text", ["kind", "sign", "ik", "éa", "É", "[s"])
def test_letters_with_more_spellings_than_two_are_found(text: str) -> None:
    found = prefilter([f"(?i:{re.escape(text)})"])
    for spelling in (text, text.upper(), text.replace("k", "\u212a"), text.replace("s", "\u017f")):
        assert found.search(spelling)


def test_a_pattern_without_literals_lets_every_text_through() -> None:
    assert prefilter(["abc", r"\d+"]).search("")


def test_a_filter_holds_back_what_has_no_literal() -> None:
    found = prefilter(["No such file", "file not found", "No", "Kill(?:ed|s)"])
    assert not found.search("such file was found: killed")
    for text in ("No such file", "file not found", "-No-", "Kills"):
        assert found.search(text)


def test_a_pattern_that_does_not_compile_is_refused() -> None:
    with pytest.raises(ValueError, match="does not compile"):
        required_literals("(a")


WORDS = st.text("abcA.", min_size=1, max_size=4)


@given(st.lists(WORDS, min_size=1, max_size=8), WORDS, st.data())
def test_a_filter_of_texts_finds_exactly_the_lines_with_one(
    texts: list[str], line: str, data: st.DataObject
) -> None:
    found = prefilter(map(re.escape, texts))
    line += data.draw(st.sampled_from(["", *texts])) + data.draw(WORDS)
    assert bool(found.search(line)) == any(text in line for text in texts)


@pytest.mark.parametrize("pattern", sampled(EXPRESSIONS, every=5))
def test_the_filter_hides_no_match_of_a_pattern(pattern: str) -> None:
    found = prefilter([pattern])

    @settings(max_examples=10, suppress_health_check=list(HealthCheck), database=None)
    @given(st.from_regex(pattern, alphabet=CHARACTERS))
    def hides_none(line: str) -> None:
        assert found.search(line)
        assert may_match(pattern, line)

    hides_none()
