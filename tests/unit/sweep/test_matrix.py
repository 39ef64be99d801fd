"""The matrix of nodes against nodes."""

import numpy as np
import pytest

from fabbench.sweep.analyze import diagnosis
from fabbench.sweep.fit import fit
from fabbench.sweep.matrix import FAILED, Matrix, matrix_of
from fabbench.sweep.planner import all_pairs
from tests.support.simulated_sweeps import Cluster, named


def matrix(cluster: Cluster, most: int = 40) -> Matrix:
    readings = cluster.readings(all_pairs(cluster.nodes))
    found = fit(readings)
    return matrix_of(readings, found, diagnosis(readings, found), max_rows=most)


def test_suspects_come_first() -> None:
    found = matrix(Cluster(named(8), {"node-5": 0.5, "node-7": 1.0}, noise=0.01))
    assert set(found.names[:2]) == {"node-5", "node-7"}
    assert found.names[2:] == [f"node-{number}" for number in (0, 1, 2, 3, 4, 6)]
    assert found.suspects == [True] * 2 + [False] * 6
    assert np.array_equal(found.cells, found.cells.T, equal_nan=True)
    slow, failed = found.names.index("node-5"), found.names.index("node-7")
    assert found.cells[slow, 2:] == pytest.approx(np.full(6, 0.5), abs=0.05)
    assert (found.cells[failed, 2:] == FAILED).all()
    assert np.isnan(np.diag(found.cells)).all()


def test_rows_are_ordered_by_group() -> None:
    nodes = named(16)
    islands = {node: "ab"[index % 2] for index, node in enumerate(nodes)}
    found = matrix(Cluster(nodes, {"node-07": 0.3}, islands=islands, between=0.6, noise=0.01))
    assert found.groups == [0] * 8 + [1] * 8
    assert found.names[8] == "node-07"
    assert found.cells[0, 9:] == pytest.approx(np.full(7, 0.4), abs=0.05)


def test_many_nodes_share_rows_and_suspects_do_not() -> None:
    found = matrix(Cluster(named(100), {"node-42": 0.5}, noise=0.01), most=20)
    assert found.names[0] == "node-42"
    assert len(found.names) <= 20
    assert sum(found.sizes) == 100
    assert found.names[1] == "node-00 … node-05"
    assert found.cells[0, 1:] == pytest.approx(np.full(len(found.names) - 1, 0.5), abs=0.05)
    assert (found.cells[1:, 1:] > 0.9).all()
