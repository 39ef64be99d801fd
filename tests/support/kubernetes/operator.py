"""Kubeflow's MPI operator, and CoreDNS: by its names the operator's pods find each other."""

from typing import TYPE_CHECKING

from tests.support.hosts import processes
from tests.support.kubernetes.settings import CACHE

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.kubernetes.cluster import Cluster
    from tests.support.kubernetes.daemons import Daemon

_MADE = CACHE / "mpijob"
_COREFILE = """\
cluster.local:53 {{
    errors
    kubernetes cluster.local {{
        kubeconfig {kubeconfig}
    }}
}}
"""
_CRD = "mpijobs.kubeflow.org"
_LOCK = "mpi-operator"
"""The namespace of the lease by which operators agree on one."""


def define(cluster: "Cluster", definition: "Path", name: str) -> None:
    """Define a kind, and wait until its objects can be made."""
    cluster.kubectl("apply", "--server-side", "-f", definition)
    # kubectl wait fails where there is no condition yet.
    known = ("wait", "--for=condition=Established", "--timeout=10s", f"crd/{name}")
    assert processes.eventually(lambda: cluster.kubectl(*known, check=False))
    # What objects of it own goes with them. The collector of garbage looks for new kinds every half
    # minute only.
    cluster.control.controllers.stop()
    cluster.control.controllers.start()


def start(cluster: "Cluster") -> None:
    """Define MPIJobs, and start the operator and the names; gives when all of it works."""
    define(cluster, _MADE / "definition.yaml", _CRD)
    cluster.make_namespace(_LOCK)
    local = cluster.control.local
    corefile = cluster.folder / "Corefile"
    corefile.write_text(_COREFILE.format(kubeconfig=local))
    cluster.names = cluster.control.daemon(_MADE / "coredns", "-conf", str(corefile))
    cluster.operator = cluster.control.daemon(
        _MADE / "mpi-operator",
        *(f"-kubeConfig={local}", f"-lock-namespace={_LOCK}"),
        *("-kube-api-qps=100", "-kube-api-burst=200"),
    )
    for daemon in (cluster.names, cluster.operator):
        daemon.start()
    _wait_until_it_leads(cluster, cluster.operator)


def restart(cluster: "Cluster") -> None:
    """Start the operator anew, if there is one."""
    if cluster.operator is not None:
        cluster.operator.stop()
        # It would wait until the lease of the one that was has run out.
        cluster.api.remove_all("leases", _LOCK)
        cluster.operator.start()
        _wait_until_it_leads(cluster, cluster.operator)


def _wait_until_it_leads(cluster: "Cluster", operator: "Daemon") -> None:
    leads = processes.eventually(lambda: cluster.api.all_of("leases", _LOCK))
    assert leads, operator.tail()


def stop(cluster: "Cluster") -> None:
    """Remove all of it."""
    for daemon in (cluster.names, cluster.operator):
        if daemon is not None:
            daemon.stop()
    cluster.names = cluster.operator = None
    cluster.kubectl("delete", "crd", _CRD, "--timeout=60s")
    cluster.remove_namespace(_LOCK)
    # The next module with an operator makes it anew.
    cluster.kubectl("wait", "--for=delete", f"namespace/{_LOCK}", "--timeout=120s")
