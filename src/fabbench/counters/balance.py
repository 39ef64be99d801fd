"""How evenly something is spread. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Balance:
    """Of what each of several NICs moved. Perfectly even: `max_over_mean` 1, `cv` 0."""

    max_over_mean: float
    cv: float
    """Coefficient of variation: the standard deviation of the whole population divided by the mean."""
    sum: float
    mean: float


def balance(values: Sequence[float]) -> Balance | None:
    """Judge values that are not negative. None where nothing is to balance: fewer than two, or all 0."""
    total = math.fsum(values)
    if len(values) < 2 or total == 0:
        return None
    mean = total / len(values)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values))
    return Balance(max_over_mean=max(values) / mean, cv=deviation / mean, sum=total, mean=mean)
