"""Values by a key, and one of several values."""

from collections.abc import Sequence

import pytest

from fabbench.model.mappings import first_of, grouped_by, map_values, only, without, without_none


def test_values_that_are_not_known_are_left_out_and_zero_and_empty_ones_are_not() -> None:
    assert without_none({"a": None, "b": 0, "c": ""}) == {"b": 0, "c": ""}


def test_keys_are_left_out_also_those_that_are_not_there() -> None:
    assert without({"a": 1, "b": 2}, {"b", "z"}) == {"a": 1}


def test_each_value_becomes_another_under_its_key_in_order() -> None:
    changed = map_values(len, {"b": "xy", "a": ""})
    assert list(changed.items()) == [("b", 2), ("a", 0)]


def test_values_are_grouped_by_what_they_have_in_common_in_order() -> None:
    groups = grouped_by(str.isdigit, ["b", "1", "a"])
    assert list(groups.items()) == [(False, ["b", "a"]), (True, ["1"])]


def test_the_first_of_several_or_the_default() -> None:
    nothing: list[str] = []
    assert first_of([3, 4], None) == 3
    assert first_of(nothing, "none") == "none"


@pytest.mark.parametrize(
    ("values", "found"), [([], "-"), (["x"], "x"), ([""], ""), (["x", "y"], "-")]
)
def test_the_only_value_or_the_default(values: Sequence[str], found: str) -> None:
    assert only(values, "-") == found
