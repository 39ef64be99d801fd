"""Readers are made for the first line that may be theirs.

Each that a fresh one takes must be such a line.
"""

import re
from collections.abc import Iterator

import pytest

from fabbench.benchmarks import benchmarks
from fabbench.logs.launcher_prefixes import Prefixes
from fabbench.model import records
from fabbench.model.benchmark_records import Signs
from fabbench.model.log import Line
from fabbench.runs.parse_file import as_printed
from tests.support.corpus import paths

_NUMBER = re.compile(r"\d+")


def recorded_lines() -> Iterator[str]:
    """Yield the lines of the logs, bare; of those that differ in numbers alone, one."""
    seen: set[str] = set()
    for path in paths():
        lines = as_printed(path.read_text(errors="replace")[:200_000]).splitlines()
        prefixes = Prefixes(lines)
        for line in lines:
            for text in prefixes.cut(line)[0].split("\n"):
                if (kind := _NUMBER.sub("0", text)) not in seen:
                    seen.add(kind)
                    yield text


@pytest.fixture(scope="module")
def lines() -> list[str]:
    return list(recorded_lines())


@pytest.mark.parametrize("name", sorted(benchmarks()))
def test_what_a_fresh_reader_takes_makes_it(name: str, lines: list[str]) -> None:
    benchmark, taken = benchmarks()[name], 0
    for text in lines:
        if benchmark.reader().feed(Line(1, text)) is not None:
            taken += 1
            assert benchmark.may_begin(text), text
    assert taken
    assert not benchmark.may_begin("Hello, world")


def test_each_record_of_signs_is_of_a_benchmark() -> None:
    signs = records.load("fabbench.benchmarks", "signs.toml", Signs)
    assert sorted(each.name for each in signs) == sorted(benchmarks())
