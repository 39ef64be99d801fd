"""``--repeat auto``: after each repeat, whether everything that is asked for is decided."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fabbench.analysis.compare import Comparison
from fabbench.analysis.gate import Gate
from fabbench.analysis.gate_results import Verdict
from fabbench.analysis.sequential import FIRST_LOOK
from fabbench.analysis.statistics import Difference
from fabbench.model.log import Log
from fabbench.model.units import format_sizes
from fabbench.plan.request import Adaptive


def undecided(comparison: Comparison, gates: Sequence[Gate], verdict: Verdict | None) -> tuple[str, ...]:
    """Return what is not decided: of gates that need a baseline, and without one of all verdicts."""
    if verdict is not None and any(gate.needs_baseline for gate in gates):
        return verdict.undecided
    found = []
    for section in comparison.sections:
        for index, column in enumerate(comparison.columns[:-1]):
            sizes = [row.size for row in section.rows if row.verdict(index) is Difference.UNDECIDED]
            if sizes:
                found.append(f"{section.metric.name} of {column.label} at {format_sizes(sizes)}")
    return tuple(found)


@dataclass(slots=True, kw_only=True)
class Enough:
    """Says after each execution whether a run has measured enough."""

    adaptive: Adaptive
    configurations: int
    undecided: Callable[[Mapping[str, Sequence[Log]]], Sequence[str]]
    """Returns what is not decided yet."""
    notify: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.clock()

    def __call__(self, number: int, logs: Mapping[str, Sequence[Log]]) -> bool:
        """Return whether the execution of this number was the last that it takes."""
        repeats, rest = divmod(number, self.configurations)
        if rest:
            return False
        late = self.adaptive.seconds is not None and self.clock() - self.began >= self.adaptive.seconds
        if repeats < FIRST_LOOK:
            return late
        left = self.undecided(logs)
        if left:
            self.notify(f"Undecided after {repeats} repeats: {'; '.join(left)}")
        else:
            self.notify(f"Decided after {repeats} repeats.")
        return late or not left
