"""A fixture: what fabbench logs.

pytest's own goes through all loggers before and after every test.
"""

import logging
from collections.abc import Iterator

import pytest

from fabbench.cli.commands import log_lines


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Yield the messages that fabbench's loggers have been given so far."""
    messages: list[str] = []
    with log_lines(logging.getLogger("fabbench"), messages.append):
        yield messages
