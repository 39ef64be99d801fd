"""paths.toml: each record shows its examples, and not what stands beside them."""

import pytest

from fabbench.catalog.paths import PathFact, path_facts, path_values, ways
from fabbench.evidence.known_errors import by_code

DEEPEP = "ep test_ep"


@pytest.mark.parametrize("path", path_facts(), ids=lambda path: path.fact)
def test_each_record_is_whole(path: PathFact) -> None:
    shown = {value for value, _ in path.examples}
    for value, line in path.examples:
        assert [way.value for way in ways(line) if way.fact == path.fact] == [value], line
    for line in path.counterexamples:
        assert not [way for way in ways(line) if way.fact == path.fact], line
    assert set(path.findings.values()) <= by_code().keys()
    assert {part for value in path.words for part in value.split("+")} <= {
        *path.asked,
        *path.findings,
    }
    if path.asked and path.lines:
        assert shown <= {*path.asked, *path.findings}
    assert bool(path.lines) == bool(path.examples)


def test_that_there_is_no_way_is_said_only_where_data_would_go_it() -> None:
    none = [*ways("GIN/Plugin: Failed to initialize any GIN plugin")]
    assert path_values(none, DEEPEP) == {"gin": "none"}
    assert path_values(none, "nccl all_reduce") == {}


@pytest.mark.parametrize(
    ("facts", "program", "code"),
    [
        ({"gin": "proxy", "transport": "efa"}, DEEPEP, "gin-proxy"),
        ({"gin": "gdaki+proxy", "transport": "ib"}, DEEPEP, "gin-proxy"),
        ({"gin": "gdaki"}, DEEPEP, ""),
        ({"gin": "proxy"}, "nccl all_reduce", ""),
        ({"channels_used": 1, "channels": 24}, "", "few-channels"),
        ({"channels_used": 6, "channels": 24}, "", ""),
        ({"channels_used": 1, "channels": 1, "tuner": "one"}, "", ""),
        ({"channels_used": 1, "tuner": "one"}, "", "few-channels"),
        ({"channels_used": 1}, "", ""),
        ({"gdr": "partly", "transport": "efa"}, "", "gdr-off"),
        ({"gdr": "no", "transport": "socket"}, "", ""),
        ({"rma": "emulated"}, "", "rma-emulated"),
        ({"nvls": "no", "pxn": "no", "sharp": "no"}, "", ""),
    ],
)
def test_what_is_not_the_asked_way(facts: dict[str, str | int], program: str, code: str) -> None:
    found = [path.finding(facts, program) for path in path_facts()]
    assert "".join(found) == code
