"""``--repeat auto``: decides after each repeat whether all requested verdicts are decided."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fabbench.analysis.compare import Comparison
from fabbench.analysis.gate_results import Verdict
from fabbench.analysis.sequential import FIRST_LOOK
from fabbench.analysis.statistics import Difference
from fabbench.model.log import Log
from fabbench.model.units import format_sizes
from fabbench.plan.gates import Gate
from fabbench.plan.request import Adaptive


def undecided(comparison: Comparison, gates: Sequence[Gate], verdict: Verdict | None) -> tuple[str, ...]:
    """Return what is undecided: the gates that need a baseline or, without such gates, all verdicts."""
    if verdict is not None and any(gate.needs_baseline for gate in gates):
        return verdict.undecided
    sentences = []
    for section in comparison.sections:
        for index, column in enumerate(comparison.columns[:-1]):
            sizes = [row.size for row in section.rows if row.verdict(index) is Difference.UNDECIDED]
            if sizes:
                sentences.append(f"{section.metric.name} of {column.label} at {format_sizes(sizes)}")
    return tuple(sentences)


@dataclass(slots=True, kw_only=True)
class StopCondition:
    """Decides after each execution whether a run has measured enough."""

    adaptive: Adaptive
    configurations: int
    undecided: Callable[[Mapping[str, Sequence[Log]]], Sequence[str]]
    """Returns what is still undecided."""
    notify: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    started: float = field(init=False)

    def __post_init__(self) -> None:
        self.started = self.clock()

    def __call__(self, number: int, logs: Mapping[str, Sequence[Log]]) -> bool:
        """Return whether execution `number` was the last one needed."""
        repeats, rest = divmod(number, self.configurations)
        if rest:
            return False
        timed_out = self.adaptive.seconds is not None and self.clock() - self.started >= self.adaptive.seconds
        if repeats < FIRST_LOOK:
            return timed_out
        open_questions = self.undecided(logs)
        if open_questions:
            self.notify(f"Undecided after {repeats} repeats: {'; '.join(open_questions)}")
        else:
            self.notify(f"Decided after {repeats} repeats.")
        return timed_out or not open_questions
