"""A stand-in for torch on machines without GPUs.

As much of it as fabbench's all_reduce program uses.

A trial takes a set time and no data move. In place of NCCL it says over which network it would go,
by the environment that the process really has.
"""

import itertools
from types import SimpleNamespace

__version__ = "2.6.0+standin"
float16 = bfloat16 = float32 = float64 = "type"
SECONDS = 0.002
clock = itertools.count().__next__
trials: list[int] = []


class Tensor:
    """Some numbers, of which only the count is kept, or one."""

    def __init__(self, count: int, value: float = 0.0) -> None:
        self.count, self.value = count, value

    def to(self, where: object) -> "Tensor":
        return self

    def numel(self) -> int:
        return self.count

    def item(self) -> float:
        return self.value


class Event:
    """Remembers how many trials there were before it."""

    def __init__(self, *, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        self.before = len(trials)

    def elapsed_time(self, later: "Event") -> float:
        return (later.before - self.before) * SECONDS * 1e3


def rand(*shape: int, dtype: object) -> Tensor:
    count = 1
    for length in shape:
        count *= length
    return Tensor(count)


def tensor(values: list[float], dtype: object) -> Tensor:
    return Tensor(len(values), values[0])


cuda = SimpleNamespace(
    Event=Event,
    device_count=lambda: 8,
    set_device=lambda where: None,
    synchronize=lambda: None,
    nccl=SimpleNamespace(version=lambda: (2, 21, 5)),
)
version = SimpleNamespace(cuda="12.4")
