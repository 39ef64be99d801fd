"""The records of programs that print what fabbench does not read, and of launchers' prefixes."""

import re

import pytest

from fabbench.logs.launcher_prefixes import KNOWN_PREFIXES, KnownPrefix, Prefixes
from fabbench.logs.signs import ForeignOutput, foreign_outputs, unread_reason


@pytest.mark.parametrize("output", foreign_outputs(), ids=lambda output: output.program)
def test_foreign_output_is_named(output: ForeignOutput) -> None:
    reason, is_remark = unread_reason(output.example)
    assert (output.program in reason, is_remark) == (True, False)
    assert re.search(output.pattern, output.counterexample) is None


@pytest.mark.parametrize("prefix", KNOWN_PREFIXES, ids=lambda prefix: prefix.program)
def test_a_known_prefix_is_cut(prefix: KnownPrefix) -> None:
    found = re.match(prefix.pattern, prefix.example)
    assert found is not None
    assert len(found.groupdict()) <= 1
    text, _ = Prefixes().cut(prefix.example)
    assert text == prefix.example[found.end() :]
    assert re.match(prefix.pattern, prefix.counterexample) is None
