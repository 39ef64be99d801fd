"""Benchmark cluster fabrics, and prove which network carried the bytes.

For notebooks: ``fabbench.frame("nccl.log")`` and ``fabbench.pivot(frame)`` give pandas data frames.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fabbench.frames import frame, pivot

__version__ = "0.1.0"
__all__ = ["__version__", "frame", "pivot"]


def __getattr__(name: str) -> Any:
    # pandas takes half a second to load: only those who ask for a frame wait for it.
    if name in {"frame", "pivot"}:
        from fabbench import frames

        return getattr(frames, name)
    raise AttributeError(f"module 'fabbench' has no attribute {name!r}")
