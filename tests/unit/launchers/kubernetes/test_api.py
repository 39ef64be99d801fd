"""The kubeconfig that is named is the one that is read."""

import json
from pathlib import Path

import pytest

from fabbench.launchers.kubernetes.api import (
    UnansweredError,
    client_library,
    open_api,
    translated_errors,
)
from fabbench.model.errors import MachineError, RequestError


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    contexts = [
        {"name": name, "context": {"cluster": "c", "user": "u", **more}}
        for name, more in (("one", {"namespace": "bench"}), ("two", {}))
    ]
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": contexts,
        "current-context": "one",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(json.dumps(document))
    return path


@pytest.mark.parametrize(
    ("context", "namespace", "found"),
    [
        (None, None, ("one", "bench")),
        ("two", None, ("two", "default")),
        ("two", "mine", ("two", "mine")),
    ],
)
def test_the_context_and_its_namespace_are_found(
    kubeconfig: Path, context: str | None, namespace: str | None, found: tuple[str, str]
) -> None:
    api = open_api(kubeconfig, context, namespace)
    assert (api.context, api.namespace) == found
    assert api.configuration.host == "https://127.0.0.1:1"


def test_a_context_that_is_not_there_is_refused(kubeconfig: Path) -> None:
    with pytest.raises(RequestError, match="has no context three"):
        open_api(kubeconfig, "three", None)


def test_a_kubeconfig_that_is_not_there_is_reported(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="No usable kubeconfig found"):
        open_api(tmp_path / "none", None, None)


def test_a_connection_that_tls_ends_is_no_answer() -> None:
    """The client library makes an ApiException of it, with status 0."""
    ended = client_library().client.ApiException(
        status=0, reason="SSLError\n[SSL: UNEXPECTED_EOF] EOF occurred"
    )
    with (
        pytest.raises(
            UnansweredError, match=r"does not answer \(read Pod\): SSLError \[SSL: UNEXPECTED_EOF\]"
        ),
        translated_errors("read Pod"),
    ):
        raise ended
