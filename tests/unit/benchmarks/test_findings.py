"""Every finding of a reader is a record of findings.toml, and every record is found by one."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from fabbench.benchmarks.findings import finding
from fabbench.model import records
from fabbench.model.benchmark_records import FindingText
from tests.support.paths import ROOT

FOLDER = ROOT / "src/fabbench/benchmarks"
SOURCES = "\n".join(path.read_text() for path in sorted(FOLDER.rglob("*.py")))
RECORDS = records.load("fabbench.benchmarks", "findings.toml", FindingText)
KNOWN = {(each.code, each.of) for each in RECORDS}


def made(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the code of each finding that a module makes, and what it is of."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "finding":
            words = [each.value for each in node.args if isinstance(each, ast.Constant)]
            if len(words) == len(node.args):
                code, of = (*map(str, words), "")[:2]
                yield code, of


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.name)
def test_what_a_module_finds_is_a_record(path: Path) -> None:
    assert {*made(path)} <= KNOWN


@pytest.mark.parametrize("each", RECORDS, ids=lambda each: f"{each.code} {each.of}")
def test_a_record_is_found_by_a_reader(each: FindingText) -> None:
    assert f'"{each.code}"' in SOURCES
    assert len(KNOWN) == len(RECORDS)


def test_values_fill_in_both_sentences() -> None:
    found = finding("moves-nothing", smallest="1 KB", sizes="8 B", least=1024)
    assert found.meaning == "Below 1 KB no data is moved: the figures at 8 B say nothing."
    assert found.advice == "Begin with -b 1024, or use fewer thread blocks (-c)."
