"""Results as a matrix of nodes by nodes, readable with thousands of them: nodes that stand out come first.

Suspects and the ends of bad links have a row each. If there are many others, they share rows, in order.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fabbench.model.fabrics import natural_order
from fabbench.sweep.fit import Fit
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
    cells: Floats
    """The fraction of the typical figure (lower quartile of the tests); `FAILED`; NaN: not tested."""
    suspects: int
    """How many of the first rows are suspects."""


def matrix_of(readings: Readings, fitted: Fit, diagnosis: Diagnosis, *, max_rows: int) -> Matrix:
    """Return the matrix with about `max_rows` rows, or fewer."""
    named = {
        node: None
        for each in (*diagnosis.suspects, *diagnosis.unconfirmed, *diagnosis.undecided)
        for node in each.nodes
    }
    worst = [readings.index(node) for node in named][: max(max_rows // 2, 1)]
    groups, names = readings.group_of, readings.nodes
    rest = sorted(
        set(range(len(names))) - set(worst),
        key=lambda node: (natural_order(groups.get(names[node], "")), natural_order(names[node])),
    )
    shared = max(-(-len(rest) // max(max_rows - len(worst), 1)), 1)
    rows = [[node] for node in worst] + [rest[start : start + shared] for start in range(0, len(rest), shared)]
    row_of = np.zeros(len(fitted.nodes), dtype=np.int64)
    for row, nodes in enumerate(rows):
        row_of[nodes] = row
    return Matrix(
        names=[" … ".join(dict.fromkeys((fitted.nodes[nodes[0]], fitted.nodes[nodes[-1]]))) for nodes in rows],
        sizes=[len(nodes) for nodes in rows],
        cells=_cells(fitted, row_of, len(rows)),
        suspects=len(worst),
    )


def _cells(fitted: Fit, row_of: Ints, count: int) -> Floats:
    """Return the lower quartile of each cell's tests, so that intermittent faults show.

    A failed test counts as the slowest of all.
    """
    keys, values = [], []
    for each in fitted.classes:
        if each.tests.size <= 2:
            ends = np.sort(row_of[each.tests.members[:, [0, -1]]], axis=1)
            keys.append(ends[:, 0] * count + ends[:, 1])
            values.append(np.nan_to_num(each.slower, nan=-np.inf))
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
