"""`make sbom`: what is written of the packages that come with fabbench."""

import json
import re
import subprocess
import tomllib

import pytest

from tests.support.paths import ROOT

pytestmark = [pytest.mark.local, pytest.mark.slow]


def test_it_has_what_fabbench_requires_and_nothing_of_its_tests() -> None:
    subprocess.run(["make", "sbom"], check=True, cwd=ROOT)
    bom = json.loads((ROOT / "dist/fabbench.cdx.json").read_text("utf-8"))
    assert bom["metadata"]["component"]["name"] == "fabbench"
    packages = {each["name"]: each["purl"] for each in bom["components"]}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert {re.split(r"[<>=\[;]", each)[0] for each in project["dependencies"]} <= set(packages)
    assert set(packages).isdisjoint({"pytest", "ruff", "mypy", "uv"})
    assert all(purl.startswith(f"pkg:pypi/{name}@") for name, purl in packages.items())
