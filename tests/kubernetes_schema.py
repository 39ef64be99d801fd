"""Objects as the client library of Kubernetes sees them."""

from typing import Any

from fabbench.pods.schema import problems

__all__ = ["build", "problems"]


def build(value: Any, model: str) -> Any:
    """Make the client library's own object of a value; ValueError for what must be there and is not."""
    from kubernetes import client

    api: Any = client.ApiClient()
    return api._ApiClient__deserialize(value, model)
