"""A real Kubernetes cluster for tests, without machines and without a registry.

cluster.py and node.py say what can be done with it, settings.py what can be asked for; setup/cluster makes
what it consists of. Its nodes, kubelets, containers and pods are real; its EFA devices and GPUs are names.
"""

from cluster.cluster import Cluster, missing
from cluster.node import Node
from cluster.settings import CACHE, Options

__all__ = ["CACHE", "Cluster", "Node", "Options", "missing"]
