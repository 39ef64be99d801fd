"""The Kubernetes API, as a kubeconfig describes it. Its errors become ours here, and nowhere else."""

import functools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from fabbench.errors import MachineError, RequestError

_CONNECT_S, _ANSWER_S = 10.0, 60.0
_PAGE = 500
_FORBIDDEN, _MISSING, _UNAUTHORIZED = 403, 404, 401
_AGAIN, _BROKEN = {0, 429}, 500
_NO_SUCCESS = 300


@functools.cache
def kubernetes() -> ModuleType:
    """Load the client library, which takes its time."""
    import kubernetes as loaded
    import kubernetes.client
    import kubernetes.config
    import kubernetes.stream

    return loaded


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster, with the namespace to work in."""

    configuration: Any
    """The client library's Configuration; it renews tokens by itself."""
    context: str
    namespace: str

    def api_client(self) -> Any:
        """Give a client of its own: one that streams cannot be used for anything else."""
        return kubernetes().client.ApiClient(self.configuration)

    def core(self) -> Any:
        """Give the API of pods, nodes, services, secrets and events."""
        return kubernetes().client.CoreV1Api(self.api_client())

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Read an object or a list. Raises MachineError."""
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
        """Call the API with plain JSON. Raises MachineError, `AbsentError` for what is not there."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        return self._asked(method, path, kind, None if body is None else json.dumps(body), query)

    def apply(self, path: str, document: str) -> dict[str, Any]:
        """Make the object of a YAML document, of which every byte is handed over. Raises MachineError."""
        return self._asked("POST", path, "application/yaml", document, {"fieldValidation": "Strict"})

    @contextmanager
    def stream(self, path: str, query: Mapping[str, str]) -> Iterator[Iterator[bytes]]:
        """Give an answer piece by piece as it comes. Raises MachineError, also where it breaks off.

        Where nothing comes for a minute it ends, as if that were all: who follows something asks again.
        """
        with translated(f"GET {path}"):
            answer = self._pool().request(
                "GET",
                f"{self.configuration.host}{path}{_query(query)}",
                headers=self._authorization(),
                timeout=_timeout(),
                retries=False,
                preload_content=False,
            )
            try:
                if answer.status >= _NO_SUCCESS:
                    told = answer.read().decode("utf-8", "replace")
                    raise _refused(answer.status, told, f"GET {path}")
                yield _pieces(answer)
            finally:
                answer.close()

    def _asked(
        self, method: str, path: str, kind: str, body: str | None, query: Mapping[str, str] | None
    ) -> dict[str, Any]:
        with translated(f"{method} {path}"):
            answer = self._pool().request(
                method,
                f"{self.configuration.host}{path}{_query(query or {})}",
                headers={"Accept": "application/json", "Content-Type": kind, **self._authorization()},
                body=body,
                timeout=_timeout(),
                retries=False,
            )
            if not 200 <= answer.status < _NO_SUCCESS:
                raise _refused(answer.status, answer.data.decode("utf-8", "replace"), f"{method} {path}")
            found = json.loads(answer.data) if answer.data else {}
            return found if isinstance(found, dict) else {}

    def _pool(self) -> Any:
        """Give the client library's own pool of connections: it knows certificates and proxies."""
        return _client(self.configuration).rest_client.pool_manager

    def _authorization(self) -> dict[str, str]:
        """Give the headers that say who asks; a token that ran out is renewed."""
        settings = self.configuration.auth_settings().values()
        return {each["key"]: each["value"] for each in settings if each["in"] == "header" and each["value"]}


class AbsentError(MachineError):
    """The object is not there."""


class ForbiddenError(MachineError):
    """The user may not do it."""


class UnansweredError(MachineError):
    """The API does not answer, or has to be asked again."""


def cluster(config_file: str | None, context: str | None, namespace: str | None) -> Cluster:
    """Read the kubeconfig. Raises MachineError where there is none, RequestError for a context it has not."""
    library = kubernetes()
    try:
        contexts, current = library.config.list_kube_config_contexts(config_file)
    except (library.config.ConfigException, OSError) as error:
        raise MachineError(
            f"There is no usable kubeconfig: {error}",
            hint="Set KUBECONFIG, or write one: aws eks update-kubeconfig --name CLUSTER.",
        ) from error
    names = {entry["name"]: entry for entry in contexts}
    if context is not None and context not in names:
        raise RequestError(f"The kubeconfig has no context {context}.", hint=f"It has {', '.join(names)}.")
    chosen = names[context] if context else current
    configuration = library.client.Configuration()
    library.config.load_kube_config(
        config_file, context=chosen["name"], client_configuration=configuration, persist_config=False
    )
    own = chosen.get("context", {}).get("namespace")
    return Cluster(configuration, chosen["name"], namespace or own or "default")


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn the client library's errors into ours."""
    import urllib3.exceptions

    library = kubernetes()
    try:
        yield
    except library.client.ApiException as error:
        raise _refused(error.status or 0, str(error.body or error.reason or ""), what) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise UnansweredError(
            f"The cluster's API does not answer ({what}): {_short(str(error))}.",
            hint="Try `kubectl version`. Is the network there, the VPN, the token?",
        ) from error


def _refused(status: int, body: str, what: str) -> MachineError:
    message = body
    with suppress(ValueError, AttributeError):
        message = str(json.loads(body).get("message", body))
    message = _short(message)
    if status == _MISSING:
        return AbsentError(f"The cluster has no such object ({what}): {message}.")
    if status == _FORBIDDEN:
        return ForbiddenError(
            f"The cluster refuses {what}: {message}.",
            hint="examples/rbac.yaml has the rights that are needed.",
        )
    if status == _UNAUTHORIZED:
        return MachineError(f"The cluster does not know this user ({what}): {message}.", hint="Log in again.")
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
    return kubernetes().client.ApiClient(configuration)
