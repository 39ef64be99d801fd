"""The objects of a cluster, of whatever kind: look at all of them, make some, remove some."""

import json
import ssl
from base64 import b64decode
from collections.abc import Container, Iterator, Mapping
from contextlib import closing
from functools import cached_property
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import quote, urlsplit

_COME_AND_GO = {"events", "componentstatuses"}
"""Kinds of which the cluster makes and removes objects by itself, at any time."""


class Api:
    """The API server of a kubeconfig file that this package wrote; no library is between."""

    def __init__(self, kubeconfig: Path) -> None:
        config = json.loads(kubeconfig.read_text())
        cluster = config["clusters"][0]["cluster"]
        self._place = urlsplit(cluster["server"]).netloc
        self._headers = {"Authorization": f"Bearer {config['users'][0]['user']['token']}"}
        authority = b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        self._lock = Lock()
        self._kept: HTTPSConnection | None = None
        self._groups: dict[str, list[str]] = {}

    def close(self) -> None:
        """Close the connection that is kept: most of a look's time would be handshakes."""
        with self._lock:
            if self._kept is not None:
                self._kept.close()
            self._kept = None

    def get(self, path: str) -> dict[str, Any]:
        """Return what the API server tells of a path.

        Raise OSError if it refuses, or is not there.
        """
        found: dict[str, Any] = json.loads(self._text(path))
        return found

    def send(
        self, method: str, path: str, given: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return the answer to a request that changes something. Raise OSError as `get` does."""
        answer: dict[str, Any] = json.loads(
            self._text(path, method, json.dumps(given) if given else None)
        )
        return answer

    def apply(self, given: Mapping[str, Any]) -> None:
        """Make an object, or change it to this."""
        about = given["metadata"]
        path = self._path(f"{given['kind'].lower()}s", about.get("namespace", ""))
        self.send("PATCH", f"{path}/{about['name']}?fieldManager=tests&force=true", given)

    def remove_all(self, kind: str, namespace: str = "", label: str = "") -> None:
        """Remove all objects of a kind, and what they own; pods have a second for their end."""
        chosen = f"&labelSelector={quote(label)}" if label else ""
        how = "?propagationPolicy=Background&gracePeriodSeconds=1"
        self.send("DELETE", f"{self._path(kind, namespace)}{how}{chosen}")

    def all_of(self, kind: str, namespace: str) -> list[dict[str, Any]]:
        """Return all objects of a kind, by its plural."""
        return self.get(self._path(kind, namespace)).get("items") or []

    def _text(self, path: str, method: str = "GET", given: str | None = None) -> str:
        with self._lock:
            kept, self._kept = self._kept, None
            if kept is not None:
                try:
                    return self._asked(kept, path, method, given)
                except (HTTPException, ConnectionError, ssl.SSLError):
                    kept.close()  # it was closed there meanwhile
            connection = HTTPSConnection(self._place, timeout=30, context=self._tls)
            return self._asked(connection, path, method, given)

    def _asked(self, connection: HTTPSConnection, path: str, method: str, given: str | None) -> str:
        """Ask over a connection, and keep it if that succeeds."""
        kind = "apply-patch+yaml" if method == "PATCH" else "json"
        try:
            headers = {**self._headers, "Content-Type": f"application/{kind}"}
            connection.request(method, path, body=given, headers=headers)
            with closing(connection.getresponse()) as answer:
                text, status = answer.read().decode(), answer.status
        except HTTPException as broken:
            connection.close()
            raise ConnectionError(str(broken)) from broken
        except OSError:
            connection.close()
            raise
        self._kept = connection
        if status >= 400:
            raise OSError(f"{path}: {status} {text[:200]}")
        return text

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
        """Return one object, of a kind by its plural; empty if there is none, or no API server."""
        try:
            return self.get(f"{self._path(kind, namespace)}/{name}")
        except OSError:
            return {}

    def _path(self, kind: str, namespace: str) -> str:
        """Return the path of all objects of a kind, by its plural."""
        if all(not path.endswith(f"/{kind}") for path in self._known):
            self.__dict__.pop("_known")  # it was defined meanwhile
        (path,) = (path for path in self._known if path.endswith(f"/{kind}"))
        where = f"/namespaces/{namespace}" if namespace else ""
        return f"{path.removesuffix(f'/{kind}')}{where}/{kind}"

    def kinds(self) -> list[str]:
        """The paths of all lists of objects: `/api/v1/pods`, `/apis/batch/v1/jobs`, …"""
        groups = self.get("/apis")["groups"]
        tops = [
            "/api/v1",
            *(f"/apis/{group['preferredVersion']['groupVersion']}" for group in groups),
        ]
        for top in tops:
            if top not in self._groups:
                self._groups[top] = [f"{top}/{name}" for name in _listable(self.get(top))]
        return [path for top in tops for path in self._groups[top]]

    def everything(self, kinds: Container[str] | None = None) -> list[str]:
        """A line for every object of every kind, or of these, events apart: `pods fab/fab-0`."""
        lines = []
        for path in self._known if kinds else self.kinds():
            if kinds and path.rpartition("/")[2] not in kinds:
                continue
            for item in self.get(path).get("items") or ():
                about = item["metadata"]
                lines.append(
                    f"{path.rpartition('/')[2]} {about.get('namespace', '')}/{about['name']}"
                )
        return sorted(lines)


def _listable(answer: dict[str, Any]) -> Iterator[str]:
    for one in answer["resources"]:
        name: str = one["name"]
        if "list" in one["verbs"] and "/" not in name and name not in _COME_AND_GO:
            yield name
