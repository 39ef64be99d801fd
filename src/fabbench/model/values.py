"""What most classes are: values."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen(kind: type[T]) -> type[T]:
    """Make a class a dataclass whose values never change, and whose fields are given by name."""
    return dataclass(frozen=True, slots=True, kw_only=True)(kind)
