"""Threads that do not keep fabbench alive."""

import threading
from collections.abc import Callable


def in_background(work: Callable[..., object], *arguments: object, name: str) -> None:
    """Call `work` in a thread that ends with fabbench; `name` is for whoever looks at threads."""
    named = f"fabbench {name}"
    threading.Thread(target=work, args=arguments, name=named, daemon=True).start()
