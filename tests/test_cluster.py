"""The cluster is what it says, and leaves nothing behind."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from cluster import Cluster
from cluster.images import CPU, NCCL
from lab import processes

pytestmark = pytest.mark.cluster

ALL = {"vpc.amazonaws.com/efa": "4", "nvidia.com/gpu": "8"}


def test_nodes_offer_their_devices(cluster: Cluster) -> None:
    for node in cluster.nodes:
        seen = cluster.get("node", node.name)
        assert node.condition() == "True"
        assert ALL.items() <= seen["status"]["allocatable"].items()
        assert seen["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "p4d.24xlarge"
