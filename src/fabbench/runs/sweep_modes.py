"""The modes of ``fabbench sweep``: each has a planner."""

from fabbench.model.log import METRICS
from fabbench.runs.sweep_store import SweepDocument
from fabbench.sweep.diagnose import DiagnosePlanner
from fabbench.sweep.planner import FixedPlanner, Planner
from fabbench.sweep.schedule import all_pairs, matchings

_QUICK_ROUNDS = 3


def planner_of(sweep: SweepDocument) -> Planner:
    """Return the planner of a sweep."""
    nodes = sweep.nodes
    most = len(nodes) - 1 + len(nodes) % 2
    if sweep.mode == "quick":
        rounds = min(_QUICK_ROUNDS, most)
        return FixedPlanner(matchings(nodes, rounds, sweep.seed), most_rounds=rounds)
    return DiagnosePlanner(
        nodes,
        METRICS[sweep.metric],
        group_of=sweep.group_of,
        confidence=sweep.confidence,
        tolerance=sweep.tolerance,
        seed=sweep.seed,
        # What stands out is tested again: one slow test of a pair may be chance.
        screening=all_pairs(nodes) if sweep.mode == "pairs" else None,
    )
