"""The Kubernetes API, as a kubeconfig describes it. Its errors become ours here, and nowhere else."""

import functools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from fabbench.model.actions import action
from fabbench.model.errors import MachineError, RequestError

_CONNECT_S, _ANSWER_S = 10.0, 60.0
_PAGE = 500
_FORBIDDEN, _MISSING, _UNAUTHORIZED = 403, 404, 401
_AGAIN, _BROKEN = {0, 429}, 500
_NO_SUCCESS = 300


@functools.cache
def client_library() -> ModuleType:
    """Load the client library, which takes its time."""
    import kubernetes as loaded
    import kubernetes.client
    import kubernetes.config
    import kubernetes.stream

    return loaded


@dataclass(frozen=True, slots=True)
class KubernetesApi:
    """One cluster, with the namespace to work in."""

    configuration: Any
    """The client library's Configuration; it renews tokens by itself."""
    context: str
    namespace: str

    def api_client(self) -> Any:
        """Return a client of its own: one that streams cannot be used for anything else."""
        return client_library().client.ApiClient(self.configuration)

    def core(self) -> Any:
        """Return the API of pods, nodes, services, secrets and events."""
        return client_library().client.CoreV1Api(self.api_client())

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Read an object or a list. Raise MachineError."""
        return self.call("GET", path, query=query)

    def items(self, path: str, **query: str) -> Iterator[dict[str, Any]]:
        """Read a list of any length, page by page."""
        going_on = ""
        while True:
            more = {"continue": going_on} if going_on else {}
            page = self.get(path, limit=str(_PAGE), **query, **more)
            yield from page.get("items", ())
            going_on = page.get("metadata", {}).get("continue", "")
            if not going_on:
                return

    def call(
        self, method: str, path: str, *, body: object = None, query: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Call the API with plain JSON. Raise MachineError, `AbsentError` for what is not there."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return self._request(method, path, kind, None if body is None else json.dumps(body), query)

    def apply(self, path: str, document: str) -> dict[str, Any]:
        """Make the object of a YAML document, of which every byte is handed over. Raise MachineError."""
        return self._request("POST", path, "application/yaml", document, {"fieldValidation": "Strict"})

    @contextmanager
    def stream(self, path: str, query: Mapping[str, str]) -> Iterator[Iterator[bytes]]:
        """Yield an answer piece by piece as it comes. Raise MachineError, also where it breaks off.

        Where nothing comes for a minute it ends, as if that were all: who follows something asks again.
        """
        with translated_errors(f"GET {path}"):
            answer = self._pool().request(
                "GET",
                f"{self.configuration.host}{path}{_query(query)}",
                headers=self._authorization(),
                timeout=_timeout(),
                retries=False,
                preload_content=False,
            )
            action(f"api {self.context}", f"GET {path}{_query(query)} {answer.status}, followed")
            try:
                if answer.status >= _NO_SUCCESS:
                    body = answer.read().decode("utf-8", "replace")
                    raise _refusal(answer.status, body, f"GET {path}")
                yield _pieces(answer)
            finally:
                answer.close()

    def _request(
        self, method: str, path: str, kind: str, body: str | None, query: Mapping[str, str] | None
    ) -> dict[str, Any]:
        with translated_errors(f"{method} {path}"):
            answer = self._pool().request(
                method,
                f"{self.configuration.host}{path}{_query(query or {})}",
                headers={"Accept": "application/json", "Content-Type": kind, **self._authorization()},
                body=body,
                timeout=_timeout(),
                retries=False,
            )
            action(f"api {self.context}", f"{method} {path}{_query(query or {})} {answer.status}")
            if not 200 <= answer.status < _NO_SUCCESS:
                raise _refusal(answer.status, answer.data.decode("utf-8", "replace"), f"{method} {path}")
            found = json.loads(answer.data) if answer.data else {}
            return found if isinstance(found, dict) else {}

    def _pool(self) -> Any:
        """Return the client library's own pool of connections: it knows certificates and proxies."""
        return _client(self.configuration).rest_client.pool_manager

    def _authorization(self) -> dict[str, str]:
        """Return the headers that say who asks; a token that ran out is renewed."""
        settings = self.configuration.auth_settings().values()
        return {each["key"]: each["value"] for each in settings if each["in"] == "header" and each["value"]}


class AbsentError(MachineError):
    """The object is not there."""


class ForbiddenError(MachineError):
    """The user may not do it."""


class UnansweredError(MachineError):
    """The API does not answer, or wants the request again."""


def open_api(config_file: Path | None, context: str | None, namespace: str | None) -> KubernetesApi:
    """Read the kubeconfig. Raise MachineError where there is none, RequestError for a context it has not."""
    library = client_library()
    file = None if config_file is None else str(config_file)
    try:
        contexts, current = library.config.list_kube_config_contexts(file)
    except (library.config.ConfigException, OSError) as error:
        raise MachineError(
            f"No usable kubeconfig found: {error}",
            hint="Set KUBECONFIG, or generate one: aws eks update-kubeconfig --name CLUSTER.",
        ) from error
    names = {entry["name"]: entry for entry in contexts}
    if context is not None and context not in names:
        raise RequestError(f"The kubeconfig has no context {context}.", hint=f"It has {', '.join(names)}.")
    chosen = names[context] if context else current
    configuration = library.client.Configuration()
    library.config.load_kube_config(
        file, context=chosen["name"], client_configuration=configuration, persist_config=False
    )
    own = chosen.get("context", {}).get("namespace")
    return KubernetesApi(configuration, chosen["name"], namespace or own or "default")


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Raise ours for the client library's errors."""
    import urllib3.exceptions

    library = client_library()
    try:
        yield
    except library.client.ApiException as error:
        raise _refusal(error.status or 0, str(error.body or error.reason or ""), what) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise UnansweredError(
            f"The cluster's API does not answer ({what}): {_short(str(error))}.",
            hint="Try `kubectl version`. Check the network, the VPN and the token.",
        ) from error


def _refusal(status: int, body: str, what: str) -> MachineError:
    message = body
    with suppress(ValueError, AttributeError):
        message = str(json.loads(body).get("message", body))
    message = _short(message)
    if status == _MISSING:
        return AbsentError(f"The cluster has no such object ({what}): {message}.")
    if status == _FORBIDDEN:
        return ForbiddenError(
            f"The cluster refuses {what}: {message}.",
            hint="examples/rbac.yaml grants the permissions that runs need, and "
            "examples/rbac-optional.yaml optional ones.",
        )
    if status == _UNAUTHORIZED:
        return MachineError(
            f"Authentication to the cluster failed ({what}): {message}.", hint="Log in again."
        )
    kind = UnansweredError if status in _AGAIN or status >= _BROKEN else MachineError
    return kind(f"The cluster refuses {what}, status {status}: {message}.")


def _pieces(answer: Any) -> Iterator[bytes]:
    import urllib3.exceptions

    try:
        yield from answer.stream()
    except urllib3.exceptions.ReadTimeoutError:
        return


def _short(text: str) -> str:
    return " ".join(text.split())[:500].rstrip(".")


def _query(parameters: Mapping[str, str]) -> str:
    from urllib.parse import urlencode

    return f"?{urlencode(parameters)}" if parameters else ""


def _timeout() -> Any:
    import urllib3

    return urllib3.Timeout(connect=_CONNECT_S, read=_ANSWER_S)


@functools.cache
def _client(configuration: Any) -> Any:
    return client_library().client.ApiClient(configuration)
