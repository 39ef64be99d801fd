"""Kubeflow Trainer's controller, with its own webhooks, by which the API server checks TrainJobs.

It runs beside the control plane, and not in a pod. So the service by which the API server finds its
webhooks stands for this address, and the certificates that it keeps in a Secret, which a pod would
have mounted, are written to where it reads them.
"""

import base64
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from tests.support.hosts import processes
from tests.support.kubernetes import operator
from tests.support.kubernetes.settings import CACHE

if TYPE_CHECKING:
    from tests.support.kubernetes.cluster import Cluster

_MADE = CACHE / "trainer"
_KINDS = ("trainjobs", "trainingruntimes", "clustertrainingruntimes")
_NAMESPACE = "kubeflow-system"
_SERVICE = "kubeflow-trainer-controller-manager"
_SECRET = "kubeflow-trainer-webhook-cert"
_PORT = 9444
_CERTIFICATES = Path("/tmp/k8s-webhook-server/serving-certs")
# In mounts of its own: another cluster's controller reads the same path.
_RUN = 'mkdir -p "$1" && mount --bind "$2" "$1" && shift 2 && exec "$@"'
_OBJECTS = (
    {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _SERVICE, "namespace": _NAMESPACE},
        "spec": {"type": "ExternalName", "externalName": "localhost"},
    },
    {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": _SECRET, "namespace": _NAMESPACE},
    },
)


def start(cluster: "Cluster") -> None:
    """Define TrainJobs and runtimes, and start the controller; gives when it works on them."""
    for kind in _KINDS:
        operator.define(
            cluster, _MADE / f"trainer.kubeflow.org_{kind}.yaml", f"{kind}.trainer.kubeflow.org"
        )
    cluster.make_namespace(_NAMESPACE)
    for made in (*_OBJECTS, _webhooks()):
        cluster.kubectl("apply", "-f", "-", given=made)
    folder = cluster.folder / "trainer"
    folder.mkdir(exist_ok=True)
    # Its mounts end with it.
    cluster.trainer = cluster.control.daemon(
        Path("unshare"),
        *("--mount", "sh", "-c", _RUN, "sh", str(_CERTIFICATES), str(folder)),
        str(_MADE / "trainer"),
        f"--kubeconfig={cluster.control.local}",
        f"--webhook-server-port={_PORT}",
        "--health-probe-bind-address=0",
    )
    cluster.trainer.start()
    has_certificates = processes.eventually(lambda: _write_certificates(cluster, folder), 60)
    assert has_certificates, cluster.trainer.tail()
    log = cluster.trainer.log
    works = processes.eventually(lambda: _has_started(log.read_text("utf-8")), 120)
    assert works, cluster.trainer.tail()


def _has_started(log: str) -> bool:
    """Whether it works on TrainJobs, and its webhooks answer: either may come first."""
    return "Starting workers" in log and "Serving webhook server" in log


def _webhooks() -> dict[str, object]:
    """Trainer's own configuration, with the namespace and the port of its service here."""
    configuration: dict[str, object]
    (configuration,) = yaml.safe_load_all((_MADE / "webhooks.yaml").read_text("utf-8"))
    for webhook in configuration["webhooks"]:  # type: ignore[attr-defined]
        webhook["clientConfig"]["service"] |= {"namespace": _NAMESPACE, "port": _PORT}
    return configuration


def _write_certificates(cluster: "Cluster", folder: Path) -> bool:
    """Write what the controller has put into its Secret; whether it has."""
    words = ("-n", _NAMESPACE, "get", "secret", _SECRET, "-o", "json")
    files = json.loads(cluster.kubectl(*words)).get("data", {})
    for name, content in files.items():
        (folder / name).write_bytes(base64.b64decode(content))
    return "tls.crt" in files


def stop(cluster: "Cluster") -> None:
    """Remove all of it."""
    cluster.kubectl("delete", "-f", "-", given=_webhooks())
    for kind in _KINDS:
        cluster.kubectl("delete", "crd", f"{kind}.trainer.kubeflow.org", "--timeout=60s")
    if cluster.trainer is not None:
        cluster.trainer.stop()
        cluster.trainer = None
    for made in (_CERTIFICATES, _CERTIFICATES.parent):
        with suppress(OSError):  # another cluster's controller needs it
            made.rmdir()
    cluster.remove_namespace(_NAMESPACE)
