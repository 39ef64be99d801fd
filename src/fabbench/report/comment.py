"""A comparison as a comment on a pull request, or the summary of a build: Markdown of GitHub and GitLab.

The headline and gates are visible, everything else is folded. Strangers may read a comment: directories of
the machine that wrote it are removed from the names of inputs.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from pathlib import PurePath

from fabbench.analysis.compare import Comparison
from fabbench.analysis.gate_results import GateState, Verdict
from fabbench.analysis.headline import headline
from fabbench.model.messages import counted
from fabbench.report.comparison_tables import GATES, gates_table, tables_of_comparison
from fabbench.report.table import Table, cell, escaped, to_markdown

LONGEST = 60_000  # Maximum characters of a comment: GitHub allows 65,536
_MAX_VISIBLE = 8  # Maximum number of visible headlines
_MARKS = {GateState.PASSED: "✅", GateState.FAILED: "❌", GateState.UNTRUSTED: "⚠️"}


def to_comment(comparison: Comparison, verdict: Verdict | None = None, tables: Sequence[Table] = ()) -> str:
    """Write a comparison; `tables` are shown below its own. Ends with a newline."""
    lines = [line for index in range(len(comparison.sections)) if (line := headline(comparison, index))]
    title = "fabbench" if len(lines) > 1 else f"fabbench: {next(iter(lines), 'no figures to show')}"
    notes = lines[:_MAX_VISIBLE] if len(lines) > 1 else []
    more = [f"{counted(len(lines) - _MAX_VISIBLE, 'more table')} below"] if len(lines) > _MAX_VISIBLE else []
    seen = [Table(title=title, header=(), rows=(), notes=[*notes, *more])]
    seen += [gates_table(verdict, _MARKS)] if verdict is not None and verdict.results else []
    others = [each for each in (*tables_of_comparison(comparison, verdict), *tables) if each.title != GATES]
    parts = [*map(to_markdown, seen), *(to_markdown(replace(each, headline="")) for each in others)]
    parts, kept, room = _without_paths(parts, [column.source for column in comparison.columns]), list[str](), LONGEST
    for part in parts:
        room -= len(part)
        if room < 0:
            left = counted(len(parts) - len(kept), "table")
            kept.append(f"Left out for length: {left}. `--format markdown` has all.\n")
            break
        kept.append(part)
    folded = "\n".join(kept[len(seen) :])
    summary = "<details>\n<summary>Figures, notes and what stands out</summary>"
    return "\n".join([*kept[: len(seen)], f"{summary}\n\n{folded}\n</details>\n"])


def _without_paths(texts: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Name inputs that are paths by their last parts, as many as distinguish them."""
    paths = sorted({each for each in sources if "/" in each and not each.startswith("run ")}, key=len, reverse=True)
    short: list[str] = []
    for length in range(1, 1 + max((each.count("/") + 1 for each in paths), default=0)):
        short = [
            ",".join("/".join(PurePath(each).parts[-length:]).lstrip("/") for each in path.split(",")) for path in paths
        ]
        if len({*short}) == len(paths):
            break
    pairs = [(write(path), write(name)) for path, name in zip(paths, short, strict=True) for write in (escaped, cell)]
    return [reduce(lambda known, pair: known.replace(*pair), pairs, text) for text in texts]
