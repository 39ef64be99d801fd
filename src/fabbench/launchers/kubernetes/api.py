"""The Kubernetes API, through the client library, and programs in pods, through its exec.

Only this module translates the library's errors to fabbench's. Answers stay JSON as sent by the
cluster, with fields that the library does not know: docs/architecture.md.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias, cast
from urllib.parse import quote

from fabbench.execution.process import Received
from fabbench.launchers import notify
from fabbench.launchers.kubernetes.explain import explain
from fabbench.launchers.pod_options import Object
from fabbench.model.compat import override
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.mappings import without_empty
from fabbench.model.messages import action, shorten, single_spaced
from fabbench.model.values import T, frozen
from fabbench.remote.transport import Done, HostGoneError, LostError, ProcessStream, Transport

Query: TypeAlias = Iterable[tuple[str, str]]
"""Query parameters of a request; a name may occur several times."""

_TIMEOUT = (10.0, 60.0)  # Timeouts in seconds: to connect, and between bytes of an answer
_WATCH_S = 50  # Seconds after which the cluster ends a watch: before its silence would be an error
_PAGE = 500  # Objects per answer to a list request
_RESTART_S = 15.0  # Seconds that an API server may take to restart


@cache
def client_library() -> ModuleType:
    """Load the client library, which is slow."""
    import kubernetes as loaded
    import kubernetes.client
    import kubernetes.config
    import kubernetes.dynamic
    import kubernetes.stream
    import kubernetes.watch

    return loaded


# The path of each kind in a namespace.
_PATHS: Mapping[str, str] = {
    "Node": "/api/v1/nodes",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Event": "/api/v1/namespaces/{}/events",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "MPIJob": "/apis/kubeflow.org/v2beta1/namespaces/{}/mpijobs",
    "ResourceClaimTemplate": "/apis/resource.k8s.io/v1/namespaces/{}/resourceclaimtemplates",
    "SelfSubjectAccessReview": "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
}
_NAMESPACE = "/namespaces/{}"


class _Requests:
    """Requests by path, through the library's dynamic client: the typed one is slow to load."""

    def __init__(self, configuration: Any) -> None:
        library = client_library()
        # Where `kubernetes.stream` looks for it.
        self.api_client = library.client.ApiClient(configuration)
        # The default discoverer would first request all kinds from the cluster.
        self._client = library.dynamic.DynamicClient(self.api_client, discoverer=lambda *_: None)

    def send(self, method: str, path: str, query: Query = (), **parameters: Any) -> Any:
        """Return the unparsed answer of `DynamicClient.request`. Raise the library's errors."""
        parameters = {"_request_timeout": _TIMEOUT, **parameters}
        return self._client.request(
            method, path, query_params=list(query), serialize=False, **parameters
        )


@frozen
class KubernetesApi:
    """One cluster, with the namespace to work in. Every method raises MachineError."""

    configuration: Any  # The client library's Configuration; it renews tokens by itself
    context: str
    namespace: str

    def read(self, kind: str, name: str, *, namespace: str = "") -> Object:
        """Read one object; raise AbsentError if it does not exist."""
        return self._ask("read", kind, "GET", self._path(kind, name, namespace=namespace))

    def objects(
        self, kind: str, *, labels: str = "", fields: str = "", everywhere: bool = False
    ) -> Iterator[Object]:
        """List objects, page by page; `labels` and `fields` are selectors."""
        selectors = {"label_selector": labels, "field_selector": fields}
        parameters: Object = {**without_empty(selectors)}
        path = self._path(kind)
        if everywhere:
            path = _PATHS[kind].replace(_NAMESPACE, "")
        while True:
            page = self._ask("list", kind, "GET", path, limit=_PAGE, **parameters)
            yield from page.get("items", ())
            parameters["_continue"] = page.get("metadata", {}).get("continue", "")
            if not parameters["_continue"]:
                return

    def create(self, kind: str, body: Object) -> Object:
        """Create an object; unknown fields are errors. Retry for a while if the API is away."""
        strict = [("fieldValidation", "Strict")]
        if kind.endswith("Job"):  # what else a run needs belongs to it
            notify(f"Creating a {kind} in the namespace {self.namespace} of {self.context}.")
        path = self._path(kind)
        request = partial(self._ask, "create", kind, "POST", path, strict, body=body)
        try:
            return request()
        except DisconnectedError:
            with suppress(AlreadyExistsError):
                return retry(request, DisconnectedError)
            # The first request has created it, but the answer was lost.
            return self.read(kind, body["metadata"]["name"])

    def patch(self, kind: str, name: str, body: Object) -> Object:
        """Change fields of an object."""
        path = self._path(kind, name)
        form = "application/merge-patch+json"
        return self._ask("patch", kind, "PATCH", path, body=body, content_type=form)

    def delete(self, kind: str, name: str, body: Object, *, namespace: str = "") -> None:
        """Delete an object with DeleteOptions; raise AbsentError if it does not exist."""
        path = self._path(kind, name, namespace=namespace)
        self._ask("delete", kind, "DELETE", path, body=body)

    def serves(self, kind: str) -> bool:
        """Return whether the cluster has a kind of objects, in the version that fabbench uses."""
        # What is before the namespace lists the kinds of a group and version, by their plurals.
        group_path, _, plural = _PATHS[kind].partition(f"{_NAMESPACE}/")
        try:
            listing = self._ask("discover", kind, "GET", group_path)
        except AbsentError:
            return False
        resources = listing.get("resources", ())
        return plural in {each["name"] for each in resources}

    def allowed(self, attributes: Mapping[str, str]) -> bool:
        """Return whether the user may do what a SelfSubjectAccessReview's attributes say."""
        kind = "SelfSubjectAccessReview"
        body = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": kind,
            "spec": {"resourceAttributes": dict(attributes)},
        }
        review = self._ask("create", kind, "POST", self._path(kind), body=body)
        return bool(review.get("status", {}).get("allowed"))

    def watch(self, kind: str, labels: str) -> Generator[Object, None, None]:
        """Yield objects as they are, then as they change, for less than a minute."""
        path = self._path(kind)
        listed = self._ask("list", kind, "GET", path, label_selector=labels)
        yield from listed.get("items") or ()
        with translated_errors(f"watch {kind}"):
            # With this type all releases of the library leave objects as they are.
            watch = client_library().watch.Watch(return_type=object)
            events = watch.stream(
                partial(_requests(self.configuration).send, "GET", path),
                label_selector=labels,
                resource_version=listed["metadata"]["resourceVersion"],  # what came after the list
                timeout_seconds=_WATCH_S,
            )
            action(f"api {self.context}", f"watch {kind} {labels}")
            for event in events:
                yield event["raw_object"]

    def exec(self, pod: str, container: str, argv: Sequence[str]) -> Any:
        """Start a program in a pod, and return the library's WebSocket with its channels."""
        query = [
            ("container", container),
            ("stdin", "true"),
            ("stdout", "true"),
            ("stderr", "true"),
            *(("command", word) for word in argv),
        ]
        with translated_errors(f"exec in {pod}"):
            return client_library().stream.stream(
                # A separate client: one that streams cannot do anything else.
                _Requests(self.configuration).send,
                "GET",
                self._path("Pod", pod, "exec"),
                query,
                header_params={"Accept": "*/*"},
                binary=True,
                _preload_content=False,  # It returns at once, and not when the program has ended
                _request_timeout=None,  # No limit
            )

    def _path(self, kind: str, *names: str, namespace: str = "") -> str:
        path = _PATHS[kind].format(_segment(namespace or self.namespace))
        return "/".join((path, *map(_segment, names)))

    def _ask(
        self, verb: str, kind: str, method: str, path: str, query: Query = (), **parameters: Any
    ) -> Object:
        """Make a request, log it, and return the object of its answer; empty: it has none.

        `verb` and `kind` name the request in messages; `method` and `path` are what is sent.
        """
        what = f"{verb} {kind}"
        shown = {name: value for name, value in parameters.items() if name != "body"}
        request = " ".join((what, path, *map(str, shown.values())))
        with translated_errors(what):
            try:
                answer = _requests(self.configuration).send(method, path, query, **parameters)
            except client_library().client.ApiException as error:
                action(f"api {self.context}", f"{request}: {error.status}")
                raise
            action(f"api {self.context}", f"{request}: {answer.status}")
            content = json.loads(answer.data) if answer.data else {}
            return content if isinstance(content, dict) else {}


def _segment(name: str) -> str:
    """Quote a name as one segment of a path."""
    return quote(name, safe="")


class AbsentError(MachineError):
    """The object does not exist."""


class ForbiddenError(MachineError):
    """The user lacks the permission."""


class InvalidError(MachineError):
    """The cluster rejects the request as invalid."""


class AlreadyExistsError(MachineError):
    """An object of this name exists, or is not the expected one."""


class UnansweredError(MachineError):
    """The API does not answer, or asks for a retry."""


class DisconnectedError(UnansweredError):
    """The connection to the API broke, or cannot be established."""


def retry(request: Callable[[], T], error: type[MachineError]) -> T:
    """Make a request; retry for 15 s while it raises `error`, which reports a broken connection."""
    deadline = time.monotonic() + _RESTART_S
    while True:
        try:
            return request()
        except error:
            if time.monotonic() >= deadline:
                raise
            time.sleep(1)


def open_api(config_file: Path | None, context: str | None, namespace: str | None) -> KubernetesApi:
    """Read the kubeconfig. Raise MachineError: there is none. RequestError: no such context."""
    import yaml

    library = client_library()
    file = None if config_file is None else str(config_file)
    settings = _client_settings()
    unusable = library.config.ConfigException, yaml.YAMLError, OSError, ValueError
    no_kubeconfig = TypeError, KeyError, AttributeError  # raised for any other YAML
    try:
        entry = _context_entry(file, context)
        library.config.load_kube_config(
            file, context=entry["name"], client_configuration=settings, persist_config=False
        )
    except (*unusable, *no_kubeconfig) as error:
        raise MachineError(
            f"No usable kubeconfig found: {_short(str(error))}.",
            hint="Set KUBECONFIG, or generate one: aws eks update-kubeconfig --name CLUSTER.",
        ) from error
    default = entry.get("context", {}).get("namespace")
    return KubernetesApi(
        configuration=settings,
        context=entry["name"],
        namespace=namespace or default or "default",
    )


def _client_settings() -> Any:
    """Return a Configuration of the client library whose tokens are fit for a header."""
    library = client_library()

    class ClientSettings(library.client.Configuration):  # type: ignore[misc,name-defined]
        def get_api_key_with_prefix(self, *names: str, **more: str) -> str | None:
            token = super().get_api_key_with_prefix(*names, **more)
            return token and _header(token)

    settings = ClientSettings()
    settings.retries = False  # callers decide on retries
    return settings


def _context_entry(file: str | None, context: str | None) -> Object:
    """Return the kubeconfig's entry of a context; of the current one if none is given."""
    contexts, current = client_library().config.list_kube_config_contexts(file)
    if context is None:
        return cast("Object", current)
    by_name: dict[str, Object] = {each["name"]: each for each in contexts}
    if context not in by_name:
        known = ", ".join(by_name)
        raise RequestError(f"The kubeconfig has no context {context}.", hint=f"It has {known}.")
    return by_name[context]


def _header(text: str) -> str:
    """Return ``SCHEME TOKEN`` for a header, without the line break that ends a token's file."""
    text = " ".join(text.split(maxsplit=1)).rstrip()
    if not (text.isascii() and text.isprintable()):
        raise MachineError(
            "The kubeconfig's token has line breaks or other characters that no token has.",
            hint="Check its tokenFile, or log in again.",
        )
    return text


@contextmanager
def translated_errors(what: str) -> Iterator[None]:
    """Translate the client library's errors to fabbench's."""
    import urllib3.exceptions

    try:
        yield
    except client_library().client.ApiException as error:
        text = error.body or error.reason or ""
        if isinstance(text, bytes):
            text = text.decode("utf-8", "replace")
        if not error.status:  # the library's way to report that TLS failed
            raise _unanswered(text, what) from error
        raise _refusal(error.status, text, what) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise _unanswered(str(error), what) from error


def _unanswered(reason: str, what: str) -> DisconnectedError:
    return DisconnectedError(
        f"The cluster's API does not answer ({what}): {_short(reason)}.",
        hint="Try `kubectl version`. Check the network, the VPN and the token.",
    )


_ERRORS: Mapping[int, type[MachineError]] = {
    400: InvalidError,
    401: MachineError,
    403: ForbiddenError,
    404: AbsentError,
    409: AlreadyExistsError,
    429: UnansweredError,
}
_HINTS = {
    401: "Log in again.",
    403: (
        "examples/rbac.yaml grants the permissions that runs need, and "
        "examples/rbac-optional.yaml optional ones."
    ),
}


def _refusal(status: int, body: str, what: str) -> MachineError:
    """Return the error for an HTTP status; `body` is a Status object, or else text."""
    with suppress(ValueError, AttributeError):
        body = str(json.loads(body).get("message", body))
    message = _short(body)
    error_type = _ERRORS.get(status, UnansweredError if status >= 500 else MachineError)
    unusual = "" if status in _ERRORS else f", status {status}"
    hint = _HINTS.get(status) or explain("refused", what, message).advice or None
    return error_type(f"The cluster refuses {what}{unusual}: {message}.", hint=hint)


def _short(text: str) -> str:
    return single_spaced(text)[:500].rstrip(".")


@cache
def _requests(configuration: Any) -> _Requests:
    return _Requests(configuration)


# The channels of an exec's WebSocket. The last one gets a Status when the program has ended.
_STDIN = 0
_STDOUT = 1
_STDERR = 2
_ERROR = 3
# What the API puts before a kubelet's message.
_REQUEST = re.compile(r'error sending request: \w+ "[^"]*": ')
# Messages when the kubelet cannot be reached, or has just started and knows no pods yet.
_TRANSIENT = re.compile(
    r"\bdial\b|\bEOF\b|connection (?:refused|reset)|broken pipe|time(?:d )?-?out|no route|"
    r"pod does not exist|container not found"
)
# exec cannot close a program's input: the program gets the number of bytes to read.
_WITH_STDIN = 'head -c "$1" | { shift; exec "$@"; }'
# When a kubelet stops, the API reports "Success" for running programs: so each prints its exit
# status.
_PRINT_STATUS = '"$@"; set -- "$?"; echo "fabbench-exec: ended $1" >&2; exit "$1"'
_ENDED = re.compile(r"fabbench-exec: ended (\d+)$")


class PodPipe(ProcessStream):
    """A program in a pod. Until its lines are requested, it waits."""

    def __init__(self, stream: Any, name: str) -> None:
        super().__init__()
        self._stream = stream
        self.name = name
        self._sending = threading.Lock()

    @override
    def send(self, data: bytes) -> None:
        try:
            with self._sending:
                self._stream.write_channel(_STDIN, data)
        except Exception as error:  # the WebSocket library's errors have no common base
            raise lost(self.name, error) from error

    @override
    def _receive(self, timeout_s: float) -> Received:
        # None: the stream is closed, and all that came before has been returned.
        try:
            is_open = self._stream.is_open()
            if is_open:
                self._stream.update(timeout=timeout_s)
            out = self._read(_STDOUT)
            err = self._read(_STDERR)
        except Exception as error:  # see `send`
            raise lost(self.name, error) from error
        return (out, err) if is_open or out or err else None

    @override
    def _exit_status(self) -> int:
        # The API reports last how it ended.
        return exit_status(self._read(_ERROR), self._take_printed_status(), self.name)

    @override
    def close(self) -> None:
        with suppress(Exception):
            self._stream.close()

    def _read(self, channel: int) -> bytes:
        data = self._stream.read_channel(channel) if self._stream.peek_channel(channel) else b""
        return data if isinstance(data, bytes) else data.encode()

    def _take_printed_status(self) -> str:
        """Remove the line of `_PRINT_STATUS` from its standard error; return the status in it.

        Empty: there is none. The program's own text may stand before it on the line, and stays.
        """
        for index in reversed(range(len(self.err))):
            if match := _ENDED.search(self.err[index]):
                before = self.err[index][: match.start()]
                del self.err[index]
                if before:
                    self.err.insert(index, before)
                return match[1]
        return ""


def _last_status(text: bytes, name: str) -> Object:
    """Return the Status that ends an exec: Success or Failure. Raise LostError for anything else.

    When containerd stops, the API reports neither: programs may keep running, or have more to
    print.
    """
    try:
        status = json.loads(text)
    except ValueError as error:
        raise lost(name, "it exited without a message") from error
    if isinstance(status, dict) and status.get("status") in {"Success", "Failure"}:
        return status
    ending = shorten(text.decode("utf-8", "replace"))
    raise lost(name, f"it exited with {ending}")


def _exit_code(status: Object) -> str:
    """Return the exit code that a Status has; empty: none."""
    details = status.get("details") or {}
    for cause in details.get("causes") or ():
        if cause.get("reason") == "ExitCode":
            return str(cause.get("message") or "")
    return ""


def exit_status(text: bytes, printed: str, name: str) -> int:
    """Return the exit status of a program in a pod, as `printed`, or else in the API's Status.

    `text` is that Status, in JSON. Raise LostError if neither has an exit status, MachineError if
    the program could not be started.
    """
    status = _last_status(text, name)
    reported = printed or _exit_code(status)
    if reported:
        return int(reported)
    if status["status"] == "Success":  # said of a running program, too, when its kubelet stops
        raise lost(name, "the program there did not report its exit")
    message = str(status.get("message") or status.get("reason") or "no reason given")
    why = _REQUEST.sub("", message).rstrip(".")
    if _TRANSIENT.search(why):  # the kubelet was not reached: it may be later
        raise lost(name, why)
    raise MachineError(f"Cannot run a program in the pod {name}: {why}.")


class PodConnection(Transport):
    """One container of a pod."""

    def __init__(
        self,
        api: KubernetesApi,
        pod: str,
        container: str,
        explain_exit: Callable[[str], str] = str,
        *,
        uid: str = "",
    ) -> None:
        """`explain_exit` takes the name of a pod that no longer runs, and says what happened to it.

        Another pod of the same name may replace it: `uid` tells them apart. Empty: any may.
        """
        super().__init__(pod, f"exec {pod}")
        self._api = api
        self._container = container
        self._explain_exit = explain_exit  # str: nothing is known but the name
        self._uid = uid

    @override
    def connect(self) -> None:
        """Raise HostGoneError if the pod does not run, MachineError if the API does not answer."""
        pod: Object = {}
        with suppress(AbsentError):
            pod = self._api.read("Pod", self.name)
        meta = pod.get("metadata", {})
        runs = pod.get("status", {}).get("phase") == "Running"
        replaced = self._uid not in {"", meta.get("uid")}
        if not runs or replaced or meta.get("deletionTimestamp"):
            raise HostGoneError(self._explain_exit(self.name))

    @override
    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float = 30) -> Done:
        if stdin:
            argv = ("sh", "-c", _WITH_STDIN, "sh", str(len(stdin)), *argv)
        return super().run(argv, stdin=stdin, timeout_s=timeout_s)

    @override
    def _start(self, argv: Sequence[str]) -> PodPipe:
        # Any failure is a LostError: who reconnects learns from `connect` whether the pod is gone.
        try:
            self.connect()
            words = ("sh", "-c", _PRINT_STATUS, "sh", *argv)
            stream = self._api.exec(self.name, self._container, words)
        except MachineError as error:
            raise LostError(str(error), hint=error.hint) from error
        return PodPipe(stream, self.name)


def lost(name: str, cause: object) -> LostError:
    """Return the error for a broken connection."""
    why = str(cause).rstrip(".") or type(cause).__name__
    if isinstance(cause, TypeError | AttributeError):
        why = "it was closed"  # the client's socket is None then
    return LostError(
        f"The connection to the pod {name} broke: {why}.",
        hint="Check the pod, its node and the cluster's API.",
    )
