"""Rails: each network device of one host with one of another, and what they come to together. Pure."""

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from fabbench.errors import RequestError
from fabbench.model import METRICS, Log, Metric, Outcome, Point

BEHIND = 0.1
"""A rail that is worse than the mean by more than this part of it stands out."""


# ---------------------------------------------------------------- before: which rails there are


def pairs(first: Sequence[str], last: Sequence[str], hosts: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Say which device of the first host is measured with which of the last one.

    The same names go together; hosts that name them differently go by order. Raises RequestError where one
    has more than the other.
    """
    one, other = (sorted(dict.fromkeys(names), key=natural) for names in (first, last))
    if len(one) != len(other):
        counts = (f"{host} has {len(names)}" for host, names in zip(hosts, (one, other), strict=True))
        extra = ", ".join(sorted(set(one) ^ set(other), key=natural))
        raise RequestError(
            f"Devices cannot be paired: {' and '.join(counts)}. Only one of them has {extra}.",
            hint="Name those that both have with --device.",
        )
    return tuple(zip(one, other, strict=True))


def natural(name: str) -> tuple[tuple[int, int, str], ...]:
    """Give the key to sort names by: numbers in them count as numbers, so that mlx5_10 is behind mlx5_2."""
    parts = re.findall(r"([0-9]{1,18})|([^0-9]+|[0-9]+)", name)
    return tuple((0, int(number), "") if number else (1, 0, text) for number, text in parts)


def gpu(index: int, rails: int, gpus: int) -> int:
    """Say which GPU the rail of an index is nearest to, if both are spread evenly over a host.

    32 rails and 8 GPUs: four rails share a GPU. 8 rails and 8 GPUs: each has its own.
    """
    return index * gpus // rails


# ---------------------------------------------------------------- after: what they measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """The figures of all rails at one size, in the metric's base unit."""

    size: int
    metric: Metric
    figures: Mapping[str, float]
    """Device → figure; with repeats, their median."""

    @property
    def mean(self) -> float:
        """The mean of the rails."""
        return statistics.fmean(self.figures.values())

    @property
    def total(self) -> float | None:
        """The sum of the rails; None for what does not add up, such as a latency."""
        return None if self.metric.lower_is_better else sum(self.figures.values())

    @property
    def slowest(self) -> str:
        """The device that did worst."""
        worst = max if self.metric.lower_is_better else min
        return worst(self.figures, key=lambda device: self.figures[device])

    def behind(self) -> Mapping[str, float]:
        """Give the rails that stand out: device → by which part of the mean it is worse."""
        sign = 1 if self.metric.lower_is_better else -1
        parts = {device: sign * (value / self.mean - 1) for device, value in self.figures.items()}
        return {device: part for device, part in parts.items() if part > BEHIND}


def spreads(logs: Sequence[Log], metric: str) -> tuple[Spread, ...]:
    """Put the figures of rails beside each other, size by size; nothing where there are not several.

    Only logs that are ok count, and of a pair the client's rows, where it has any.
    """
    found: dict[int, dict[str, list[float]]] = {}
    for log in logs:
        if log.outcome is Outcome.OK:
            for point in _counting(log):
                if metric in point.metrics:
                    value = point.values[point.metrics.index(metric)]
                    devices = found.setdefault(point.size, {})
                    devices.setdefault(point.labels["device"], []).append(value)
    return tuple(
        Spread(
            size=size,
            metric=METRICS[metric],
            figures={device: statistics.median(devices[device]) for device in sorted(devices, key=natural)},
        )
        for size, devices in sorted(found.items())
        if len(devices) > 1
    )


def together(logs: Sequence[Log]) -> bool:
    """Whether the rails of these logs were measured at the same time."""
    return bool(logs) and all(log.facts.get("together") == "yes" for log in logs)


def _counting(log: Log) -> Iterator[Point]:
    points = [point for point in log.points if "device" in point.labels and "stat" not in point.labels]
    clients = {
        (point.size, point.labels["device"]) for point in points if point.labels.get("side") == "client"
    }
    for point in points:
        if point.labels.get("side") == "client" or (point.size, point.labels["device"]) not in clients:
            yield point
