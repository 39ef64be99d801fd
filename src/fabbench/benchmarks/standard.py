"""Where the parts of a benchmark are: found by their names, and loaded when they are used."""

import sys
from importlib import import_module
from typing import Any

from fabbench.benchmarks import Benchmark, Reader
from fabbench.model.compat import override


class ReadBenchmark(Benchmark):
    """One whose class name begins that of its reader, in its module or the package's module `reader`; or TABLE is."""

    @override
    def reader(self) -> Reader:
        from fabbench.benchmarks.engine import TableReader

        module: Any = sys.modules[type(self).__module__]
        module = import_module(f"{module.__name__}.reader") if hasattr(module, "__path__") else module
        own: type[Reader] | None = getattr(module, f"{type(self).__name__}Reader", None)
        return own() if own is not None else TableReader(module.TABLE)


class RunBenchmark(ReadBenchmark):
    """One that can be run: the package's module `plan` has its work, which is named after it, too."""

    @override
    def work_type(self) -> type[Any] | None:
        work: type[Any] = getattr(import_module(f"{type(self).__module__}.plan"), f"{type(self).__name__}Work")
        return work
