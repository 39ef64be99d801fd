"""What newer Pythons have: `override`, in `typing` since 3.12."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import override
elif sys.version_info >= (3, 12):
    from typing import override
else:

    def override(method: object) -> object:
        """Mark a method that implements one of a base class or protocol, whose docstring holds here too."""
        return method


__all__ = ["override"]
