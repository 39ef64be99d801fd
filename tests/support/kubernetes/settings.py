"""The files that a cluster starts with.

Keys and certificates, who may do what, how its programs are set.
"""

import datetime as dt
import ipaddress
import json
import secrets
import shlex
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from tests.support.paths import DATA, ROOT

CACHE = ROOT / ".cluster"
INSIDE = "https://10.77.0.1:443"
"""The API server as nodes reach it.

Pods find it at the address of the service `kubernetes`, 10.96.0.1.
"""
ZONE = "us-east-1a"


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a test asks of a cluster."""

    nodes: int = 2
    devices: tuple[tuple[str, int], ...] = (("vpc.amazonaws.com/efa", 4), ("nvidia.com/gpu", 8))
    labels: tuple[tuple[str, str], ...] = (
        ("node.kubernetes.io/instance-type", "p4d.24xlarge"),
        ("topology.kubernetes.io/region", ZONE[:-1]),
        ("topology.kubernetes.io/zone", ZONE),
        ("topology.k8s.aws/zone-id", "use1-az1"),
        ("topology.k8s.aws/network-node-layer-1", "nn-1111"),
        ("topology.k8s.aws/network-node-layer-2", "nn-2222"),
        ("topology.k8s.aws/network-node-layer-3", "nn-3333"),
    )
    """Labels of every node, as EKS sets them."""
    grace: int = 20
    """Seconds after its last sign that a node counts as NotReady; 40 is what Kubernetes has."""


@dataclass(slots=True)
class Credentials:
    """The cluster's authority, and the kubeconfig files of those whom the API server knows."""

    folder: Path
    authority: str = ""
    tokens: list[str] = field(default_factory=list)

    def make(self) -> None:
        """Write ca.crt, api.crt, api.key, sa.key and sa.pub."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
        own = _certificate(name, key, name, key, x509.BasicConstraints(ca=True, path_length=0))
        self.authority = b64encode(_pem(own)).decode()
        (self.folder / "ca.crt").write_bytes(_pem(own))
        serving = ec.generate_private_key(ec.SECP256R1())
        named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "kube-apiserver")])
        addresses = [
            x509.IPAddress(ipaddress.ip_address(text))
            for text in ("127.0.0.1", "10.77.0.1", "10.96.0.1")
        ]
        names = [x509.DNSName(text) for text in ("localhost", "kubernetes.default.svc")]
        places = x509.SubjectAlternativeName([*addresses, *names])
        (self.folder / "api.crt").write_bytes(_pem(_certificate(named, serving, name, key, places)))
        (self.folder / "api.key").write_bytes(_private(serving))
        signing = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (self.folder / "sa.key").write_bytes(_private(signing))
        public = signing.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        (self.folder / "sa.pub").write_bytes(public)

    def user(self, file: str, server: str, name: str, *groups: str) -> Path:
        """Make somebody known to the API server.

        Gives the kubeconfig file, which is complete in itself.
        """
        token = secrets.token_hex(16)
        self.tokens.append(f'{token},{name},{name},"{",".join(groups)}"\n')
        (self.folder / "tokens.csv").write_text("".join(self.tokens))
        return self.kubeconfig(self.folder / file, server, token)

    def kubeconfig(self, path: Path, server: str, token: str, namespace: str = "default") -> Path:
        """Write a kubeconfig file (JSON, which YAML includes)."""
        cluster = {"server": server, "certificate-authority-data": self.authority}
        context = {"cluster": "tests", "user": "tests", "namespace": namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "tests", "user": {"token": token}}],
            "contexts": [{"name": "tests", "context": context}],
            "current-context": "tests",
        }
        path.write_text(json.dumps(config, indent=1))
        path.chmod(0o600)
        return path


def _certificate(
    subject: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
    )
    builder = builder.serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - dt.timedelta(hours=1))
    builder = builder.not_valid_after(now + dt.timedelta(days=2))
    return builder.add_extension(extension, critical=False).sign(signer, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _private(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> bytes:
    plain = serialization.NoEncryption()
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, plain
    )


def audit_policy(folder: Path) -> Path:
    """Write the policy by which the API server notes every request of the tests' accounts.

    Gives the file.
    """
    rules = [
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ]
    policy = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": rules}
    file = folder / "audit.json"
    file.write_text(json.dumps(policy))
    return file


def plan(folder: Path, identity: str, names: Sequence[str]) -> None:
    """Write what `boot` reads."""
    (folder / "plan").write_text(f"id={shlex.quote(identity)}\nnames=({shlex.join(names)})\n")


_CONTAINERD = (DATA / "cluster/containerd.toml").read_text("utf-8")


def node(folder: Path, number: int, group: str) -> None:
    """Write one node's containerd.toml, kubelet.json and network of pods."""
    (folder / "cni").mkdir(parents=True)
    (folder / "containerd.toml").write_text(
        _CONTAINERD.format(folder=folder, tools=CACHE / "tools")
    )
    ranges = [[{"subnet": f"10.244.{number + 1}.0/24"}]]
    bridge = {
        "type": "bridge",
        "bridge": "cni0",
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {"type": "host-local", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}]},
    }
    network = {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}
    (folder / "cni/10-pods.conflist").write_text(json.dumps(network))
    kubelet = json.loads((DATA / "cluster/kubelet.json").read_text("utf-8"))
    place, provider = address(number), f"aws:///{ZONE}/i-{number + 1:017x}"
    kubelet |= {"address": place, "providerID": provider, "cgroupRoot": f"/{group}"}
    (folder / "kubelet.json").write_text(json.dumps(kubelet, indent=1))


def evict(folder: Path, *, pressed: bool) -> None:
    """Say in kubelet.json whether pods are evicted although there is memory."""
    file = folder / "kubelet.json"
    kubelet = json.loads(file.read_text())
    # A hard limit would be taken off what the node has: its pods would not be let in again.
    kubelet["evictionSoft"] = {"memory.available": "98%"} if pressed else {}
    kubelet["evictionSoftGracePeriod"] = {"memory.available": "1s"} if pressed else {}
    file.write_text(json.dumps(kubelet, indent=1))


def address(number: int) -> str:
    """The address of a node."""
    return f"10.77.0.{11 + number}"


def node_name(number: int) -> str:
    """The name of a node, as EKS gives them."""
    return f"ip-{address(number).replace('.', '-')}.ec2.internal"
