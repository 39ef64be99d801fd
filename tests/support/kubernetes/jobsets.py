"""JobSet's controller, with its own webhooks, by which the API server completes and checks JobSets.

It runs beside the control plane, and not in a pod. So the API server finds the webhooks at an
address instead of a service, and knows them by the cluster's own certificate.
"""

import json
from typing import TYPE_CHECKING

import yaml

from tests.support.hosts import processes
from tests.support.kubernetes import operator
from tests.support.kubernetes.settings import CACHE

if TYPE_CHECKING:
    from tests.support.kubernetes.cluster import Cluster

_MADE = CACHE / "jobset"
_CRD = "jobsets.jobset.x-k8s.io"
_PORT = 9443
_POD = {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}
_SMALLEST = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "probe", "namespace": "default"},
    "spec": {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": {"spec": _POD}}}}]},
}
"""Which says nothing of the network: the webhook adds that."""


def start(cluster: "Cluster") -> None:
    """Define JobSets, and start the controller; gives when its webhooks answer."""
    operator.define(cluster, _MADE / "definition.yaml", _CRD)
    folder = cluster.folder / "jobset"
    folder.mkdir(exist_ok=True)
    for name, own in (("tls.crt", "api.crt"), ("tls.key", "api.key")):
        (folder / name).write_bytes((cluster.folder / own).read_bytes())
    config = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "webhook": {"port": _PORT, "certDir": str(folder)},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": "0"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    cluster.jobsets = cluster.control.daemon(
        _MADE / "jobset",
        f"--config={folder / 'config.json'}",
        f"--kubeconfig={cluster.control.local}",
    )
    cluster.jobsets.start()
    for hooks in _webhooks(cluster):
        cluster.kubectl("apply", "-f", "-", given=hooks)
    assert processes.eventually(lambda: _completes(cluster)), cluster.jobsets.tail()


def _webhooks(cluster: "Cluster") -> list[dict[str, object]]:
    """JobSet's own configurations, with the place where the controller runs here."""
    found = []
    for configuration in yaml.safe_load_all((_MADE / "webhooks.yaml").read_text("utf-8")):
        for webhook in configuration.get("webhooks", ()):
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {
                "url": f"https://127.0.0.1:{_PORT}{path}",
                "caBundle": cluster.credentials.authority,
            }
        if "webhooks" in configuration:
            found.append(configuration)
    return found


def _completes(cluster: "Cluster") -> bool:
    """Whether the API server has asked a webhook what is missing in a JobSet."""
    dry = ("create", "--dry-run=server", "-f", "-", "-o", "json")
    made = json.loads(cluster.kubectl(*dry, given=_SMALLEST, check=False) or "{}")
    return bool(made.get("spec", {}).get("network", {}).get("enableDNSHostnames"))


def stop(cluster: "Cluster") -> None:
    """Remove all of it."""
    for hooks in _webhooks(cluster):
        cluster.kubectl("delete", "-f", "-", given=hooks)
    cluster.kubectl("delete", "crd", _CRD, "--timeout=60s")
    if cluster.jobsets is not None:
        cluster.jobsets.stop()
        cluster.jobsets = None
