"""Logs whose verdict was once wrong, in comparisons.

What each is read as alone is in the golden file.
"""

from dataclasses import replace

import pytest

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import compare
from fabbench.model.errors import RequestError
from fabbench.model.log import Log
from fabbench.runs.parse_file import parse_file
from tests.support.paths import DATA


def logs_of(name: str) -> tuple[Log, ...]:
    return tuple(parse_file(DATA / "verdicts" / name))


def test_advice_about_efa_is_given_only_where_efa_is_meant() -> None:
    (log,) = logs_of("19-ibext-on-nvlink-node.txt")
    assert not any(
        "efa" in f"{finding.advice}{finding.meaning}".lower() for finding in log.findings
    )


def test_an_unknown_case_is_not_compared_as_a_known_one() -> None:
    named = Column(label="a", source="a", logs=logs_of("01a-two-commands-base.txt")[:1])
    unnamed = Column(
        label="b", source="b", logs=tuple(replace(log, case=None) for log in named.logs)
    )
    with pytest.raises(RequestError, match="case"):
        compare([named, unnamed])
    both = Column(label="c", source="c", logs=(*named.logs, *unnamed.logs))
    assert [section.key["case"] for section in compare([both, both]).sections] == [
        "all_reduce",
        "unknown",
    ]


def test_runs_over_different_networks_are_no_repeats() -> None:
    runs = {"efa": "01a-two-commands-base.txt", "socket": "01b-two-commands-new.txt"}
    logs = [(logs_of(name)[0], network) for network, name in runs.items()]
    over = tuple(replace(log, facts={**log.facts, "transport": network}) for log, network in logs)
    column = Column(label="a", source="a", logs=over)
    assert [section.key["transport"] for section in compare([column, column]).sections] == [*runs]
