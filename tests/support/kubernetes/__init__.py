"""A real Kubernetes cluster for tests, without machines and without a registry.

cluster.py and node.py say what can be done with it, settings.py what can be asked for;
setup/cluster makes what it consists of. Its nodes, kubelets, containers and pods are real; its EFA
devices and GPUs are names.
"""

from tests.support.kubernetes.cluster import Cluster, missing
from tests.support.kubernetes.node import Node
from tests.support.kubernetes.settings import CACHE, Options

__all__ = ["CACHE", "Cluster", "Node", "Options", "missing"]
