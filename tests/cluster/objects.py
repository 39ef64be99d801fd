"""All objects of a cluster, of whatever kind: compare two looks, and see what was left behind."""

import json
import ssl
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

_COME_AND_GO = {"events", "componentstatuses"}
"""Kinds of which the cluster makes and removes objects by itself, at any time."""


class Reader:
    """Asks the API server of a kubeconfig file that this package wrote; no library is between."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._server: str = cluster["server"]
        self._headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        authority = b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)

    def get(self, path: str) -> dict[str, Any]:
        """Give what the API server tells of a path."""
        found: dict[str, Any] = json.loads(self._text(path))
        return found

    def _text(self, path: str) -> str:
        asked = urllib.request.Request(f"{self._server}{path}", headers=self._headers)
        try:
            with urllib.request.urlopen(asked, timeout=30, context=self._tls) as answer:
                text: bytes = answer.read()
        except urllib.error.HTTPError as refusal:
            refusal.close()
            raise
        return text.decode()

    def ready(self) -> bool:
        """Whether the API server is there, and says that it is ready."""
        try:
            return self._text("/readyz") == "ok"
        except OSError:
            return False

    @cached_property
    def _known(self) -> list[str]:
        return self.kinds()

    def one(self, kind: str, name: str, namespace: str) -> dict[str, Any]:
        """Give one object, of a kind by its plural; empty if there is none, or no API server."""
        try:
            (path,) = (path for path in self._known if path.endswith(f"/{kind}"))
            where = f"/namespaces/{namespace}" if namespace else ""
            return self.get(f"{path.removesuffix(f'/{kind}')}{where}/{kind}/{name}")
        except OSError:
            return {}

    def kinds(self) -> list[str]:
        """The paths of all lists of objects: `/api/v1/pods`, `/apis/batch/v1/jobs`, …"""
        groups = self.get("/apis")["groups"]
        tops = ["/api/v1", *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups)]
        return [f"{top}/{name}" for top in tops for name in _listable(self.get(top))]

    def everything(self) -> list[str]:
        """A line for every object of every kind, events apart: `pods fab/fab-0`."""
        lines = []
        for path in self.kinds():
            for item in self.get(path).get("items") or ():
                about = item["metadata"]
                lines.append(f"{path.rpartition('/')[2]} {about.get('namespace', '')}/{about['name']}")
        return sorted(lines)


def _listable(answer: dict[str, Any]) -> Iterator[str]:
    for one in answer["resources"]:
        name: str = one["name"]
        if "list" in one["verbs"] and "/" not in name and name not in _COME_AND_GO:
            yield name
