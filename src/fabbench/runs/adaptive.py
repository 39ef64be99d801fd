"""``--repeat auto``: decides after each repeat whether what was asked is decided."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fabbench.analysis.compare import Comparison
from fabbench.analysis.gate_results import Verdict
from fabbench.analysis.headline import headline_row
from fabbench.analysis.sequential import FIRST_LOOK
from fabbench.analysis.statistics import Difference
from fabbench.model.log import Log
from fabbench.model.units import format_sizes
from fabbench.plan.gates import Gate
from fabbench.plan.request import Adaptive


class Open(NamedTuple):
    """What is undecided, as sentences."""

    asked: Sequence[str]
    besides: Sequence[str] = ()
    """What no repeat is spent on."""


def undecided(comparison: Comparison, gates: Sequence[Gate], verdict: Verdict | None) -> Open:
    """Return what is undecided: the gates that need a baseline or, without such gates, the headlines' sizes."""
    asked, besides = list[str](), list[str]()
    for section in comparison.sections:
        headline = headline_row(section)
        for index, column in enumerate(comparison.columns[:-1]):
            rows = [row for row in section.rows if row.verdict(index) is Difference.UNDECIDED]
            for found, at_headline in ((asked, True), (besides, False)):
                if sizes := [row.size for row in rows if (row is headline) is at_headline]:
                    found.append(f"{section.metric.name} of {column.label} at {format_sizes(sizes)}")
    if verdict is not None and any(gate.needs_baseline for gate in gates):
        return Open(verdict.undecided, (*asked, *besides))
    return Open(asked, besides)


@dataclass(slots=True, kw_only=True)
class StopCondition:
    """Decides after each execution whether a run has measured enough."""

    adaptive: Adaptive
    configurations: int
    undecided: Callable[[Mapping[str, Sequence[Log]]], Open]
    """Returns what is still undecided."""
    notify: Callable[[str], None]
    clock: Callable[[], float] = time.monotonic
    started: float = field(default_factory=time.monotonic)

    def __call__(self, number: int, logs: Mapping[str, Sequence[Log]]) -> bool:
        """Return whether execution `number` was the last one needed."""
        repeats, rest = divmod(number, self.configurations)
        if rest:
            return False
        timed_out = self.adaptive.seconds is not None and self.clock() - self.started >= self.adaptive.seconds
        if repeats < FIRST_LOOK:
            return timed_out
        found = self.undecided(logs)
        if found.asked:
            self.notify(f"Undecided after {repeats} repeats: {'; '.join(found.asked)}")
        else:
            left = f" Left open: {'; '.join(found.besides)}." if found.besides else ""
            self.notify(f"Decided after {repeats} repeats.{left}")
        return timed_out or not found.asked
