"""What the gate takes a sample of, and `make nightly` takes whole."""

from collections.abc import Sequence
from typing import Any

import pytest

EVERY_CUT = pytest.mark.parametrize("every", [13, pytest.param(1, marks=pytest.mark.slow)])
"""The step between two places at which a test cuts a text."""


def seeds(few: int, many: int) -> pytest.MarkDecorator:
    """Return the parameters `seed` from 0 to `many`; those from `few` on are slow."""
    slow = (pytest.param(seed, marks=pytest.mark.slow) for seed in range(few, many))
    return pytest.mark.parametrize("seed", [*range(min(few, many)), *slow])


def sampled(values: Sequence[Any], every: int) -> list[Any]:
    """Return parameters of which only each `every`th one is not slow."""
    return [
        pytest.param(value, marks=[pytest.mark.slow] if number % every else [])
        for number, value in enumerate(values)
    ]
