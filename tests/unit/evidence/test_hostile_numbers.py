"""No number of another program's output ends fabbench, whatever stands where one is expected."""

import math
import pickle
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from fabbench.evidence import first_error, known_errors
from fabbench.evidence.known_errors import causes
from fabbench.evidence.plain_pickle import read_plain
from fabbench.evidence.ras import ras_report
from fabbench.model.errors import MachineError
from fabbench.runs.parse_file import parse_file
from tests.support.paths import DATA
from tests.support.read_logs import read
from tests.support.tiers import EVERY_CUT, sampled

NUMBER = re.compile(r"\d+(?:\.\d+)?")
HOSTILE = {
    "5,000 digits": "9" * 5000,
    "600 digits": "9" * 600,
    "18 digits": "9" * 18,
    "zero": "0",
    "nothing": "",
    "below zero": "-7",
    "not a number": "NaN",
    "infinite": "Infinity",
    "a power": "1e999",
    "a date": "9999-99-99",
    "digits of Arabic": "\u0663\u0663",
    "a superscript": "\u00b2",
    "an empty place": "3, , 5",
}
each_hostile = pytest.mark.parametrize(
    "hostile", sampled([*HOSTILE.values()], every=4), ids=HOSTILE
)

MODULES = ("flight_recorder", "hangs", "judge", "nccl", "ras", "transport")
"""Those of the evidence that take numbers from lines; the inspector has documents."""
MORE = ("[rank0]:[E1130 a.cpp:6] Timeout at NCCL work: 7, last enqueued NCCL work: 8.",)
"""Lines in the programs' shapes that no known log has."""


@cache
def known_lines() -> frozenset[str]:
    """Return the different lines of known logs with a number, each once by its shape."""
    paths = [
        path for kind in ("dead", "corpus", "verdicts", "gloo") for path in _files(DATA / kind)
    ]
    by_shape: dict[str, str] = {}
    for path in paths:
        for line in path.read_text("utf-8", "replace").splitlines():
            by_shape.setdefault(NUMBER.sub("#", line), line)
    return frozenset(line for line in (*by_shape.values(), *MORE) if NUMBER.search(line))


def _files(folder: Path) -> list[Path]:
    texts = (".txt", ".toml", ".log")
    return [path for path in sorted(folder.rglob("*")) if path.suffix in texts]


def patterns() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the patterns of the evidence that find a number, with their names."""
    for module in MODULES:
        for name, value in vars(import_module(f"fabbench.evidence.{module}")).items():
            pattern = getattr(value, "pattern", None)
            if isinstance(pattern, str) and _NUMBER_TAKEN.search(pattern):
                yield f"{module}.{name}", value


_NUMBER_TAKEN = re.compile(r"\((?:\?P<\w+>)?-?\??\\d")
"""In a pattern: a group that begins with a digit."""


@cache
def lines_of_patterns() -> dict[str, list[str]]:
    """Return names of patterns → lines in which they find a number."""
    return {name: _lines_of(pattern) for name, pattern in patterns()}


def _lines_of(pattern: re.Pattern[str]) -> list[str]:
    found = sorted(line for line in known_lines() if pattern.search(line))
    return found[:3]


def hostile_texts(text: str, hostile: str, every: int = 1) -> Iterator[str]:
    """Yield a text with a hostile word in place of all of its numbers, and of each kind of them."""
    yield NUMBER.sub(hostile, text)
    first: dict[str, re.Match[str]] = {}  # kind → the first number of it
    for number in NUMBER.finditer(text):
        before = text[max(0, number.start() - 24) : number.start()]
        first.setdefault(NUMBER.sub("#", before), number)
    for number in [*first.values()][::every]:
        yield text[: number.start()] + hostile + text[number.end() :]


def test_known_logs_have_a_line_for_every_pattern() -> None:
    assert [name for name, lines in lines_of_patterns().items() if not lines] == []


@each_hostile
def test_a_line_with_a_hostile_number_is_read(hostile: str) -> None:
    for name, lines in lines_of_patterns().items():
        for text in chain.from_iterable(hostile_texts(line, hostile) for line in lines):
            try:
                found = [causes(log) for log in read(text)]
            except Exception as error:  # whatever it is
                raise AssertionError(f"{name}: {text[:200]}") from error
            assert len(found) <= 2


@each_hostile
def test_a_number_of_a_table_of_causes_is_read(hostile: str) -> None:
    known = known_errors.by_code().values()
    examples = [*chain.from_iterable(error.examples for error in known)]
    examples += chain.from_iterable(each.examples for each in known_errors.fatal_texts())
    examples += [row["example"] for row in first_error.FORMS]
    for example in filter(NUMBER.search, examples):
        for log in read(NUMBER.sub(hostile, example)):
            causes(log)


DOCUMENTS = [
    "gloo/fr-sleep-0",
    "h200/ras-4-sleep.json",
    "h200/ras-stopped.json",
    "inspector/verbose/node-a-pid1513.log",
]


@EVERY_CUT
@pytest.mark.parametrize("name", DOCUMENTS)
@each_hostile
def test_a_document_with_a_hostile_number_is_read_or_refused(
    name: str, hostile: str, every: int, tmp_path: Path
) -> None:
    path = tmp_path / Path(name).name
    for text in hostile_texts((DATA / name).read_text("utf-8"), hostile, every):
        path.write_text(text, "utf-8")
        try:
            found = [causes(log) for log in parse_file(path)]
        except MachineError:
            continue
        assert len(found) <= 4


@EVERY_CUT
@each_hostile
def test_an_answer_of_ras_is_read(hostile: str, every: int) -> None:
    answer = (DATA / "h200/ras-4-sleep.txt").read_text("utf-8")
    for text in hostile_texts(answer, hostile, every):
        ras_report(text)


FIELDS = (
    "collective_seq_id",
    "input_sizes",
    "state",
    "process_group",
    "pg_config",
    "profiling_name",
)
VALUES: tuple[Any, ...] = (
    10**600,
    -(10**600),
    math.inf,
    math.nan,
    0.5,
    "",
    None,
    [],
    {},
    [[]],
    [[2.5]],
    [["a"]],
)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", VALUES, ids=lambda value: str(value)[:9])
def test_a_pickle_with_a_hostile_value_is_read_or_refused(
    field: str, value: Any, tmp_path: Path
) -> None:
    content = read_plain((DATA / "h200/fr-sleep-0").read_bytes())
    for fields in (content, content["entries"][0]):
        if field in fields:
            fields[field] = value
    path = tmp_path / "fr-0"
    path.write_bytes(pickle.dumps(content, 2))
    try:
        found = [causes(log) for log in parse_file(path)]
    except MachineError:
        return
    assert len(found) == 1
