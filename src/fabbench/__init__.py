"""Benchmark cluster fabrics, and prove which network carried the bytes.

What the command line does, as functions::

    logs = fabbench.parse("nccl.log")                     # read and judge logs
    columns = fabbench.load("efa.log", "tcp.log")         # runs and logs, as columns
    comparison = fabbench.compare(columns)                # side by side
    result = fabbench.run(request)                        # measure
    table = fabbench.pivot(fabbench.frame("nccl.log"))    # pandas

docs/library.md describes them.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fabbench.analysis.compare import compare
    from fabbench.dataframes import frame, pivot
    from fabbench.runs.inputs import parse
    from fabbench.runs.load_columns import load
    from fabbench.runs.run import run

__version__ = "0.1.0"
__all__ = ["__version__", "compare", "frame", "load", "parse", "pivot", "run"]


def __getattr__(name: str) -> Any:
    # Imported on first access: pandas alone takes half a second, and --help needs none of them.
    if name in {"frame", "pivot"}:
        from fabbench import dataframes

        return getattr(dataframes, name)
    if name == "compare":
        from fabbench.analysis.compare import compare

        return compare
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
