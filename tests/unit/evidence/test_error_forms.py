"""error_forms.csv: each row has the form of its example, and not that of its counterexample."""

from collections.abc import Mapping
from unittest.mock import patch

import pytest

from fabbench.evidence import first_error
from tests.support.paths import DATA

FORMS = first_error.FORMS
ROWS = [pytest.param(row, id=f"{row['form']}: {row['name']}") for row in FORMS]
WHOLE_LINES = "usual end"
TEXTS = [path.read_text("utf-8") for path in (DATA / "dead").glob("*.toml")]
LINES = {line for text in TEXTS for line in text.splitlines()}


def has_form(line: str, row: Mapping[str, str]) -> bool:
    with patch.object(first_error, "FORMS", [row]):  # the row alone
        pattern = first_error.pattern_of(row["form"])
    search = pattern.fullmatch if row["form"] == WHOLE_LINES else pattern.search
    return search(line) is not None


@pytest.mark.parametrize("row", ROWS)
def test_an_example_has_the_form_and_a_counterexample_has_not(row: Mapping[str, str]) -> None:
    assert has_form(row["example"], row)
    assert not has_form(row["counterexample"], row)


@pytest.mark.parametrize("row", ROWS)
def test_a_line_without_a_text_that_is_needed_has_not_the_form(row: Mapping[str, str]) -> None:
    needed = row["needs"].split("|")  # an empty one is in every line
    for line in (row["example"], *LINES):
        has_text = any(text in f"^{line.lower()}" for text in needed)
        assert has_text or not has_form(line, row), line


def test_rows_of_a_form_have_names_of_their_own() -> None:
    names = [(row["form"], row["name"]) for row in FORMS]
    assert sorted(set(names)) == sorted(names)
