"""Values: classes whose fields are given by name and never change."""

from dataclasses import FrozenInstanceError, replace

import pytest

from fabbench.model.mappings import without_empty
from fabbench.model.values import frozen


@frozen
class Pair:
    """Two of them."""

    one: str
    two: int = 2


def test_a_value_has_fields_by_name_and_never_changes() -> None:
    pair = Pair(one="a")
    assert (pair.one, pair.two) == ("a", 2)
    assert replace(pair, two=3) == Pair(one="a", two=3)
    assert not hasattr(pair, "__dict__")  # so that a misspelled field cannot be set
    with pytest.raises(FrozenInstanceError):
        setattr(pair, "one", "b")  # noqa: B010 - mypy knows that it cannot be assigned


def test_what_is_empty_is_left_out() -> None:
    assert without_empty({"a": "x", "b": "", "c": None, "d": 0, "e": 1}) == {"a": "x", "e": 1}
