"""harmless.toml: warnings that say nothing of a run, and others beside them."""

import pytest

from fabbench.evidence.known_errors import HarmlessWarning, harmless_warnings, is_harmless


@pytest.mark.parametrize("warning", harmless_warnings(), ids=lambda each: each.pattern)
def test_a_harmless_warning_is_known_and_the_one_beside_it_is_none(
    warning: HarmlessWarning,
) -> None:
    assert is_harmless(warning.example)
    assert not is_harmless(warning.counterexample)
