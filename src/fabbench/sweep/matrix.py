"""Results as a matrix of nodes by nodes, readable with thousands of them.

By group, nodes that stand out first.

Suspects and the ends of bad links have a row each. If there are many others, they share rows, in
order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fabbench.model.fabrics import natural_order
from fabbench.sweep.fit import Fit, best_typical
from fabbench.sweep.readings import Floats, Ints, Readings
from fabbench.sweep.values import Diagnosis

FAILED = 0.0
"""The value of a cell in which a quarter of the tests or more failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """Rows and columns are the same, and the matrix is symmetric."""

    names: Sequence[str]
    """A node, or the first and the last of several."""
    sizes: Sequence[int]
    """How many nodes a row has."""
    groups: Sequence[int]
    """Row → number of its group, ascending."""
    cells: Floats
    """The fraction of the typical figure, within groups (lower quartile of the tests); `FAILED`.

    NaN: not tested.
    """
    suspects: Sequence[bool]
    """Which rows are suspects, or ends of a bad link."""


def matrix_of(readings: Readings, fitted: Fit, diagnosis: Diagnosis, *, max_rows: int) -> Matrix:
    """Return the matrix with about `max_rows` rows, or fewer."""
    names, groups = readings.nodes, fitted.groups
    of = [0] * len(names) if groups is None else groups.of.tolist()
    suspects = (*diagnosis.suspects, *diagnosis.undecided)
    worst = {readings.index(node): None for each in suspects for node in each.nodes}
    alone = [*worst][: max(max_rows // 2, 1)]
    rest = sorted(
        set(range(len(names))) - {*alone}, key=lambda node: (of[node], natural_order(names[node]))
    )
    shared = max(-(-len(rest) // max(max_rows - len(alone), 1)), 1)
    rows: list[list[int]] = []
    for group in sorted({*of}):
        rows += [[node] for node in alone if of[node] == group]
        members = [node for node in rest if of[node] == group]
        rows += [members[start : start + shared] for start in range(0, len(members), shared)]
    headline_row = np.zeros(len(names), dtype=np.int64)
    for row, nodes in enumerate(rows):
        headline_row[nodes] = row
    # Relative to the best typical figure of any group.
    slower = [
        each.slower - best_typical(each, fitted.classes)[each.tests.series]
        for each in fitted.classes
    ]
    return Matrix(
        names=[" … ".join(dict.fromkeys((names[nodes[0]], names[nodes[-1]]))) for nodes in rows],
        sizes=[len(nodes) for nodes in rows],
        groups=[of[nodes[0]] for nodes in rows],
        cells=_cells(fitted, slower, headline_row, len(rows)),
        suspects=[nodes[0] in worst for nodes in rows],
    )


def _cells(fitted: Fit, slower: Sequence[Floats], headline_row: Ints, count: int) -> Floats:
    """Return the lower quartile of each cell's tests, so that intermittent faults show.

    A failed test counts as the slowest of all.
    """
    keys, values = [], []
    for each, figures in zip(fitted.classes, slower, strict=True):
        if each.tests.size <= 2:
            ends = np.sort(headline_row[each.tests.members[:, [0, -1]]], axis=1)
            keys.append(ends[:, 0] * count + ends[:, 1])
            values.append(np.nan_to_num(figures, nan=-np.inf))
    cells = np.full((count, count), np.nan)
    if not keys:
        return cells
    key, value = np.concatenate(keys), np.concatenate(values)
    order = np.lexsort((value, key))
    key, value = key[order], value[order]
    starts = np.flatnonzero(np.diff(key, prepend=-1))
    quartile = value[starts + (np.diff(starts, append=len(key)) - 1) // 4]
    rows, columns = np.divmod(key[starts], count)
    cells[rows, columns] = cells[columns, rows] = np.exp(quartile)
    return cells
