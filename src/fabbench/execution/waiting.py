"""Looking again and again at what may take a while."""

import time
from collections.abc import Iterator


def moments(limit_s: float, every_s: float) -> Iterator[None]:
    """Yield at once, and again every so many seconds, until the limit has passed."""
    deadline = time.monotonic() + limit_s
    yield
    while time.monotonic() < deadline:
        time.sleep(every_s)
        yield
