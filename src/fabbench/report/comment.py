"""A comparison as a comment on a pull request, and as the summary of a build: Markdown of GitHub and GitLab.

The headline and gates are visible, everything else is folded. Strangers may read a comment: directories of
the machine that wrote it are removed from the names of inputs.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from fabbench.analysis.compare import Comparison
from fabbench.analysis.gate_results import GateState, Verdict
from fabbench.analysis.headline import headline
from fabbench.model.messages import counted
from fabbench.report.comparison_tables import GATES, gates_table, tables_of_comparison
from fabbench.report.table import Table, escaped, to_markdown

LONGEST = 60_000  # Maximum characters of a comment: GitHub allows 65,536
_MAX_VISIBLE = 8  # Maximum number of visible headlines
_MARKS = {GateState.PASSED: "✅", GateState.FAILED: "❌", GateState.UNTRUSTED: "⚠️"}


def to_comment(comparison: Comparison, verdict: Verdict | None = None, tables: Sequence[Table] = ()) -> str:
    """Write a comparison; `tables` are shown below its own. Ends with a newline."""
    short = _short_names([column.source for column in comparison.columns])
    others = [each for each in (*tables_of_comparison(comparison, verdict), *tables) if each.title != GATES]
    parts = [to_markdown(_without_paths(_summary(comparison), short))]
    if verdict is not None and verdict.results:
        parts.append(to_markdown(_without_paths(gates_table(verdict, _MARKS), short)))
    folded = [to_markdown(replace(_without_paths(each, short), headline="")) for each in others]
    return "\n".join([*parts, _folded(folded, LONGEST - sum(map(len, parts)))])


def error_comment(sentence: str) -> str:
    """Write a comment on why a command ended early."""
    return f"### fabbench ended early\n\n{escaped(sentence)}\n"


def _summary(comparison: Comparison) -> Table:
    lines = [line for index in range(len(comparison.sections)) if (line := headline(comparison, index))]
    if len(lines) < 2:
        return Table(title=f"fabbench: {next(iter(lines), 'no figures to show')}", header=(), rows=())
    more = [f"{counted(len(lines) - _MAX_VISIBLE, 'more table')} below"] if len(lines) > _MAX_VISIBLE else []
    return Table(title="fabbench", header=(), rows=(), notes=[*lines[:_MAX_VISIBLE], *more])


def _folded(texts: Sequence[str], room: int) -> str:
    kept: list[str] = []
    for text in texts:
        if sum(map(len, kept)) + len(text) > room:
            break
        kept.append(text)
    left = len(texts) - len(kept)
    note = [f"Left out for length: {counted(left, 'table')}. `--format markdown` has all.\n"] if left else []
    inner = "\n".join([*kept, *note])
    return f"<details>\n<summary>Figures, notes and what stands out</summary>\n\n{inner}\n</details>\n"


def _short_names(sources: Sequence[str]) -> dict[str, str]:
    """Return inputs that are paths → their last parts, as many as distinguish them."""
    paths = list(dict.fromkeys(source for source in sources if "/" in source and not source.startswith("run ")))
    for length in range(1, max((len(PurePath(path).parts) for path in paths), default=0) + 1):
        short = {
            path: ",".join("/".join(PurePath(each).parts[-length:]).lstrip("/") for each in path.split(","))
            for path in paths
        }
        if len(set(short.values())) == len(paths):
            return short
    return {}


def _without_paths(table: Table, short: dict[str, str]) -> Table:
    def cut(text: str) -> str:
        for path in sorted(short, key=len, reverse=True):
            text = text.replace(path, short[path])
        return text

    return replace(
        table,
        title=cut(table.title),
        header=list(map(cut, table.header)),
        rows=[list(map(cut, row)) for row in table.rows],
        notes=list(map(cut, table.notes)),
    )
