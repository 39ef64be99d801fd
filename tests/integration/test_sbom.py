"""`make sbom`: what is written of the packages that come with fabbench."""

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

import fabbench
from tests.support.paths import ROOT

pytestmark = [pytest.mark.local, pytest.mark.slow]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What setup/sbom writes, which the generator has held against CycloneDX's schema."""
    file = tmp_path_factory.mktemp("sbom") / "fabbench.cdx.json"
    subprocess.run([str(ROOT / "setup/sbom"), str(file)], check=True, cwd=ROOT, timeout=600)
    return file.read_text("utf-8")


@pytest.fixture(scope="module")
def bom(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_it_is_of_this_release(bom: dict[str, Any]) -> None:
    assert (bom["bomFormat"], bom["specVersion"]) == ("CycloneDX", "1.6")
    root = bom["metadata"]["component"]
    assert (root["name"], root["version"]) == ("fabbench", fabbench.__version__)


def test_it_has_what_fabbench_requires_and_what_that_requires(bom: dict[str, Any]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    required = {canonical(re.split(r"[<>=\[;]", each)[0]) for each in project["dependencies"]}
    packages = {each["bom-ref"]: canonical(each["name"]) for each in bom["components"]}
    needs = {each["ref"]: each.get("dependsOn", []) for each in bom["dependencies"]}
    root = bom["metadata"]["component"]["bom-ref"]
    assert {packages[ref] for ref in needs[root]} == required
    reached, todo = set(), [*needs[root]]
    while todo:
        if (ref := todo.pop()) not in reached:
            reached.add(ref)
            todo += needs.get(ref, [])
    assert reached == set(packages)


def test_it_names_each_package_and_nothing_of_this_machine(bom: dict[str, Any], text: str) -> None:
    for each in bom["components"]:
        assert each["purl"] == f"pkg:pypi/{canonical(each['name'])}@{each['version']}"
        assert each.get("licenses"), each["name"]
    assert {canonical(each["name"]) for each in bom["components"]}.isdisjoint({"pytest", "ruff", "mypy", "uv"})
    assert str(ROOT) not in text
    assert str(Path.home()) not in text
    assert not {"serialNumber"} & bom.keys()
    assert "timestamp" not in bom["metadata"]
