"""Backports from newer Pythons: `override`, in `typing` since 3.12."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import override
elif sys.version_info >= (3, 12):
    from typing import override
else:

    def override(method: object) -> object:
        """Mark a method that implements one of a base class or protocol, and shares its docstring."""
        return method


__all__ = ["override"]
