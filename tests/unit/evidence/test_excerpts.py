"""A text that is hardly more than an error is of a run that died; what was skipped explains it."""

import pytest

from fabbench.evidence.known_errors import DEAD, causes
from tests.support.read_logs import read


@pytest.mark.parametrize("lines", [
    ["$ tool start", "tool: nic0: alloc_service: Invalid argument"],
    ["libfabric:7:tcp:ep:f():3<warn> connection failure", "libfabric:7:rxm:ep:g():5<warn> failed"],
    ["ERROR 05-08 00:47:57 [core.py:7] The engine failed to start.", '  File "a.py", line 3'],
    ['1660667516.9 exception type="exec" severity=0 note="task 1: start failed: ./a: not there"'],
    ["It looks like MPI runtime init failed for some reason; your process is"],
])  # fmt: skip
def test_what_only_tells_of_an_error_died(lines: list[str]) -> None:
    (log,) = read("\n".join(lines))
    assert log.outcome in DEAD
    assert causes(log)[0]


@pytest.mark.parametrize("lines", [
    ["step 1", "step 2", "step 3", "tool: no such file"],
    ["tool: no such file", "step 1"],
    ["tool: nic0: alloc_service: Invalid argument"],
    ['{"error": "not found"}', '{"error": "not found"}'],
    ["libfabric:7:core:core:fi_getinfo_():3<warn> fi_getinfo: provider a returned -61 (Unknown)"],
])  # fmt: skip
def test_what_tells_of_more_or_goes_on_did_not(lines: list[str]) -> None:
    assert not [*read("\n".join(lines))]


def test_what_was_skipped_explains_the_failure_below_it() -> None:
    skipped = "WARN: device a is none of mlx5. Skipping..."
    failed = "transport.cpp:transport_init:7: init failed for transport: A"
    (log,) = read(f"{skipped}\n\n{failed}\n")
    first, *_ = causes(log)[0]
    assert first.finding.line == skipped


def test_a_level_without_words_is_no_error() -> None:
    (log,) = read("[13] fatal error\n[n1] error: no route to n2\n")
    first, *_ = causes(log)[0]
    assert "no route" in first.finding.line
