"""What pyproject.toml and uv.lock promise.

Every imported distribution is declared, and comes from its usual place.
"""

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import packages_distributions
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.syntax import below, tree_of

REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[(?P<extras>[^]]*)])?(?P<bounds>[^;]*)")
LATER = {"compression"}
"""Of Python's standard library, in versions that may be newer than this one."""


@cache
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def project() -> dict[str, Any]:
    found: dict[str, Any] = pyproject()["project"]
    return found


@cache
def own() -> set[str]:
    """Return the modules of this checkout, by where mypy looks for them."""
    return {
        path.stem
        for folder in pyproject()["tool"]["mypy"]["mypy_path"]
        for path in (ROOT / folder).iterdir()
    }


@cache
def installed() -> dict[str, set[str]]:
    """Return the distributions of each module that can be imported here."""
    return {module: {*map(canonical, found)} for module, found in packages_distributions().items()}


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def names(requirements: list[str]) -> set[str]:
    found = set()
    for each in requirements:
        match = REQUIREMENT.match(each)
        assert match, each
        found.add(canonical(match["name"]))
    return found


def imports(body: Iterable[ast.AST], *, typing: bool) -> Iterator[str]:
    """Yield the first names of imported modules; with or without those for type checkers alone."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]
        elif isinstance(node, ast.If) and not typing and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from imports(node.orelse, typing=typing)
        else:
            yield from imports(below(node), typing=typing)


def undeclared(folder: str, declared: set[str], *, typing: bool) -> set[str]:
    """Return the imported modules that none of these distributions brings."""
    paths = (ROOT / folder).rglob("*.py")
    found = {name for path in paths for name in imports(tree_of(path).body, typing=typing)}
    assert found, f"{folder} imports nothing"
    foreign = found - {*sys.stdlib_module_names, *LATER, *own()}
    return {
        name for name in foreign if declared.isdisjoint(installed().get(name, {canonical(name)}))
    }


def test_what_the_package_imports_is_declared() -> None:
    extras = {name for name in project()["optional-dependencies"] if name not in {"dev", "docs"}}
    declared = names(project()["dependencies"])
    declared |= {
        each for extra in extras for each in names(project()["optional-dependencies"][extra])
    }
    assert undeclared("src", declared, typing=False) == set()


@pytest.mark.parametrize("folder", ["src", "tests", "docs", "examples"])
def test_what_developers_import_is_declared(folder: str) -> None:
    extras = project()["optional-dependencies"].values()
    declared = names([*project()["dependencies"], *(each for extra in extras for each in extra)])
    assert undeclared(folder, declared, typing=True) == set()


def test_every_dependency_has_a_lower_bound() -> None:
    assert [each for each in project()["dependencies"] if ">=" not in each] == []


def test_an_import_that_is_not_declared_is_found() -> None:
    code = (
        "if TYPE_CHECKING:\n    import a\nelse:\n    import b.c\ndef f():\n    from d.e import g\n"
    )
    assert {*imports(ast.parse(code).body, typing=False)} == {"b", "d"}
    assert {*imports(ast.parse(code).body, typing=True)} == {"a", "b", "d"}
    assert undeclared("docs", names(["mkdocs>=1"]), typing=True) == {"click", "click_man", "rich"}


def test_the_lock_names_no_mirror() -> None:
    """`make lint` holds the lock against pyproject.toml."""
    lock = (ROOT / "uv.lock").read_text("utf-8")
    places = set(
        re.findall(r"\b(?:registry|url|git|path|directory) = \"(\w+://[^/\"]+|[^\"]*)", lock)
    )
    assert places == {"https://pypi.org", "https://files.pythonhosted.org"}
