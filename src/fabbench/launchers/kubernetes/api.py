"""The Kubernetes API, by the client library's own methods. Its errors become ours here, and nowhere else.

Answers stay JSON as the cluster sent it (``_preload_content=False``): what reads them is pure, and fields
that this release of the library does not know are kept. docs/adr/kubernetes-client.md has the reasons.
"""

import functools
import json
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from fabbench.model.actions import action
from fabbench.model.errors import MachineError, RequestError

T = TypeVar("T")

_TIMEOUT = (10.0, 60.0)
"""Seconds until a connection stands, and without a byte of an answer."""
_WATCH_S = 50
"""After how many seconds the cluster ends a watch: before its silence would be an error."""
_PAGE = 500
_RESTART_S = 15.0
"""How long an API server may take to restart."""
_INVALID, _FORBIDDEN, _MISSING, _UNAUTHORIZED, _CONFLICT = 400, 403, 404, 401, 409
_AGAIN, _BROKEN = {429}, 500


@functools.cache
def client_library() -> ModuleType:
    """Load the client library, which takes its time."""
    import kubernetes as loaded
    import kubernetes.client
    import kubernetes.config
    import kubernetes.stream
    import kubernetes.watch

    return loaded


class _Typed(NamedTuple):
    """A kind that the library has methods for: ``list_namespaced_pod`` of CoreV1Api."""

    api: str
    noun: str


class _Custom(NamedTuple):
    """A kind that only some clusters have."""

    group: str
    version: str
    plural: str


MPIJOB = _Custom("kubeflow.org", "v2beta1", "mpijobs")
CLAIM_TEMPLATE = _Custom("resource.k8s.io", "v1", "resourceclaimtemplates")
"""The library has methods for it from release 34 on."""
_KINDS: Mapping[str, _Typed | _Custom] = {
    "Node": _Typed("CoreV1Api", "node"),
    "Pod": _Typed("CoreV1Api", "pod"),
    "Service": _Typed("CoreV1Api", "service"),
    "Secret": _Typed("CoreV1Api", "secret"),
    "Event": _Typed("CoreV1Api", "event"),
    "Job": _Typed("BatchV1Api", "job"),
    "MPIJob": MPIJOB,
    "ResourceClaimTemplate": CLAIM_TEMPLATE,
}
_OF_CLUSTER = {"Node"}
"""Kinds without a namespace."""


@dataclass(frozen=True, slots=True)
class KubernetesApi:
    """One cluster, with the namespace to work in. Every method raises MachineError."""

    configuration: Any
    """The client library's Configuration; it renews tokens by itself."""
    context: str
    namespace: str

    def core(self) -> Any:
        """Return the API of pods with a client of its own: one that streams cannot do anything else."""
        library = client_library().client
        return library.CoreV1Api(library.ApiClient(self.configuration))

    def read(self, kind: str, name: str, *, namespace: str = "") -> dict[str, Any]:
        """Read one object; `AbsentError` where it is not there."""
        return self._call("read", kind, name=name, **self._place(kind, namespace))

    def objects(
        self, kind: str, *, labels: str = "", fields: str = "", everywhere: bool = False
    ) -> Iterator[dict[str, Any]]:
        """List objects, page by page; `labels` and `fields` are selectors, which the cluster evaluates."""
        chosen = {"label_selector": labels, "field_selector": fields}
        arguments = {name: text for name, text in chosen.items() if text}
        verb, place = ("list all", {}) if everywhere else ("list", self._place(kind))
        going_on = ""
        while True:
            more = {"_continue": going_on} if going_on else {}
            page = self._call(verb, kind, limit=_PAGE, **place, **arguments, **more)
            yield from page.get("items", ())
            going_on = page.get("metadata", {}).get("continue", "")
            if not going_on:
                return

    def create(self, kind: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make an object. A field that the cluster does not know is an error.

        Where the connection breaks, as when the API server restarts, this tries again for a while.
        """
        order = functools.partial(
            self._call, "create", kind, body=body, field_validation="Strict", **self._place(kind)
        )
        try:
            return order()
        except DisconnectedError:
            with suppress(AlreadyExistsError):  # made at first, but the answer was lost
                return again(order, DisconnectedError)
            return self.read(kind, body["metadata"]["name"])

    def patch(self, kind: str, name: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Change fields of an object."""
        return self._call("patch", kind, name=name, body=body, **self._place(kind))

    def delete(self, kind: str, name: str, body: Mapping[str, Any], *, namespace: str = "") -> None:
        """Delete an object; `AbsentError` where it is not there. `body` are the DeleteOptions."""
        self._call("delete", kind, name=name, body=body, **self._place(kind, namespace))

    def plurals(self, group: str, version: str) -> frozenset[str]:
        """Name what the cluster knows of an API group: ``mpijobs``; nothing where it has no such group."""
        library = client_library().client
        method = library.CustomObjectsApi(_client(self.configuration)).get_api_resources
        try:
            found = self._answer("discover", f"{group}/{version}", method, group=group, version=version)
        except AbsentError:
            return frozenset()
        return frozenset(each["name"] for each in found.get("resources", ()))

    def allowed(self, attributes: Mapping[str, str]) -> bool:
        """Ask whether the user may do something: `attributes` as in a SelfSubjectAccessReview."""
        library = client_library().client
        method = library.AuthorizationV1Api(_client(self.configuration)).create_self_subject_access_review
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": dict(attributes)},
        }
        found = self._answer("create", "SelfSubjectAccessReview", method, body=body)
        return bool(found.get("status", {}).get("allowed"))

    def watch(self, kind: str, labels: str) -> Generator[dict[str, Any], None, None]:
        """Yield objects as they are, and then as they change, until the cluster ends it within a minute."""
        place = self._place(kind)
        listed = self._call("list", kind, label_selector=labels, **place)
        yield from listed.get("items") or ()
        with translated_errors(f"watch {kind}"):
            # The plain type leaves objects as they come, in all releases of the library.
            events = (
                client_library()
                .watch.Watch(return_type=object)
                .stream(
                    self._method("list", kind),
                    label_selector=labels,
                    resource_version=listed["metadata"]["resourceVersion"],
                    timeout_seconds=_WATCH_S,
                    _request_timeout=_TIMEOUT,
                    **place,
                )
            )
            action(f"api {self.context}", f"watch {kind} {labels}")
            for event in events:
                yield event["raw_object"]

    @contextmanager
    def log(self, pod: str, container: str, *, follow: bool) -> Iterator[Iterator[bytes]]:
        """Yield a log piece by piece as it comes, each line with its time.

        Where nothing comes for a minute it ends, as if that were all: who follows a log asks again.
        """
        with translated_errors(f"log of {pod}"):
            method = client_library().client.CoreV1Api(_client(self.configuration)).read_namespaced_pod_log
            answer = method(
                name=pod,
                namespace=self.namespace,
                container=container,
                follow=follow,
                timestamps=True,
                _preload_content=False,
                _request_timeout=_TIMEOUT,
            )
            action(f"api {self.context}", f"log of {pod} {answer.status}, follow={follow}")
            try:
                yield _pieces(answer)
            finally:
                answer.close()

    def _place(self, kind: str, namespace: str = "") -> dict[str, str]:
        return {} if kind in _OF_CLUSTER else {"namespace": namespace or self.namespace}

    def _call(self, verb: str, kind: str, **arguments: Any) -> dict[str, Any]:
        return self._answer(verb, kind, self._method(verb, kind), **arguments)

    def _method(self, verb: str, kind: str) -> Callable[..., Any]:
        """Return the library's method for a kind."""
        library, known = client_library().client, _KINDS[kind]
        client = _client(self.configuration)
        if isinstance(known, _Custom):
            name = {
                "read": "get_namespaced_custom_object",
                "list all": "list_cluster_custom_object",
            }.get(verb, f"{verb}_namespaced_custom_object")
            method = getattr(library.CustomObjectsApi(client), name)
            return functools.partial(method, **known._asdict())
        if verb == "list all":
            name = f"list_{known.noun}_for_all_namespaces"
        else:
            name = f"{verb}_{'' if kind in _OF_CLUSTER else 'namespaced_'}{known.noun}"
        return getattr(getattr(library, known.api)(client), name)  # type: ignore[no-any-return]

    def _answer(self, verb: str, kind: str, method: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
        what = f"{verb} {kind}"
        shown = " ".join(str(value) for name, value in arguments.items() if name != "body")
        with translated_errors(what):
            try:
                answer = method(**arguments, _preload_content=False, _request_timeout=_TIMEOUT)
            except client_library().client.ApiException as error:
                action(f"api {self.context}", f"{what} {shown}: {error.status}")
                raise
            data = answer.data
            action(f"api {self.context}", f"{what} {shown}: {answer.status}")
            found = json.loads(data) if data else {}
            return found if isinstance(found, dict) else {}


class AbsentError(MachineError):
    """The object is not there."""


class ForbiddenError(MachineError):
    """The user may not do it."""


class InvalidError(MachineError):
    """The cluster rejects the request as invalid."""


class AlreadyExistsError(MachineError):
    """An object of this name exists."""


class UnansweredError(MachineError):
    """The API does not answer, or wants the request again."""


class DisconnectedError(UnansweredError):
    """The connection to the API broke, or cannot be made."""


def again(ask: Callable[[], T], error: type[MachineError]) -> T:
    """Ask, and ask again for 15 s where this error says that the connection broke."""
    deadline = time.monotonic() + _RESTART_S
    while True:
        try:
            return ask()
        except error:
            if time.monotonic() >= deadline:
                raise
            time.sleep(1)


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
    configuration.retries = False  # whoever asks decides that
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
        body = error.body or error.reason or ""
        text = body.decode("utf-8", "replace") if isinstance(body, bytes) else str(body)
        if not error.status:  # the library's way to say that TLS failed
            raise _unanswered(text, what) from error
        raise _refusal(error.status, text, what) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _unanswered(str(error), what) from error


def _unanswered(why: str, what: str) -> DisconnectedError:
    return DisconnectedError(
        f"The cluster's API does not answer ({what}): {_short(why)}.",
        hint="Try `kubectl version`. Check the network, the VPN and the token.",
    )


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
    if status == _INVALID:
        return InvalidError(f"The cluster refuses {what}: {message}.")
    if status == _CONFLICT and "already exists" in message:
        return AlreadyExistsError(f"The cluster refuses {what}: {message}.")
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


@functools.cache
def _client(configuration: Any) -> Any:
    return client_library().client.ApiClient(configuration)
