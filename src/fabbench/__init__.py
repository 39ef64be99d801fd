"""Benchmark cluster fabrics, and prove which network carried the bytes.

What the command line does, as functions::

    logs = fabbench.parse("nccl.log")                     # read and judge logs
    comparison = fabbench.compare("efa.log", "tcp.log")   # side by side; a table in notebooks
    request = fabbench.request("pingpong", on="local")    # what to measure
    result = fabbench.run(request)                        # measure
    rows = fabbench.frame("nccl.log")                     # pandas

docs/library.md describes them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fabbench.dataframes import frame
    from fabbench.runs.inputs import parse
    from fabbench.runs.library import compare, request
    from fabbench.runs.load_columns import load
    from fabbench.runs.run import run

__version__ = "0.1.0"
__all__ = ["__version__", "compare", "frame", "load", "parse", "request", "run"]


def __getattr__(name: str) -> Any:
    # Imported on first access: pandas alone takes half a second, and --help needs none of them.
    if name == "frame":
        from fabbench.dataframes import frame

        return frame
    if name in {"compare", "request"}:
        from fabbench.runs import library

        return getattr(library, name)
    if name == "load":
        from fabbench.runs.load_columns import load

        return load
    if name == "parse":
        from fabbench.runs.inputs import parse

        return parse
    if name == "run":
        from fabbench.runs.run import run

        return run
    raise AttributeError(f"module 'fabbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
