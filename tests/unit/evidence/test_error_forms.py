"""error_forms.csv: each row has the form of its example, and not that of its counterexample."""

from collections.abc import Callable, Mapping
from functools import cache

import pytest

from fabbench.evidence import first_error
from tests.support.paths import DATA

FORMS = first_error.FORMS
ROWS = [pytest.param(row, id=f"{row['form']}: {row['name']}") for row in FORMS]
WHOLE_LINES = "usual end"
TEXTS = [path.read_text("utf-8") for path in (DATA / "dead").glob("*.toml")]
LINES = {line for text in TEXTS for line in text.splitlines()}


IN_SMALL = {line: f"^{line.lower()}" for line in LINES}


@cache
def lines_with(text: str) -> frozenset[str]:
    """Return the lines that have a text, in small letters."""
    return frozenset(line for line, small in IN_SMALL.items() if text in small)


def forms(row: Mapping[str, str]) -> Callable[[str], object]:
    """Return what finds the form of a row, by the row alone, in a line."""
    pattern = first_error.pattern_of_rows([row])
    return pattern.fullmatch if row["form"] == WHOLE_LINES else pattern.search


@pytest.mark.parametrize("row", ROWS)
def test_an_example_has_the_form_and_a_counterexample_has_not(row: Mapping[str, str]) -> None:
    has_form = forms(row)
    assert has_form(row["example"])
    assert not has_form(row["counterexample"])
    assert any(text in f"^{row['example'].lower()}" for text in row["needs"].split("|"))


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_lines_without_a_text_that_is_needed_have_not_the_form(every: int) -> None:
    lines = frozenset(sorted(LINES)[::every])
    for row in FORMS:
        needed = row["needs"].split("|")  # an empty one is in every line
        has_form = forms(row)
        for line in lines.difference(*map(lines_with, needed)):
            assert not has_form(line), (row, line)


def test_rows_of_a_form_have_names_of_their_own() -> None:
    names = [(row["form"], row["name"]) for row in FORMS]
    assert sorted(set(names)) == sorted(names)
