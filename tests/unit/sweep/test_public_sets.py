"""Sweeps that others published."""

import csv

from fabbench.model.errors import Exit
from fabbench.model.log import METRICS
from fabbench.sweep.analyze import analyze
from fabbench.sweep.readings import Readings
from fabbench.sweep.values import SuspectKind, SweepOutcome, SweepResult, SweepTest
from tests.support.paths import DATA

CASES = ("alltoall", "sendrecv")
FAILED = {("002", "008"), ("005", "016"), ("007", "016"), ("008", "009")}
"""The pairs of which both tests failed."""
SECOND = ("005", "007", "008", "010", "011", "013", "014", "015")
"""The nodes of the second group."""


def published() -> Readings:
    lines = (DATA / "sweeps/xxr-8-gpus.csv").read_text().splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    nodes = sorted({row[end] for row in rows for end in ("first", "second")})
    readings = Readings(METRICS["busbw"], nodes)
    for row in rows:
        test = SweepTest((row["first"], row["second"]))
        for case in CASES:
            cell = row[case]
            if cell == "-":
                continue
            if cell[0].isdecimal():
                figure = 1e9 * float(cell)
                result = SweepResult(test, SweepOutcome.OK, figure, series=case, step=1e7)
            else:  # the log of a run that failed has no size: it is compared with no other
                series = f"{case}, failed"
                result = SweepResult(test, SweepOutcome.FAILED, series=series, reason=cell)
            readings.add(result)
    return readings


def test_a_path_that_one_of_two_collectives_loads_is_slow() -> None:
    """Alltoall is four times slower between the groups, and sendrecv is not."""
    said = analyze(published())
    first, second = said.groups
    assert tuple(node.removeprefix("cnode2-") for node in second.nodes) == SECOND
    assert len(first.nodes) == 9
    for group in said.groups:
        assert group.inside
        assert group.between
        assert 4.0 < group.inside / group.between < 4.2
    path, *links = said.suspects
    assert (path.kind, said.slow_path) == (SuspectKind.GROUP, True)
    assert "up to 3.9x slower" in path.evidence
    assert {each.kind for each in links} == {SuspectKind.LINK}
    assert {tuple(node[-3:] for node in each.nodes) for each in links} == FAILED
    assert (said.undecided, said.contradiction, said.status) == ([], "", Exit.BAD_ANSWER)
