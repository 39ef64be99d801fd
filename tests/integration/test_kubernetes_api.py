"""What fabbench asks a cluster's API, and what it makes of the answers.

A server that plays them.
"""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from fabbench.launchers.kubernetes import KubernetesOptions, api, launcher, objects
from fabbench.launchers.kubernetes.api import (
    AbsentError,
    AlreadyExistsError,
    ForbiddenError,
    KubernetesApi,
    PodConnection,
    UnansweredError,
    open_api,
)
from fabbench.launchers.kubernetes.discover import list_nodes
from fabbench.launchers.kubernetes.launcher import LAUNCHER as KUBERNETES
from fabbench.launchers.kubernetes.mpijob import MpiJobOptions
from fabbench.launchers.kubernetes.mpijob.launcher import LAUNCHER as MPIJOBS
from fabbench.launchers.kubernetes.objects import PodWatch
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.hosts import Target
from fabbench.remote.transport import Here, LostError
from tests.support.clock import Clock
from tests.support.hosts import processes
from tests.support.pod_objects import node_object, pod_object

Answer = tuple[int, str]
BROKEN: Answer = (0, "")
"""No answer: the connection ends."""


@dataclass
class Server:
    """An API server: its answers by method and path, one after another; the last one stays."""

    api: KubernetesApi
    answers: dict[str, list[Answer]]
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    """Method and path, query, body."""
    words: list[str] = field(default_factory=list)
    """The command of the last exec."""
    tokens: list[str | None] = field(default_factory=list)
    """The header Authorization of each request."""

    def answer(self, method: str, url: str, body: bytes) -> Answer:
        parts = urlsplit(url)
        asked = f"{method} {parts.path}"
        values = parse_qs(parts.query, keep_blank_values=True)
        self.words = values.get("command", [])
        query = {name: first for name, (first, *_) in values.items()}
        self.asked.append((asked, query, json.loads(body) if body else None))
        left = self.answers.get(asked, [status(404, f"{parts.path} not found")])
        return left.pop(0) if len(left) > 1 else left[0]


def status(code: int, message: str) -> Answer:
    return code, json.dumps(
        {"kind": "Status", "status": "Failure", "message": message, "code": code}
    )


def listed(*items: Any, going_on: str = "") -> Answer:
    about = {"resourceVersion": "7", "continue": going_on}
    return 200, json.dumps({"kind": "List", "metadata": about, "items": items})


@contextmanager
def serving(
    folder: Path, answers: dict[str, list[Answer]], user: Mapping[str, Any] | None = None
) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def reply(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            found.tokens.append(self.headers.get("Authorization"))
            code, text = found.answer(self.command, self.path, self.rfile.read(length))
            if (code, text) == BROKEN:
                self.close_connection = True
                return
            self.send_response(code)
            self.send_header("Content-Length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_POST = do_PATCH = do_DELETE = reply  # noqa: N815 - as the library has it

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the library has it
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}
            ],
            "users": [{"name": "u", "user": user or {"token": "t"}}],
            "contexts": [
                {"name": "one", "context": {"cluster": "c", "user": "u", "namespace": "bench"}}
            ],
            "current-context": "one",
        }
        (folder / "kubeconfig").write_text(json.dumps(config))
        found = Server(open_api(folder / "kubeconfig", None, None), answers)
        thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield found
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("text", ["t0ken", "t0ken\n", "t0ken\r\n", " t0ken \n\n"])
def test_a_token_is_sent_without_the_line_break_that_ends_its_file(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "token").write_text(text)
    nodes = {"GET /api/v1/nodes": [listed()]}
    with serving(tmp_path, nodes, {"tokenFile": "token"}) as server:
        for _ in range(2):  # the library reads it anew for each request
            assert list(server.api.objects("Node")) == []
    assert server.tokens == ["Bearer t0ken"] * 2


@pytest.mark.parametrize("text", ["one\ntwo\n", "t\u00f6ken", "a\x07b"])
def test_a_token_that_cannot_be_sent_is_an_error_of_the_kubeconfig(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "token").write_text(text)
    with (
        serving(tmp_path, {}, {"tokenFile": "token"}) as server,
        pytest.raises(MachineError, match="kubeconfig's token") as raised,
    ):
        list(server.api.objects("Node"))
    assert text not in str(raised.value)
    assert server.tokens == []


@pytest.mark.parametrize(
    "text",
    [
        "users: {",
        "[]",
        "",
        json.dumps(
            {
                "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "u", "user": {"tokenFile": "nowhere"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        ),
    ],
)
def test_a_kubeconfig_that_cannot_be_used_is_an_error_of_the_environment(
    tmp_path: Path, text: str
) -> None:
    (tmp_path / "kubeconfig").write_text(text)
    with pytest.raises(MachineError, match="No usable kubeconfig found"):
        open_api(tmp_path / "kubeconfig", None, None)


def test_selectors_are_left_to_the_cluster_and_pages_are_one_list(tmp_path: Path) -> None:
    pages = [listed(node_object("p5", "a"), going_on="more"), listed(node_object("p5", "b"))]
    answers = {"GET /api/v1/nodes": pages, "GET /api/v1/pods": [listed()]}
    with serving(tmp_path, answers) as server:
        assert [node.name for node in list_nodes(server.api, labels="a in (b),!c")] == ["a", "b"]
    nodes = [query for path, query, _ in server.asked if path == "GET /api/v1/nodes"]
    assert [query["labelSelector"] for query in nodes] == ["a in (b),!c"] * 2
    assert [query.get("continue") for query in nodes] == [None, "more"]
    (pods,) = (query for path, query, _ in server.asked if path == "GET /api/v1/pods")
    assert pods["fieldSelector"] == "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"


def test_a_selector_that_the_cluster_cannot_read_is_a_usage_error(tmp_path: Path) -> None:
    refusal = status(400, "unable to parse requirement: found 'b', expected: '('")
    answers = {"GET /api/v1/nodes": [refusal], "GET /api/v1/pods": [listed()]}
    with (
        serving(tmp_path, answers) as server,
        pytest.raises(RequestError, match=r"'a in b'") as error,
    ):
        list_nodes(server.api, labels="a in b")
    assert "expected: '('" in str(error.value)


def test_who_may_not_see_all_pods_sees_those_of_the_namespace(tmp_path: Path) -> None:
    answers = {
        "GET /api/v1/nodes": [listed(node_object("p5", "a"))],
        "GET /api/v1/pods": [status(403, "pods is forbidden")],
        "GET /api/v1/namespaces/bench/pods": [listed()],
    }
    told: list[str] = []
    with serving(tmp_path, answers) as server:
        (node,) = list_nodes(server.api, told.append)
    assert not node.gpus.known
    assert len(told) == 1


@pytest.mark.parametrize(
    ("code", "kind", "expected"),
    [
        (404, AbsentError, r"refuses read Pod: gone"),
        (403, ForbiddenError, r"refuses read Pod: gone"),
        (401, MachineError, r"refuses read Pod: .*"),
        (409, AlreadyExistsError, r"refuses read Pod: gone"),
        (500, UnansweredError, r"refuses read Pod, status 500: gone"),
    ],
)
def test_errors_say_what_was_asked(
    tmp_path: Path, code: int, kind: type[MachineError], expected: str
) -> None:
    answers = {"GET /api/v1/namespaces/bench/pods/x": [status(code, "gone")]}
    with serving(tmp_path, answers) as server, pytest.raises(kind, match=expected):
        server.api.read("Pod", "x")


def test_objects_arrive_as_they_were_written(tmp_path: Path) -> None:
    template = {
        "spec": {"containers": [{"name": "c", "command": ["true"]}], "nodeSelector": {"a.b/c": ""}}
    }
    spec = {"parallelism": 2, "template": template}
    made = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": spec}
    custom = {"kind": "MPIJob", "spec": {"slotsPerWorker": 8, "none": None}}
    jobs, mpijobs = (
        "/apis/batch/v1/namespaces/bench/jobs",
        "/apis/kubeflow.org/v2beta1/namespaces/bench/mpijobs",
    )
    options = {"propagationPolicy": "Background", "gracePeriodSeconds": 0}
    fine = [(200, "{}")]
    answers = {
        f"POST {jobs}": fine,
        f"POST {mpijobs}": fine,
        f"PATCH {jobs}/x": fine,
        f"DELETE {jobs}/x": fine,
    }
    with serving(tmp_path, answers) as server:
        server.api.create("Job", made)
        server.api.create("MPIJob", custom)
        server.api.patch("Job", "x", {"spec": {"activeDeadlineSeconds": 9}})
        server.api.delete("Job", "x", options)
    assert server.asked == [
        (f"POST {jobs}", {"fieldValidation": "Strict"}, made),
        (f"POST {mpijobs}", {"fieldValidation": "Strict"}, custom),
        (f"PATCH {jobs}/x", {}, {"spec": {"activeDeadlineSeconds": 9}}),
        (f"DELETE {jobs}/x", {}, options),
    ]


def test_an_object_is_made_once_where_the_connection_breaks(tmp_path: Path) -> None:
    jobs = "/apis/batch/v1/namespaces/bench/jobs"
    job = {"kind": "Job", "metadata": {"name": "x"}}
    there = status(409, 'jobs "x" already exists')
    made = {**job, "metadata": {"name": "x", "uid": "7"}}
    answers = {f"POST {jobs}": [BROKEN, there], f"GET {jobs}/x": [(200, json.dumps(made))]}
    with serving(tmp_path, answers) as server:
        assert server.api.create("Job", job) == made
        with pytest.raises(AlreadyExistsError, match="already exists"):
            server.api.create("Job", job)


def test_a_connection_that_stays_broken_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "time", Clock())
    jobs = "POST /apis/batch/v1/namespaces/bench/jobs"
    with serving(tmp_path, {jobs: [BROKEN]}) as server:
        with pytest.raises(UnansweredError, match="does not answer"):
            server.api.create("Job", {"kind": "Job", "metadata": {"name": "x"}})
        assert len(server.asked) > 1


def test_the_operator_is_found_by_what_the_cluster_serves(tmp_path: Path) -> None:
    served = [(200, json.dumps({"resources": [{"name": "mpijobs"}, {"name": "mpijobs/status"}]}))]
    with serving(tmp_path, {"GET /apis/kubeflow.org/v2beta1": served}) as server:
        MPIJOBS.require(server.api, MpiJobOptions())
        server.answers.clear()
        with pytest.raises(MachineError, match="has no MPIJobs"):
            MPIJOBS.require(server.api, MpiJobOptions())


def test_pods_are_watched_from_what_was_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_RETRY_S", 0.05)

    def pod(name: str, phase: str) -> dict[str, Any]:
        return {
            "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "9"},
            "status": {"phase": phase},
        }

    events = [
        {"type": "MODIFIED", "object": pod("a", "Failed")},
        {"type": "ADDED", "object": pod("b", "Pending")},
    ]
    stream = (200, "".join(f"{json.dumps(event)}\n" for event in events))
    expired = (
        200,
        json.dumps(
            {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "old"}}
        )
        + "\n",
    )
    # A list and a watch, one after another: the watch that has expired begins again with a list.
    answers = {
        "GET /api/v1/namespaces/bench/pods": [
            listed(pod("a", "Running")),
            expired,
            listed(),
            stream,
            listed(),
        ]
    }
    with serving(tmp_path, answers) as server:
        seen = PodWatch(server.api, "fabbench/run=x")
        seen.start()
        assert processes.eventually(lambda: "uid-b" in seen.last, 60)
        seen.stop()
    assert seen.last["uid-a"]["status"]["phase"] == "Failed"
    queries = [query for _, query, _ in server.asked]
    assert {query["labelSelector"] for query in queries} == {"fabbench/run=x"}
    assert [query.get("watch", "").lower() for query in queries[:4]] == ["", "true", "", "true"]
    assert queries[1]["resourceVersion"] == "7"


def test_exec_asks_for_all_words_and_says_why_it_was_refused(tmp_path: Path) -> None:
    pod = "GET /api/v1/namespaces/bench/pods/p"
    answers = {
        pod: [(200, json.dumps({"status": {"phase": "Running"}}))],
        f"{pod}/exec": [status(403, "pods is forbidden")],
    }
    with serving(tmp_path, answers) as server, pytest.raises(LostError, match="403"):
        PodConnection(server.api, "p", "c").open(("echo", "a b", "a b"))
    (_, (asked, query, _)) = server.asked
    assert asked == f"{pod}/exec"
    assert query == {
        "container": "c",
        "stdin": "true",
        "stdout": "true",
        "stderr": "true",
        "command": "sh",
    }
    assert server.words[-3:] == ["echo", "a b", "a b"]


PODS = "GET /api/v1/namespaces/bench/pods"


@pytest.fixture
def watched(tmp_path: Path) -> Target:
    options = KubernetesOptions(kubeconfig=tmp_path / "kubeconfig", pod="app=job")
    return Target(name="kubernetes", launcher="kubernetes", options=options)


def jobs_pod(node: str, name: str, phase: str = "Running") -> dict[str, Any]:
    made = pod_object(node, {}, phase=phase)
    made["metadata"]["name"] = name
    return made


def test_running_pods_with_labels_are_watched(tmp_path: Path, watched: Target) -> None:
    """None answers here; so nobody knows that two see the same NICs."""
    found = [jobs_pod(*each) for each in (("n1", "a"), ("n2", "b"), ("n2", "c"))]
    found.append(jobs_pod("n3", "d", "Pending"))
    with serving(tmp_path, {PODS: [listed(*found), listed()]}) as server:
        with KUBERNETES.connections(watched, 0) as connections:
            names = {name: each.name for name, each in connections.items()}
        with (
            pytest.raises(MachineError, match="No pod with app=job runs in bench"),
            KUBERNETES.connections(watched, 0),
        ):
            pass
    assert names == {"n1/a": "a", "n2/b": "b", "n2/c": "c"}
    (_, query, _) = server.asked[0]
    assert query["labelSelector"] == "app=job"
    assert query["fieldSelector"] == "status.phase!=Succeeded,status.phase!=Failed"


def test_of_pods_that_see_the_same_nics_one_is_watched(
    tmp_path: Path, watched: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lists them is a real shell: that of this machine, for all pods."""
    monkeypatch.setattr(PodConnection, "run", lambda _, argv: Here("here").run(argv))
    found = [jobs_pod(*each) for each in (("n1", "a"), ("n2", "b"), ("n2", "c"))]
    with (
        serving(tmp_path, {PODS: [listed(*found)]}),
        KUBERNETES.connections(watched, 0) as connections,
    ):
        assert {*connections} == {"n1/a", "n2/c"}


def test_pods_that_start_later_are_waited_for(
    tmp_path: Path,
    watched: Target,
    monkeypatch: pytest.MonkeyPatch,
    logged: list[str],
) -> None:
    monkeypatch.setattr(launcher, "_LOOK_S", 0.01)
    later = [
        listed(),
        listed(jobs_pod("n1", "a", "Pending")),
        listed(jobs_pod("n1", "a"), jobs_pod("", "b", "Pending")),
        listed(jobs_pod("n1", "a"), jobs_pod("n2", "b")),
    ]
    with (
        serving(tmp_path, {PODS: later}),
        KUBERNETES.connections(watched, 60) as connections,
    ):
        assert {*connections} == {"n1/a", "n2/b"}
    told = [each for each in logged if each.startswith("Pods with app=job")]
    assert [each.rpartition(": ")[2] for each in told] == ["0 of 0.", "0 of 1.", "1 of 2."]
