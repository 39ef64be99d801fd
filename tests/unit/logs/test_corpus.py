"""Every log of the repository is read as the golden file says: outcome, facts, figures, damaged rows, findings.

After a change that is meant, rewrite it and review the diff: `python -m tests.support.corpus`.
"""

import pytest

from fabbench.model.log import Point
from tests.support.corpus import FOLDERS, golden, name_of, paths, read_as
from tests.support.paths import LOGS
from tests.support.read_logs import read, read_live

GOLDEN = golden()
LOGS_IN = {name_of(path): path for path in paths()}


def test_every_log_is_in_the_golden_file_and_in_no_other_order() -> None:
    assert [*GOLDEN] == [*LOGS_IN]
    assert all(any(folder.rglob("*")) for folder in FOLDERS)


@pytest.mark.parametrize("name", LOGS_IN)
def test_a_log_is_read_as_the_golden_file_says(name: str) -> None:
    assert read_as(LOGS_IN[name]) == GOLDEN[name]


@pytest.mark.parametrize(
    "name", [name for name, path in LOGS_IN.items() if path.suffix == ".txt" and LOGS in path.parents]
)
def test_reading_line_by_line_gives_the_same_as_reading_the_file(name: str) -> None:
    text = LOGS_IN[name].read_text()
    whole = read(text)
    points, logs = read_live(text.split("\n"))
    assert logs == whole
    assert sorted(map(_key, points)) == sorted(_key(point) for log in whole for point in log.points)


def _key(point: Point) -> tuple[object, ...]:
    return point.size, sorted(point.labels.items()), point.metrics, point.values
