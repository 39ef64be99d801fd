"""The values of options as texts."""

import pytest

from fabbench.model.options import Seconds


def test_times_are_seconds_or_have_a_unit() -> None:
    read = Seconds(1).parse
    assert [read(text) for text in ("90", "1.5s", "10m", "2h")] == [90, 1.5, 600, 7200]
    for text in ("0", "0m", "0.5", "1d", "m", "-1", "10 m"):
        with pytest.raises(ValueError, match=r"^$"):
            read(text)
