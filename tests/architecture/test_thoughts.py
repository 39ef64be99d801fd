"""The measure of `make size` finds what it is for, and lets nothing in; `make lint` applies it."""

from pathlib import Path

import pytest

from tests.performance import size

DENSE = """\
def plain(a, b):
    a, b = b, a
    return a


class Row:
    def packed(self, a, b):
        a, self.b = 1, b
        c, d = [], {}
        return a if b else c if d else b


def long(a, b, c):
    return [x + y * z for x in a if x for y in b if y for z in c if z and x and y and z > x]
"""


@pytest.fixture
def record(tmp_path: Path) -> size.Record:
    (tmp_path / "row.py").write_text(DENSE)
    found = size.sizes(tmp_path)
    return size.record_of((each for of in found.values() for each in of.offences), tmp_path)


def test_offences_are_found_where_they_are(record: size.Record) -> None:
    assert record == {
        "row.py Row.packed": {"TUPLE": 2, "WPS509": 1},
        "row.py long": {"WPS221": 1},
    }


def test_what_is_recorded_may_only_shrink(record: size.Record) -> None:
    assert size.grown(record, record) == []
    assert size.grown({}, record) == []
    fewer = {**record, "row.py Row.packed": {"TUPLE": 1}}
    assert [line.partition(": ")[0] for line in size.grown(record, fewer)] == [
        "row.py Row.packed",
        "row.py Row.packed",
    ]


def test_sizes_count_code_and_what_is_beside_it(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "code.py").write_text('"""Doc."""\n\n# Why.\nx = 1 + 2\n')
    (tmp_path / "package" / "table.csv").write_text("a,b\n1,2\n")
    found = size.sizes(tmp_path)["package"]
    assert (found.lines, found.functions, found.records) == (2, 0, 2)
    assert found.expressions == 5
