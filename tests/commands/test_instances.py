"""The catalog of instance types, and where nodes are listed."""

import json

import pytest

from fabbench.cli import cli
from fabbench.launchers.slurm.scontrol import SlurmNode, nodes_table
from tests.support.command_line import runner


@pytest.mark.parametrize(
    ("type_", "names"),
    [
        ("p4d.24xlarge", ["p4d.24xlarge"]),
        ("ml.p5.48xlarge", ["p5.48xlarge"]),
        ("P4", ["p4d.24xlarge", "p4de.24xlarge"]),
    ],
)
def test_a_type_or_a_family_is_listed(type_: str, names: list[str]) -> None:
    done = runner().invoke(cli, ["instances", type_, "--format", "json"])
    assert [each["instance_type"] for each in json.loads(done.stdout)["instances"]] == names


def test_slurms_nodes_have_the_type_that_their_features_name() -> None:
    typed = SlurmNode(name="n1", states=frozenset({"IDLE"}), gpus=8, features=("p5.48xlarge",), cpus=192)
    found = nodes_table([typed, SlurmNode(name="n2", partitions=frozenset({"b", "a"}))])
    assert found.table.rows == [
        ("n1", "p5.48xlarge", "8", "32", "192", "-", "idle"),
        ("n2", "-", "0", "-", "0", "a,b", "unknown"),
    ]
