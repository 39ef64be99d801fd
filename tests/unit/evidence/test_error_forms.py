"""error_forms.csv: each row has the form of its example, and not that of its counterexample."""

from collections.abc import Mapping

import pytest

from fabbench.evidence.first_error import FORMS, pattern_of
from tests.support.paths import DATA

ROWS = [pytest.param(row, id=f"{row['form']}: {row['name']}") for row in FORMS]
WHOLE_LINES = "usual end"
LINES = {
    line
    for path in (DATA / "dead").glob("*.toml")
    for line in path.read_text("utf-8").splitlines()
}


def has_form(line: str, row: Mapping[str, str]) -> bool:
    pattern = pattern_of([row])
    search = pattern.fullmatch if row["form"] == WHOLE_LINES else pattern.search
    return search(line) is not None


@pytest.mark.parametrize("row", ROWS)
def test_an_example_has_the_form_and_a_counterexample_has_not(row: Mapping[str, str]) -> None:
    assert has_form(row["example"], row)
    assert not has_form(row["counterexample"], row)


@pytest.mark.parametrize("row", ROWS)
def test_a_line_without_a_text_that_is_needed_has_not_the_form(row: Mapping[str, str]) -> None:
    if row["needs"]:
        needed = row["needs"].split("|")
        lines = [row["example"], *LINES]
        has_text = [any(text in f"^{line.lower()}" for text in needed) for line in lines]
        assert all(has_text[place] for place, line in enumerate(lines) if has_form(line, row))


def test_rows_of_a_form_have_names_of_their_own() -> None:
    names = [(row["form"], row["name"]) for row in FORMS]
    assert sorted(set(names)) == sorted(names)
