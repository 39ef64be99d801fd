"""Looking again and again until a limit has passed."""

from itertools import islice

from fabbench.execution.waiting import moments


def test_it_is_looked_at_least_once() -> None:
    assert list(moments(limit_s=0, every_s=60)) == [None]


def test_it_is_looked_again_until_the_limit() -> None:
    assert len(list(islice(moments(limit_s=60, every_s=0), 5))) == 5
