"""docs/architecture.md against the code: its layers and its names."""

import re
import tomllib
from pkgutil import resolve_name

from tests.support.paths import ROOT

TEXT = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_the_layers_are_those_of_the_contract() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    (layers,) = (contract["layers"] for contract in contracts if contract["type"] == "layers")
    shown = TEXT.partition("## Layers")[2].partition("```text\n")[2].partition("```")[0]
    assert shown.split("\n")[:-1] == layers


def test_what_is_named_exists() -> None:
    assert TEXT.count(". `fabbench.") > 20
    for name in re.findall(r"`(fabbench\.[\w.]+)`", TEXT):
        if name != "fabbench.yaml":
            resolve_name(name)
    for path in re.findall(r"`((?:tests|docs|src)/[\w/.]+)`", TEXT):
        assert (ROOT / path).exists(), path
