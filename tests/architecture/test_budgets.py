"""budgets.toml: how many lines the program and its tests may have."""

import tomllib
from collections.abc import Iterable
from pathlib import Path

from tests.support.paths import ROOT

PACKAGE = ROOT / "src/fabbench"
FILE = Path(__file__).with_name("budgets.toml")


def lines(paths: Iterable[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


def counted() -> dict[str, dict[str, int]]:
    """Return what there is, as budgets.toml has it."""
    packages = sorted(path.parent for path in PACKAGE.glob("*/__init__.py"))
    modules = [*PACKAGE.rglob("*.py")]
    return {
        "python": {
            **{package.name: lines(package.rglob("*.py")) for package in packages},
            "top": lines(PACKAGE.glob("*.py")),
            "all": lines(modules),
        },
        "other": {
            "modules": len(modules),
            "shell": lines(PACKAGE.rglob("*.sh")),
            "tests": lines((ROOT / "tests").rglob("*.py")),
            "setup": lines([*(ROOT / "setup").iterdir(), ROOT / ".ci/run"]),
        },
    }


def exceeded(found: dict[str, dict[str, int]], budgets: dict[str, dict[str, int]]) -> list[str]:
    return [
        f"{table}.{name}: {number}, {number - budgets[table][name]} above its budget of {budgets[table][name]}"
        for table, numbers in found.items()
        for name, number in numbers.items()
        if number > budgets[table][name]
    ]


def test_budgets_are_kept() -> None:
    found, budgets = counted(), tomllib.loads(FILE.read_text("utf-8"))
    assert {table: {*numbers} for table, numbers in found.items()} == {
        table: {*numbers} for table, numbers in budgets.items()
    }
    over = exceeded(found, budgets)
    assert not over, "\n".join([f"take something out first, see {FILE.name}:", *over])


def test_a_budget_that_is_exceeded_says_by_how_much() -> None:
    found = counted()
    assert found["python"]["all"] == sum(found["python"].values()) - found["python"]["all"] > 10_000
    budgets = {**found, "other": {**found["other"], "shell": found["other"]["shell"] - 7}}
    (said,) = exceeded(found, budgets)
    assert ", 7 above its budget of " in said
