"""Benchmark cluster fabrics, and prove which network carried the bytes."""

__version__ = "0.1.0"
