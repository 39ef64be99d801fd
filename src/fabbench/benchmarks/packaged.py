"""Benchmarks in packages of their own: their modules `reader` and `plan` are loaded when they are used."""

from importlib import import_module
from typing import Any

from fabbench.benchmarks import Benchmark, Reader
from fabbench.model.compat import override


class PackagedBenchmark(Benchmark):
    """One whose class name begins those of its reader and its work; without such a reader, it has a `TABLE`."""

    @override
    def reader(self) -> Reader:
        from fabbench.benchmarks.engine import TableReader

        module: Any = import_module(f"{type(self).__module__}.reader")
        own: type[Reader] | None = getattr(module, f"{type(self).__name__}Reader", None)
        return own() if own is not None else TableReader(module.TABLE)

    @override
    def work_type(self) -> type[Any] | None:
        work: type[Any] = getattr(import_module(f"{type(self).__module__}.plan"), f"{type(self).__name__}Work")
        return work
