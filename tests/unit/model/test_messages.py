"""Texts as they are shown."""

import pytest

from fabbench.model.log import Finding, Severity
from fabbench.model.messages import output_text, single_spaced, with_line_feeds, with_remark


def test_text_with_any_blanks_is_one_line() -> None:
    assert single_spaced("  a\tb\n c ") == "a b c"


@pytest.mark.parametrize(
    ("lines", "text"), [([], "no output"), ([""], "no output"), (["error: a", "b."], "error: a b")]
)
def test_what_a_program_printed(lines: list[str], text: str) -> None:
    assert output_text(lines) == text


def test_each_line_has_an_end() -> None:
    assert with_line_feeds(["a", ""]) == "a\n\n"


def test_a_remark_is_in_brackets_if_there_is_one() -> None:
    assert with_remark("a", "b") == "a (b)"
    assert with_remark("a", "") == "a"


def test_a_finding_without_advice_ends_with_its_meaning() -> None:
    finding = Finding(code="x", severity=Severity.NOTE, meaning="It is so.")
    assert str(finding) == "note: It is so."
