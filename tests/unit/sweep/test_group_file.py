"""Files of nodes and groups."""

import pytest

from fabbench.sweep.node_names import read_groups


def test_lines_of_nodes_and_their_group() -> None:
    text = "# racks\nnode[01-02],gpu1 rack-1\n\nnode03,rack-2\nnode04\track-2 # new\n"
    assert read_groups(text) == {
        "node01": "rack-1",
        "node02": "rack-1",
        "gpu1": "rack-1",
        "node03": "rack-2",
        "node04": "rack-2",
    }


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("", "it names no node"),
        ("a r1\nnode01", "line 2: 'node01' is not nodes and their group"),
        ("a r1\na r2", "line 2: a is in r1 and in r2"),
        ("node[2-1] r1", "line 1: 2-1 in"),
    ],
)
def test_what_is_wrong_is_reported(text: str, wrong: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        read_groups(text)
    assert str(caught.value).startswith(wrong)
