"""What `make mutants` knows as equivalent can be changed: a rename shows at once, not at night."""

import pytest

from tests.performance.mutants import Module, modules, mutants, parsed


@pytest.mark.parametrize("module", modules(), ids=lambda module: str(module.name))
def test_what_is_known_as_equivalent_exists(module: Module) -> None:
    names = {mutant.name for mutant in mutants(module.name, parsed(module.name))}
    assert module.equivalent.keys() - names == set()
