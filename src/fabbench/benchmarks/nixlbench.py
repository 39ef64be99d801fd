"""NIXL's nixlbench: transfers of blocks between two agents. Read only: fabbench does not start it."""

from collections.abc import Mapping
from types import MappingProxyType

from fabbench.benchmarks import Benchmark, Signature, engine
from fabbench.benchmarks.consistency import product
from fabbench.model.compat import override
from fabbench.model.patterns import lazy

_CELL = r"\d{1,18}(?:\.\d{1,18})?(?:e[+-]\d\d)?"
_COLUMNS: Mapping[str, engine.Column] = {
    r"blocksize\(b\)": engine.SIZE,
    "batchsize": engine.Column(label="name", cell=engine.COUNT),
    r"avglat\.\(us\)": engine.Column("latency", 1e-6, cell=_CELL),
    r"b/w\(gb/sec\)": engine.Column("bandwidth", 1e9, cell=_CELL),
    r"b/w\([mg]ib/sec\)|networkutil\(%\)": engine.Column(cell=_CELL),
    r"(aggregate)b/w\(gb/sec\)": engine.Column("bandwidth", 1e9, "{}", cell=_CELL),
    r"avg(prep|post|tx)\(us\)": engine.Column("time", 1e-6, "{}", cell=_CELL),
    r"p99(prep|post|tx)\(us\)": engine.Column("time", 1e-6, "p99-{}", cell=_CELL),
}
_NAMES = lazy(r"Batch Size|\S[^()]*\([^)]*\)")
_SETTING = lazy(r"(Backend|Initiator seg type|Target seg type|Op type) \(--[^)]*\)\s*: *(\S+)")


def _statement(text: str, execution: engine.Execution | None) -> engine.Statement | None:
    if text.lstrip().startswith("Block Size (B)"):
        layout = engine.read_columns(_NAMES.findall(text), _COLUMNS)
        return engine.Statement(begins=True, layouts=(layout,), finding=engine.unknown_columns(layout, text))
    if (match := _SETTING.match(text)) is not None:
        return engine.Statement(above=True, facts={match[1].lower().replace(" ", "_"): match[2]})
    return engine.NO_MEANING if execution is not None and text.startswith("-----") else None


def _fits(row: engine.Row) -> bool:
    """Return whether the rate is that of the latency, which is of one block also where there are several pairs."""
    latency, bandwidth = row.main("latency"), row.main("bandwidth")
    if latency is None or bandwidth is None or not row.size:
        return False
    low, high = product(latency, bandwidth)
    return low <= row.size <= high


_TABLE = engine.Table(
    benchmark="nixlbench", program="nixlbench", case="nixlbench", statement=_statement, failed=lazy(r"(?!)"), fits=_fits
)


class Nixlbench(Benchmark):
    """The benchmark ``nixlbench``."""

    name = "nixlbench"
    between_two = True
    versions = ()
    default_metrics = ("bandwidth", "latency", "time")
    resolution = MappingProxyType({"latency": (1e-7,)})
    signatures = (Signature("Block Size (B)", r"Block Size \(B\) +Batch Size +"),)
    first_words = ("Block Size (B)", "Backend (", "seg type (", "Op type (")

    @override
    def reader(self) -> engine.TableReader:
        return engine.TableReader(_TABLE)


BENCHMARK = Nixlbench()
