"""Benchmarks: what each one is started with, and how its output is read.

A benchmark is one module (or package) here that ends in ``BENCHMARK: Benchmark = …``; it is found
without editing a list. It does not know where it runs. Other distributions have theirs in the group of entry
points ``fabbench.benchmarks``: docs/add-a-benchmark.md.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias

from fabbench.catalog.images import REPOSITORY
from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.fabrics import networks
from fabbench.model.log import Line, Marker, Point, Record
from fabbench.model.plugins import Plugins

if TYPE_CHECKING:
    from fabbench.model.hosts import Host

Reading: TypeAlias = Point | Record
"""What a reader gives as lines arrive: points at once, and a whole record when its execution has ended."""

UNREADABLE = "\N{REPLACEMENT CHARACTER}"
"""Ends a torn piece of a line whose last characters may belong to the host's name in NCCL's debug text."""
Shortcut: TypeAlias = Callable[[str, int], Sequence[Point] | None]
"""Reads a line, whose number is told."""


class Reader(Protocol):
    """Reads one benchmark's output from one stream group, executions one after another.

    Lines come without prefixes and without NCCL's debug text; a row that debug text tore apart comes in
    pieces. A reader never raises for any text, and never makes up what it cannot read. How steps end is not
    its business: `fabbench.logs.step_endings` adds it to the records.
    """

    def feed(self, line: Line) -> Sequence[Reading] | None:
        """Read one line. None: not one of ours, and no sign that one of ours begins here."""

    def shortcut(self, rank: str) -> Shortcut | None:
        """Return a quick way to read more rows like the last one, of one rank's stream; None: there is none.

        It is good until a line is fed. It gives None for every line that is not plainly such a row, and
        what it reads counts as fed.
        """
        del rank
        return None

    def mark(self, marker: Marker) -> Sequence[Reading]:
        """Take note of fabbench's own begin and end markers around a step: each is a record of its own."""
        return self.close() if marker.kind == "begin" else ()

    def close(self) -> Sequence[Reading]:
        """End of the text: give what is left, whole or not. The reader can be fed again afterwards."""


class Signature(NamedTuple):
    """A line that nothing but one benchmark prints. What stands before it is a launcher's prefix."""

    word: str
    """A word of the line, which is looked for first."""
    pattern: str
    """A regular expression, from the first character that the program prints in the line, blanks apart."""
    begins: bool = True
    """Whether results follow: a banner or a header, and no footer."""


class Benchmark(ABC):
    """One benchmark program (family): its name, its reader, and what is to be known of its figures.

    Subclasses set `name` and have a `reader`. Everything else has a default, so that a plug-in says only what
    is different for it.
    """

    joins_groups: bool = False
    """Whether one execution may print in several stream groups (client, server)."""
    joins_steps: bool = False
    """Whether the steps of one execution are one record, such as a pair of programs for each size."""
    between_two: bool = False
    """Whether it is one program at each end, so that ranks and GPUs do not apply."""
    one_scale: bool = False
    """Whether comparisons always have its rates in GB/s with two decimals, as its own tables do."""
    versions: Sequence[str] = ("nccl", "libfabric", "plugin", "cuda")
    """Facts that are versions, in the order in which they are written."""
    in_default_image: bool = False
    """Whether the default image of pods (`fabbench.catalog.images.DEFAULT`) has its programs."""
    in_built_image: bool = False
    """Whether the image that docker/ builds has them."""
    python_packages: Sequence[str] = ()
    """What its program needs of PyPI, as pip takes it: Modal's apps install it into the default image."""
    signatures: Sequence[Signature] = ()
    """Lines by which its output is known, wherever it stands."""
    first_words: Sequence[str] = ()
    """One of them is in every line with which its reader begins, or of which it takes note before that: the
    reader is made for the first such line. None: it is made for any line."""
    program_names: str = ""
    """A regular expression of its programs' names; a file that has one and no result is remarked on."""
    default_metrics: Sequence[str] = ("busbw", "bandwidth", "latency", "time")
    """The metrics to compare by, the best first, as `fabbench.model.log.METRICS` has them."""
    resolution: Mapping[str, Sequence[float]] = MappingProxyType({})
    """Metric → the steps in which it may be printed, coarsest first, in base units. Without: not rounded."""

    def may_begin(self, text: str) -> bool:
        """Return whether a fresh reader has to see a line. It is asked for every line: it must be quick."""
        for word in self.first_words:
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
    """Field of the work → what `fabbench sweep` has there where no option says otherwise, as it is written.

    Empty: it is not swept. A test is to take seconds: a sweep has many.
    """
    summary: str = ""
    """What `fabbench run` lists it with: one sentence."""
    help: str = ""
    """What `fabbench run NAME --help` says of it, examples (``Example: …``) at the end."""

    def work_type(self) -> type[Any] | None:
        """Return the dataclass of what it measures (`fabbench.plan.request.Work`); None: it is only read.

        Its fields declare the options of ``fabbench run NAME`` (`fabbench.model.options.option`).
        """
        return None

    def advice(self, work: Any, fabrics: Sequence[str]) -> Sequence[str]:
        """Return sentences on a request, before hosts are asked. Raise RequestError for what never works."""
        del work, fabrics
        return ()

    def sweep_metric(self, work: Any) -> str:
        """Return what nodes are compared by in a sweep."""
        del work
        return self.default_metrics[0]

    def each_nic(self, work: Any) -> Any:
        """Return a work that measures the NICs of a host one by one, where it can choose them."""
        return work

    def nics(self, work: Any, fabric: str, host: "Host") -> Sequence[str]:
        """Return the NICs of a host that a work can be measured over one by one; none: it cannot choose."""
        del work, fabric, host
        return ()

    def on_nic(self, work: Any, nic: str) -> Any:
        """Return a work that is measured over one of `nics`, on each host."""
        raise NotImplementedError

    def is_document(self, head: bytes) -> bool:
        """Return whether a file that begins like this seems to be a document, such as JSON, of its own."""
        del head
        return False

    def document(self, text: str) -> Record | None:
        """Read such a file as a whole; None if it is not the benchmark's after all."""
        del text
        return None

    def require_image(self, image: str) -> None:
        """Raise RequestError where an image of pods is known not to have the benchmark's programs."""
        if image.startswith(REPOSITORY) and not self.in_default_image:
            built = " fabbench's docker/ builds one." if self.in_built_image else ""
            raise RequestError(
                f"The image {image} has no {self.name}: it is AWS's image of nccl-tests.",
                hint=f"Specify an image that has {self.name} with --image.{built}",
            )

    def metrics_of(self, case: str) -> Sequence[str]:
        """Return the metrics to compare a case by: `default_metrics`, unless cases differ in it."""
        del case
        return self.default_metrics

    def printed_steps(self, metric: str, largest: float) -> Sequence[float]:
        """Return the steps of a metric: `resolution`, unless it depends on the largest number in question."""
        del largest
        return self.resolution.get(metric, ())

    def transports(self, fabric: str) -> frozenset[str]:
        """Return the values of the fact `transport` that prove a fabric: as NCCL's networks are called here.

        Raise RequestError for a fabric that the benchmark never has.
        """
        return networks(fabric)


class _Unknown(Benchmark):
    """Stands for a benchmark of which only the name is known, or not even that."""

    name = ""

    @override
    def reader(self) -> Reader:
        raise LookupError("An unknown benchmark has no reader.")


_UNKNOWN: Final = _Unknown()
DEFAULT = "nccl"
"""The benchmark that machines are checked for, if none is named."""


@cache
def _plugins() -> Plugins[Benchmark]:
    return Plugins(__name__, "BENCHMARK", group="fabbench.benchmarks", wanted=Benchmark)


@cache
def benchmarks() -> Mapping[str, Benchmark]:
    """Every benchmark there is, by name. One that cannot be loaded is warned of (PluginWarning)."""
    return _plugins().usable()


def runnable(name: str) -> Benchmark:
    """Return a benchmark that can be run. Raise RequestError, also where it cannot be loaded."""
    if name not in _plugins() or not _is_run(_plugins()[name]):
        raise RequestError(f"Unknown benchmark {name}.", hint=f"One of {', '.join(runnable_names())}.")
    return _plugins()[name]


def runnable_names() -> Sequence[str]:
    """Return the names of those that can be run, and of those that cannot be loaded."""
    return sorted(name for name in _plugins() if _may_run(name))


def swept_names() -> Sequence[str]:
    """Return the names of those that `fabbench sweep` has."""
    return sorted(name for name in _plugins() if _is_swept(name))


def _is_swept(name: str) -> bool:
    try:
        return bool(_plugins()[name].sweep_defaults)
    except RequestError:
        return False


def _may_run(name: str) -> bool:
    try:
        return _is_run(_plugins()[name])
    except RequestError:
        return True


def _is_run(benchmark: Benchmark) -> bool:
    """Return whether it has a work, without importing it."""
    return getattr(type(benchmark), "work_type", None) is not Benchmark.work_type


def benchmark_named(name: str | None) -> Benchmark:
    """Return a benchmark by its name; one with every default if there is none (logs outlive plug-ins).

    Raise RequestError for one that cannot be loaded.
    """
    return _plugins().get(name or "", _UNKNOWN)
