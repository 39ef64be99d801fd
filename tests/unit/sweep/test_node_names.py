"""Names of nodes in names of files."""

import json

import pytest

from fabbench.sweep.node_names import known_in, pair_in
from tests.support.paths import DATA

PAIRS = json.loads((DATA / "node-names.json").read_text("utf-8"))
"""A path → the two nodes that it names."""


@pytest.mark.parametrize(("path", "pair"), PAIRS.items())
def test_two_names_that_differ_in_numbers_alone(path: str, pair: list[str] | None) -> None:
    assert pair_in(path) == (pair and tuple(pair))


def test_names_that_are_known_are_whole_words() -> None:
    known = {"gpu1", "gpu10", "login", "alpha"}
    assert known_in("x/gpu1_gpu10.log", known) == ("gpu1", "gpu10")
    assert known_in("gpu10-alpha.log", known) == ("alpha", "gpu10")
    assert known_in("gpu100.log", known) == ()
