"""Backports from newer Pythons: `override`, in `typing` since 3.12."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import override as override  # noqa: PLC0414 - exported
else:

    def override(method: object) -> object:
        """Mark a method that implements one of a base or protocol and shares its docstring."""
        return method
