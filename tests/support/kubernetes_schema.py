"""Objects as the client library of Kubernetes sees them."""

from typing import Any

from fabbench.launchers.skypilot.validate_task import schema_problems

__all__ = ["build", "schema_problems"]


def build(value: Any, model: str) -> Any:
    """Make the client library's own object of a value; ValueError for what must be there and is not."""
    from kubernetes import client

    api: Any = client.ApiClient()
    return api._ApiClient__deserialize(value, model)
