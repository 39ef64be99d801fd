"""Every log of the repository is read as the golden file says.

Outcome, facts, figures, damaged rows, findings.

After a change that is meant, rewrite it and review the diff: `python -m tests.support.corpus`.
"""

from itertools import groupby

import pytest

from fabbench.model.log import Point
from tests.support.corpus import FOLDERS, golden, name_of, paths, read_as
from tests.support.paths import LOGS
from tests.support.read_logs import read, read_live

GOLDEN = golden()
LOGS_IN = {name_of(path): path for path in paths()}
IN_FOLDER = {
    folder: [*names] for folder, names in groupby(LOGS_IN, lambda name: name.rpartition("/")[0])
}
each_folder = pytest.mark.parametrize("folder", IN_FOLDER)


def test_every_log_is_in_the_golden_file_and_in_no_other_order() -> None:
    assert [*GOLDEN] == [*LOGS_IN] == [name for names in IN_FOLDER.values() for name in names]
    assert all(any(folder.rglob("*")) for folder in FOLDERS)


@each_folder
def test_logs_are_read_as_the_golden_file_says(folder: str) -> None:
    names = IN_FOLDER[folder]
    assert {name: read_as(LOGS_IN[name]) for name in names} == {
        name: GOLDEN[name] for name in names
    }


@each_folder
def test_reading_line_by_line_gives_the_same_as_reading_the_file(folder: str) -> None:
    for path in (LOGS_IN[name] for name in IN_FOLDER[folder]):
        if path.suffix == ".txt" and LOGS in path.parents:
            text = path.read_text()
            whole = read(text)
            points, logs = read_live(text.split("\n"))
            assert logs == whole, path
            assert sorted(map(_key, points)) == sorted(
                _key(point) for log in whole for point in log.points
            )


def _key(point: Point) -> tuple[object, ...]:
    return point.size, sorted(point.labels.items()), point.metrics, point.values
