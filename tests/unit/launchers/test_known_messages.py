"""What clusters say: an example shows its record, and the line beside it does not."""

import pytest

from fabbench.launchers.known_messages import KnownMessage
from fabbench.launchers.kubernetes.explain import messages
from fabbench.launchers.slurm.scontrol import job_errors

KNOWN = [*messages(), *job_errors()]


@pytest.mark.parametrize("known", KNOWN, ids=lambda each: each.example)
def test_a_message_is_explained_by_the_first_record_that_it_shows(known: KnownMessage) -> None:
    table = [each for each in KNOWN if each.on == known.on]
    assert next(each for each in table if each.match(known.example)) is known


@pytest.mark.parametrize(
    "known", [each for each in KNOWN if each.pattern], ids=lambda each: each.counterexample
)
def test_a_line_beside_a_message_does_not_show_its_record(known: KnownMessage) -> None:
    assert known.counterexample
    assert known.match(known.counterexample) is None
