"""Results as a matrix of nodes by nodes, readable with thousands of them.

By group, and those that stand out first. Suspects and the ends of bad links have a row each. If
there are many others, they share rows, in order.
"""

import math
from collections.abc import Sequence

import numpy as np

from fabbench.model.fabrics import natural_order
from fabbench.model.mappings import distinct
from fabbench.model.values import frozen
from fabbench.sweep.fit import Fit, below_best
from fabbench.sweep.readings import Floats, Ints, Readings, by_key
from fabbench.sweep.values import Diagnosis

FAILED = 0.0
"""The value of a cell in which a quarter of the tests or more failed."""


@frozen
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
    """Return the matrix with about `max_rows` rows, or fewer: several nodes may share one.

    Nodes are numbered as in `readings`; without groups all are of group 0.
    """
    names = readings.nodes
    group_of = [0] * len(names)
    if fitted.groups is not None:
        group_of = fitted.groups.of.tolist()
    suspects = (*diagnosis.suspects, *diagnosis.undecided)
    worst = distinct(readings.index(node) for each in suspects for node in each.nodes)
    # The worst have a row each, in at most half of the rows.
    alone = worst[: max(max_rows // 2, 1)]
    rows = _rows(names, group_of, alone, max_rows)
    row_of = np.zeros(len(names), dtype=np.int64)
    for row, nodes in enumerate(rows):
        row_of[nodes] = row
    return Matrix(
        names=[_row_name(names, nodes) for nodes in rows],
        sizes=[len(nodes) for nodes in rows],
        groups=[group_of[nodes[0]] for nodes in rows],
        cells=_with_broken(readings, fitted, row_of, _cells(fitted, row_of, len(rows))),
        suspects=[nodes[0] in worst for nodes in rows],
    )


def _rows(
    names: Sequence[str], group_of: Sequence[int], alone: Sequence[int], max_rows: int
) -> Sequence[Sequence[int]]:
    """Return the nodes of each row, by group: first those that have a row each."""
    rest = set(range(len(names))).difference(alone)
    ordered = sorted(rest, key=lambda node: natural_order(names[node]))
    rows_left = max(max_rows - len(alone), 1)
    nodes_per_row = max(math.ceil(len(rest) / rows_left), 1)
    rows: list[list[int]] = []
    for group in sorted({*group_of}):
        rows += [[node] for node in alone if group_of[node] == group]
        members = [node for node in ordered if group_of[node] == group]
        starts = range(0, len(members), nodes_per_row)
        rows += [members[start : start + nodes_per_row] for start in starts]
    return rows


def _row_name(names: Sequence[str], nodes: Sequence[int]) -> str:
    """Return the first and the last name of a row, or its only one."""
    first = names[nodes[0]]
    last = names[nodes[-1]]
    return first if len(nodes) == 1 else f"{first} … {last}"


def _with_broken(readings: Readings, fitted: Fit, row_of: Ints, cells: Floats) -> Floats:
    """Return the cells with the tests of nodes that cannot run the program."""
    for node in fitted.broken:
        for pair in readings.endings.failed(node):
            ends = row_of[[*pair]]
            # Both cells of the pair: the matrix is symmetric.
            cells[ends, ends[::-1]] = FAILED
    return cells


def _cells(fitted: Fit, row_of: Ints, count: int) -> Floats:
    """Return row × column → the lower quartile of its tests, so that intermittent faults show.

    As a fraction of the best typical figure of any group. A failed test counts as the slowest of
    all; NaN: there is no test.
    """
    cells = np.full((count, count), np.nan)
    keys: list[Ints] = []
    values: list[Floats] = []
    for each in fitted.classes:
        if each.tests.nodes_per_test <= 2:  # of more nodes, a test is of no cell
            row, column = np.sort(row_of[each.ends], axis=1).T
            keys.append(row * count + column)
            log_ratio = below_best(each, fitted.classes)
            values.append(np.nan_to_num(log_ratio, nan=-np.inf))
    if not keys:
        return cells
    tests = by_key(np.concatenate(keys), np.concatenate(values))
    quartile = tests.values[tests.starts + (tests.counts - 1) // 4]  # those of a cell ascend
    rows, columns = np.divmod(tests.keys, count)
    cells[rows, columns] = np.exp(quartile)
    cells[columns, rows] = cells[rows, columns]
    return cells
