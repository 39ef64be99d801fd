"""What logs predict at other sizes and numbers of nodes, as sentences and records. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fabbench.analysis.curve import Prediction, predict, predict_nodes, series_of
from fabbench.model.errors import RequestError
from fabbench.model.log import Log
from fabbench.model.units import format_size, parse_size, scale


class Wanted(NamedTuple):
    """What is to be predicted; 0 nodes: those of each log."""

    size: int
    nodes: int


def read_wanted(text: str) -> Wanted:
    """Read ``4G`` or ``4G@32``. Raise RequestError."""
    size, at, nodes = text.partition("@")
    try:
        target = Wanted(parse_size(size), int(nodes) if at else 0)
    except ValueError:
        target = Wanted(0, -1)
    if target.size < 1 or target.nodes < bool(at):
        raise RequestError(f"--predict {text!r} is neither SIZE nor SIZE@NODES.", hint="Such as 4G, or 4G@32.")
    return target


def predictions(logs: Sequence[Log], targets: Sequence[Wanted]) -> Iterator[Mapping[str, object]]:
    """Yield each prediction as plain data, with its sentence as `text`."""
    for target in targets:
        if target.nodes:
            cases = dict.fromkeys((log.benchmark, log.case, log.facts.get("transport")) for log in logs)
            for case in cases:
                of = [log for log in logs if (log.benchmark, log.case, log.facts.get("transport")) == case]
                where = f"{case[1] or case[0]} between {target.nodes} nodes"
                yield _record(where, target, predict_nodes(of, target.size, target.nodes))
        else:
            for log in logs:
                for series in series_of(log)[:1]:
                    yield _record(f"{log.source}: {log.case or log.benchmark}", target, predict(series, target.size))


def _record(where: str, target: Wanted, found: Prediction) -> Mapping[str, object]:
    at, rates = format_size(target.size), scale("B/s", found.rate)
    figures = f"{rates.quantity(found.rate)} (95 %: {rates.text(found.low)} to {rates.quantity(found.high)})"
    said = f"predicted at {at}: {figures}." if not found.refused else f"no prediction at {at}: {found.refused}."
    figure = {"rate": found.rate, "low": found.low, "high": found.high} if not found.refused else {}
    return {
        "size": target.size,
        "nodes": target.nodes or None,
        **figure,
        "refused": found.refused,
        "text": f"{where}: {said}",
    }
