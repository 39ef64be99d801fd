"""The noise between executions that is assumed where a side was measured once: noise.csv. Data.

The file documents its columns and the recordings that it was derived from.
"""

import math
from collections.abc import Collection, Mapping
from functools import cache

from fabbench.model.fabrics import INTRA_HOST, networks, providers
from fabbench.model.units import parse_size

PAIRS = "pairs"
"""The kind of tools that measure one pair of processes, whatever carries their data."""
_FABRICS: Mapping[str, Collection[str]] = {"inside": INTRA_HOST, "sockets": ("tcp", "ofi-tcp")}
_KINDS: Mapping[str, str] = {
    transport: kind
    for kind, fabrics in _FABRICS.items()
    for fabric in fabrics
    for transport in networks(fabric) | providers(fabric)
}


def noise_kinds(transports: Collection[str]) -> frozenset[str]:
    """Return the kinds of collectives over these transports, as logs state them; all where one is unknown."""
    named = {_KINDS.get(part, "") for each in transports for part in each.split("+")}
    return frozenset(_FABRICS if "" in named or not named else named)


def assumed_noise(kinds: Collection[str], size: int) -> float:
    """Return the standard deviation of the logarithm of a figure: that of the noisiest of some kinds."""
    return max(next(noise for up_to, noise in _rows()[kind] if size <= up_to) for kind in kinds)


@cache
def _rows() -> Mapping[str, list[tuple[float, float]]]:
    from fabbench.catalog.instances import rows_of  # where all is measured twice, no file is needed

    rows: dict[str, list[tuple[float, float]]] = {}
    for row in rows_of("noise.csv"):
        up_to = parse_size(row["up_to"]) if row["up_to"] else math.inf
        rows.setdefault(row["kind"], []).append((up_to, float(row["deviation"])))
    return rows
