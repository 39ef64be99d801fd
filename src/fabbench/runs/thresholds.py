"""The limits of ``fabbench accept``, in a file: what the figures of each rung must reach."""

from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import yaml

from fabbench.benchmarks import runnable
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.log import METRICS
from fabbench.model.units import format_size, scale
from fabbench.plan.gates import parse_gates
from fabbench.report.certificate import ALL, Certificate, State
from fabbench.runs.document import writing
from fabbench.runs.ladder import INTERFERENCE, SOAK, every_rung

MARGIN = 0.1
"""How much worse than a good run nodes may be, where its figures become thresholds."""


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What figures must reach: the document of ``--thresholds``."""

    rungs: Mapping[str, tuple[str, ...]]
    """Rung → gates."""
    source: str = ""
    """Where they come from, for people."""


def write_thresholds(file: Path, certificate: Certificate, notify: Callable[[str], None]) -> None:
    """Write limits from the figures of a ladder that found nothing bad: `MARGIN` worse than these."""
    if certificate.state is State.FAILED:
        notify("No thresholds were written: something is bad. Write them on healthy nodes.")
        return
    rungs: dict[str, list[str]] = {}
    for rung in certificate.rungs:
        for figure in rung.figures if rung.name not in {SOAK, INTERFERENCE} else ():
            at = "" if figure.size is None else f"@{format_size(figure.size)}"
            lower, unit = METRICS[figure.metric].lower_is_better, METRICS[figure.metric].unit
            bound = figure.value * (1 + MARGIN if lower else 1 - MARGIN)
            limit = f"{figure.metric}{at}{'<=' if lower else '>='}{scale(unit, bound).quantity(bound)}"
            rungs.setdefault(rung.name, []).append(limit.replace(" ", ""))
    source = f"certificate {certificate.id}, minus {100 * MARGIN:g} %"
    with writing(file):
        file.write_text(yaml.safe_dump({"source": source, "rungs": rungs}, sort_keys=False), "utf-8")


def read_thresholds(file: Path) -> Limits:
    """Read limits. Raise MachineError if they cannot be read, RequestError for an invalid one."""
    try:
        limits = msgspec.convert(yaml.safe_load(file.read_text("utf-8")), Limits)
    except OSError as error:
        raise MachineError(f"{file} cannot be read: {error.strerror}.") from error
    except (ValueError, yaml.YAMLError, msgspec.ValidationError) as error:
        hint = "fabbench accept --write-thresholds FILE writes one."
        raise RequestError(f"{file} is no file of thresholds: {' '.join(str(error).split())}.", hint=hint) from None
    known = _limited()
    for name, gates in limits.rungs.items():
        if name not in known:
            raise RequestError(f"{file}: no limits can be for {name}.", hint=f"Limits are for {', '.join(known)}.")
        for gate in parse_gates(gates):
            sized = gate.sizes is not None or gate.needs_ceiling
            if (
                gate.metric.name not in known[name]
                or gate.needs_baseline != (name == INTERFERENCE)
                or (sized and name in {"pairs", "rails"})
            ):
                form = ":PERCENT%" if name == INTERFERENCE else "[@SIZE]>=LIMIT" if name.startswith(ALL) else ">=LIMIT"
                hint = f"{name} takes METRIC{form} of {', '.join(known[name])}."
                raise RequestError(f"{file}: {gate.text} has no effect in {name}.", hint=hint)
    return limits


def _limited() -> Mapping[str, set[str]]:
    """Return the rungs that limits can be for → the metrics that they may measure."""
    found: dict[str, set[str]] = {}
    for rung in every_rung():
        benchmark = runnable(rung.benchmark)
        metrics = benchmark.printed_metrics(rung.work)
        compared = [benchmark.sweep_metric or metrics[0]] if rung.mode else metrics
        found.setdefault(rung.name, set()).update(compared)
        if rung.name.startswith(ALL):
            found.setdefault(INTERFERENCE, {"ratio"}).update(compared)
    return found
