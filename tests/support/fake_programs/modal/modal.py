"""Stands in for the package modal, inside a container.

Plays one rank of an app's clustered function.

    python modal.py APP RANK ADDRESS…

What an app declares is taken without a word; the real package is asked about that in test_modal.py.
"""

import os
import runpy
import sys
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Callable


class Image:
    """Whatever is built, nothing is."""

    @classmethod
    def from_registry(cls, name: str, **options: Any) -> Self:
        del name, options
        return cls()

    def apt_install(self, *words: str | list[str]) -> Self:
        del words
        return self

    entrypoint = uv_pip_install = apt_install


class Secret:
    """Variables of the machine where an app is started; who starts this program sets them."""

    @classmethod
    def from_local_environ(cls, names: list[str]) -> Self:
        assert all(name in os.environ for name in names)
        return cls()


class App:
    """Its functions stay what they are."""

    def __init__(self, name: str, image: Image) -> None:
        del name, image

    def function(self, **options: Any) -> "Callable[[Any], Any]":
        del options
        return lambda function: function

    local_entrypoint = function


def clustered(*, size: int, rdma: bool) -> "Callable[[Any], Any]":
    del size, rdma
    return lambda function: function


class Cluster:
    """The cluster that this program was started in."""

    @classmethod
    def from_context(cls) -> Self:
        return cls()

    def container_rank(self) -> int:
        return int(sys.argv[2])

    def container_ips(self, family: str = "ipv6") -> list[str]:
        assert family == "ipv4"
        return sys.argv[3:]


if __name__ == "__main__":
    sys.modules["modal"] = sys.modules["__main__"]
    # As modal does in its own process: for NCCL, and for nobody whom ssh starts.
    os.environ["NCCL_HOSTID"] = f"modal{sys.argv[3 + int(sys.argv[2])]}"
    app = runpy.run_path(sys.argv[1])
    sys.exit(app["measure"]("all"))
