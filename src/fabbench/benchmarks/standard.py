"""Where the parts of a benchmark are: found by their names, and loaded when they are used; and what it measures."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from importlib import import_module
from importlib.resources import files
from typing import Any

from fabbench.benchmarks import Benchmark, Reader
from fabbench.model.compat import override
from fabbench.model.hosts import Host, Needs
from fabbench.model.plan import Proof, Step


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

    @property
    @override
    def help(self) -> str:
        module = sys.modules[type(self).__module__]
        return (files(module) / "help.txt").read_text("utf-8") if hasattr(module, "__path__") else ""

    @override
    def work_type(self) -> type[Any] | None:
        work: type[Any] = getattr(import_module(f"{type(self).__module__}.plan"), f"{type(self).__name__}Work")
        return work


class Work(ABC):
    """What a benchmark measures, with its options: plans get their steps from it."""

    __slots__ = ()

    @property
    @abstractmethod
    def needs(self) -> Needs:
        """What hosts must have."""

    @property
    def together(self) -> bool:
        """Whether the steps of an execution run concurrently."""
        return False

    @abstractmethod
    def planned_sizes(self, hosts: Sequence[Host]) -> tuple[int, ...]:
        """Return the sizes, in bytes, that each log of a complete execution has."""

    @abstractmethod
    def why_unsupported(self, fabric: str, host: Host) -> str:
        """Return a sentence on why `fabric` cannot be measured on `host`; empty if it can."""

    @abstractmethod
    def steps(self, execution: str, fabric: str, hosts: Sequence[Host]) -> tuple[Step, ...]:
        """Return the steps of one execution. Step ids are ``EXECUTION/NAME``."""

    def proof(self, fabric: str, hosts: Sequence[Host]) -> Proof:
        """Return what a log must show: what carried the data. Markers name the device of a step."""
        del hosts
        return Proof(fabric=fabric)
