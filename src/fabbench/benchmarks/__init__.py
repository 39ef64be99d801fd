"""Benchmarks: how each one is started, and how its output is read.

A benchmark is a module (or package) here that ends in ``BENCHMARK: Benchmark = …``; it is
discovered, not listed. It does not know where it runs. Other distributions register theirs in the
entry point group ``fabbench.benchmarks``: docs/add-a-benchmark.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import networks
from fabbench.model.log import METRICS, Line, Marker, Point, Record
from fabbench.model.mappings import distinct
from fabbench.model.plugins import Plugins
from fabbench.model.signature import Signature

if TYPE_CHECKING:
    from fabbench.model.hosts import Host

Reading: TypeAlias = Point | Record
"""What a reader returns as lines arrive.

Points at once, and the full record once its execution has ended.
"""
LogReadings: TypeAlias = Sequence[Reading]

UNREADABLE = "\N{REPLACEMENT CHARACTER}"
"""Ends a fragment of a torn line.

The last characters before it may belong to the host name in NCCL's debug text.
"""

Shortcut: TypeAlias = Callable[[str, int], Sequence[Point] | None]
"""Reads a line, given its text and its number."""


class Reader(Protocol):
    """Reads one benchmark's output from one stream group, executions one after another.

    Lines arrive without prefixes and without NCCL's debug text; a row that debug text tore apart
    arrives in pieces. A reader never raises, whatever the text, and never makes up what it cannot
    read. It does not handle how steps end: `fabbench.logs.stream_group` adds that to the records.
    """

    def feed(self, line: Line) -> LogReadings | None:
        """Read one line.

        None: not a line of this benchmark, and no sign that its output begins here.
        """

    def shortcut(self, rank: str) -> Shortcut | None:
        """Return a fast path for more rows like the last one, of the same rank.

        None if there is none.

        The path is valid until a line is fed. It returns None for what is not clearly such a row,
        and that has to be fed; what it reads counts as fed.
        """
        del rank
        return None

    def doubt_rows(self) -> None:
        """Learn that rows may have lost their label, and be those of a table in another stream."""

    def mark(self, marker: Marker) -> LogReadings:
        """Handle fabbench's own begin and end markers around a step.

        Each step is a record of its own.
        """
        return self.close() if marker.kind == "begin" else ()

    def close(self) -> LogReadings:
        """End the text: return what is left, complete or not.

        The reader can be fed again afterwards.
        """


class Benchmark(ABC):
    """One benchmark program (or family): its name, its reader, and the properties of its figures.

    Subclasses set `name` and define `reader`. Everything else has a default, so that a plug-in
    states only what differs.
    """

    joins_groups: bool = False
    """Whether one execution may print in several stream groups (client, server)."""
    joins_steps: bool = False
    """Whether the steps of one execution are one record, as a pair of programs per size."""
    between_two: bool = False
    """Whether it runs one program at each end, so that ranks and GPUs do not apply."""
    one_scale: bool = False
    """Whether comparisons always show its rates in GB/s with two decimals, as its own tables do."""
    versions: Sequence[str] = (
        "nccl",
        "libfabric",
        "plugin",
        "cuda",
    )
    """Facts that are versions, in output order."""
    python_packages: Sequence[str] = ()
    """What its program needs from PyPI, as pip requirements.

    Modal apps install it into the default image.
    """
    default_metrics: Sequence[str] = tuple(
        dict.fromkeys(("busbw", "bandwidth", "latency", "time", *METRICS))
    )
    """Every metric that it may print, the best to compare by first.

    Names of `fabbench.model.log.METRICS`.

    A gate on any other metric is refused before a run.
    """
    cases_field: str = ""
    """The field of the work that names the cases to run, one or several. Empty: it has one."""
    network_shown: str = ""
    """What makes its programs print what carries the data, to end `With …`. Empty: not known."""
    resolution: Mapping[str, Sequence[float]] = MappingProxyType({})
    """Metric → the steps in which it may be printed, coarsest first, in base units.

    Absent: not rounded.
    """

    # A class may have these three as plain attributes, as any other property of a benchmark.

    @property
    def signatures(self) -> Sequence[Signature]:
        """Lines that identify its output anywhere."""
        return ()

    @property
    def first_words(self) -> Sequence[str]:
        """Words of which every line that the reader has to see first contains one.

        The reader is created for the first such line. Empty: it is created for any line.
        """
        return ()

    @property
    def program_names(self) -> str:
        """A regular expression for its programs' names; a file with one and no result is reported.

        Empty: no file is known by them.
        """
        return ""

    def may_begin(self, text: str) -> bool:
        """Return whether a fresh reader has to see a line: any, if there are no `first_words`.

        Called for every line: it must be fast.
        """
        for word in self.first_words:  # a loop is faster than any() here
            if word in text:
                return True
        return not self.first_words

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in commands and in the contract's `benchmark`."""

    @abstractmethod
    def reader(self) -> Reader:
        """Return a fresh reader."""

    sweep_defaults: Mapping[str, str | tuple[str, ...]] = MappingProxyType({})
    """Field of the work → its default in `fabbench sweep`, as it is written on the command line.

    Empty: it is not swept. A test should take seconds: a sweep runs many.
    """
    sweep_metric: str = ""
    """The metric by which a sweep compares nodes. Empty: the first of the case."""
    summary: str = ""
    """Its description in the list of `fabbench run`: one sentence."""
    help: str = ""
    """The text of `fabbench run NAME --help`, with examples (``Example: …``) at the end."""

    def work_type(self) -> type[Any] | None:
        """Return the dataclass of what it measures (`fabbench.benchmarks.standard.Work`).

        None: it is not run.

        Its fields declare the options of ``fabbench run NAME`` (`fabbench.model.options.option`).
        """
        return None

    def advice(self, work: Any, fabrics: Sequence[str]) -> Sequence[str]:
        """Return advice on a request before hosts are probed.

        Raise RequestError for what can never work.
        """
        del work, fabrics
        return ()

    def each_nic(self, work: Any) -> Any:
        """Return the work changed to measure a host's NICs one by one, where it can choose them."""
        return work

    def nics(self, work: Any, fabric: str, host: "Host") -> Sequence[str]:
        """Return the NICs of a host that a work can measure one by one.

        Empty: it cannot choose.
        """
        del work, fabric, host
        return ()

    def on_nic(self, work: Any, nic: str) -> Any:
        """Return the work changed to measure over one of `nics` on each host.

        The field of the work is `devices`.
        """
        return replace(work, devices=(nic,))

    def is_document(self, head: bytes) -> bool:
        """Return whether a file that begins like this may be its own document, such as JSON."""
        del head
        return False

    def document(self, text: str) -> Record | None:
        """Read such a file as a whole; None if it does not come from this benchmark after all."""
        del text
        return None

    def require_image(self, image: str) -> None:
        """Raise RequestError if a pod image is known to lack the benchmark's programs."""
        from fabbench.catalog.images import images, lacks

        if lacks(image, self.name):
            having_it = [entry.image for entry in images() if self.name in entry.benchmarks.split()]
            public = " or ".join(name for name in having_it if not name.startswith("docker/"))
            hint = (
                f"Pass one with --image{public and ': ' + public}. docs/images.md says what "
                "it needs."
            )
            # The last image of the table may be one that fabbench builds itself.
            built = (
                " fabbench's docker/benchmark builds one."
                if having_it and having_it[-1].startswith("docker/")
                else ""
            )
            raise RequestError(f"The image {image} has no {self.name}.", hint=hint + built)

    def metrics_of(self, case: str) -> Sequence[str]:
        """Return the metrics that a case may print.

        `default_metrics`, unless they depend on the case.
        """
        del case
        return self.default_metrics

    def cases(self, work: Any) -> Sequence[str]:
        """Return the cases that a work runs."""
        names = getattr(work, self.cases_field) if self.cases_field else ""
        return (names,) if isinstance(names, str) else tuple(names)

    def printed_metrics(self, work: Any) -> Sequence[str]:
        """Return every metric that a work may print, those of its first case first."""
        names = (name for case in self.cases(work) for name in self.metrics_of(case))
        return distinct(names)

    def printed_sizes(self, work: Any, hosts: "Sequence[Host]") -> Sequence[int]:
        """Return every size that a work may print; empty: unknown, as without hosts."""
        return work.planned_sizes(hosts) if hosts else ()

    def printed_steps(self, metric: str, largest: float) -> Sequence[float]:
        """Return what a metric is rounded to where it is printed: the coarsest step first.

        `resolution`, unless it depends on the largest number printed. Empty: not known.
        """
        del largest
        return self.resolution.get(metric, ())

    def transports(self, fabric: str) -> frozenset[str]:
        """Return the values of the fact `transport` that prove a fabric, as NCCL names networks.

        Raise RequestError for a fabric that the benchmark never supports.
        """
        return networks(fabric)


class _Unknown(Benchmark):
    name = ""

    @override
    def reader(self) -> Reader:
        raise LookupError("An unknown benchmark has no reader.")


_UNKNOWN: Final = _Unknown()  # stands for a benchmark of which at most the name is known
OF_MPI = (
    "--mca btl_base_verbose 30 --mca opal_common_ofi_verbose 1, UCX_LOG_LEVEL=info or "
    "I_MPI_DEBUG=5, MPI prints it"
)
OF_NCCL = "NCCL_DEBUG=INFO and NCCL_DEBUG_SUBSYS=INIT,NET,ENV, NCCL prints it"
DEFAULT = "nccl"  # the benchmark that machines are checked for if none is named


@cache
def _plugins() -> Plugins[Benchmark]:
    return Plugins(__name__, "BENCHMARK", group="fabbench.benchmarks", protocol=Benchmark)


@cache
def benchmarks() -> Mapping[str, Benchmark]:
    """Return every benchmark by name. One that cannot be loaded causes a PluginWarning."""
    return _plugins().usable()


def runnable(name: str) -> Benchmark:
    """Return a benchmark that can be run.

    Raise RequestError if there is none or it cannot be loaded.
    """
    if name not in _plugins() or not _is_run(_plugins()[name]):
        raise RequestError(
            f"Unknown benchmark {name}.", hint=f"One of {', '.join(runnable_names())}."
        )
    return _plugins()[name]


def runnable_names() -> Sequence[str]:
    """Return the names of the benchmarks that can be run, and of those that cannot be loaded."""
    return sorted(
        name for name in _plugins() if (benchmark := _loaded(name)) is None or _is_run(benchmark)
    )


def swept_names() -> Sequence[str]:
    """Return the names of the benchmarks that `fabbench sweep` supports."""
    return sorted(
        name
        for name in _plugins()
        if (benchmark := _loaded(name)) is not None and benchmark.sweep_defaults
    )


def _loaded(name: str) -> Benchmark | None:
    # None: it cannot be loaded, as a plug-in may fail.
    try:
        return _plugins()[name]
    except RequestError:
        return None


def _is_run(benchmark: Benchmark) -> bool:
    # Only benchmarks that can be run define their own work_type.
    return getattr(type(benchmark), "work_type", None) is not Benchmark.work_type


def benchmark_named(name: str | None) -> Benchmark:
    """Return a benchmark by name; if it is unknown, one with all defaults (logs outlive plug-ins).

    Raise RequestError if it cannot be loaded.
    """
    return _plugins().get(name or "", _UNKNOWN)
