"""The result of a sweep as text: suspects with evidence, the matrix as a heat map, JSON, commands.

Pure.
"""

import re
import shlex
from bisect import bisect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from math import isnan
from typing import TYPE_CHECKING, Any, NamedTuple

from fabbench.model.hostlist import compress_hostlist
from fabbench.model.messages import counted, listed, one_line, single_spaced, with_line_feeds
from fabbench.model.units import Scale, format_decimal, scale
from fabbench.model.values import frozen
from fabbench.report.svg import LETTER, Picture, to_svg_file
from fabbench.report.table import Cells, PlainData, Table, cut, picked, to_csv, write_result
from fabbench.report.templates import rendered
from fabbench.sweep.values import Suspect, SuspectKind

if TYPE_CHECKING:
    from fabbench.model.log import Metric
    from fabbench.sweep.matrix import Matrix
    from fabbench.sweep.values import Diagnosis, NodeGroup

_MAX_TYPICALS = 4  # Maximum number of typical figures in the headline
_LONGEST_NODES = 40  # Maximum length of the nodes of a group


@frozen
class SweepReport:
    """The result of a sweep, and what else is written about it."""

    diagnosis: "Diagnosis"
    metric: "Metric"
    matrix: "Matrix"
    left_out: Sequence[tuple[str, str]] = ()  # Sources without a result, and why
    unfinished: str = ""
    """Tests that were planned and did not take place, as the end of a sentence; empty: none."""


def render_sweep(report: SweepReport, form: str = "markdown", **drawing: Any) -> str:
    """Write the result in one of its `FORMATS`, but as a page. Ends with a newline."""
    if form == "svg":
        return to_svg_file([heat_map(report.matrix, headline(report))])
    suspects = suspects_table(report)
    groups = groups_table(report)
    first, *others = [groups, suspects] if groups.rows else [suspects]
    tables = [replace(first, headline=headline(report)), *others]
    text = write_result(
        form, lambda: tables, lambda: sweep_document(report), lambda: to_csv(suspects), **drawing
    )
    if form == "text":
        text += f"\n{heat_map_text(report.matrix)}"
    elif form == "markdown":
        text += f"\n```text\n{heat_map_text(report.matrix)}```\n"
    return text


def headline(report: SweepReport) -> str:
    """Return the result in a sentence or two."""
    words = {"counted": counted, "listed": listed, "typical": _typical_figures(report)}
    text = rendered("sweep_headline.txt", report=report, diagnosis=report.diagnosis, **words)
    return single_spaced(str(text))


def _typical_figures(report: SweepReport) -> str:
    """Return what tests usually reach, by their kind; empty if there are many kinds."""
    typicals = report.diagnosis.typicals
    if not 0 < len(typicals) <= _MAX_TYPICALS:
        return ""
    unit = scale(report.metric.unit, max(typicals.values()))
    shown: list[str] = []
    for kind, figure in typicals.items():
        quantity = _in_three_digits(figure, unit)
        shown.append(f"{quantity} {kind}".strip())
    return ", ".join(shown)


def _in_three_digits(figure: float, unit: Scale) -> str:
    return unit.quantity(float(format(figure, ".3g")))


def groups_table(report: SweepReport) -> Table:
    """Return the groups that have figures.

    Their own pairs' figure, that of pairs with others, how many times better their own is, and how
    many tests these are.
    """
    groups = [each for each in report.diagnosis.groups if each.inside or each.between]
    if not groups:
        return Table()
    highest = max(each.inside or each.between or 0.0 for each in groups)
    unit = scale(report.metric.unit, highest)

    def quantity(figure: float | None) -> str:
        return _in_three_digits(figure, unit) if figure else "-"

    return Table(
        header=("group", "nodes", "count", "inside", "to others", "factor", "tests"),
        rows=[
            (
                each.name,
                cut(compress_hostlist(each.nodes), _LONGEST_NODES),
                str(len(each.nodes)),
                quantity(each.inside),
                quantity(each.between),
                _factor_cell(each, lower_is_better=report.metric.lower_is_better),
                "{} + {}".format(*each.pairs),  # its own, and with others
            )
            for each in groups
        ],
        align="llrrrrr",
    )


def _factor_cell(group: "NodeGroup", *, lower_is_better: bool) -> str:
    """Return how many times better a group's own pairs are than those with others."""
    if not group.inside or not group.between:
        return "-"
    ratio = group.inside / group.between
    factor = format_decimal(1 / ratio if lower_is_better else ratio, 1)
    return f"{factor}x"


def suspects_table(report: SweepReport) -> Table:
    """Return suspects, the most certain first, then what is undecided, and what to do next."""
    rows = [_suspect_row("bad", each) for each in report.diagnosis.suspects]
    rows += [_suspect_row("undecided", each) for each in report.diagnosis.undecided]
    notes = str(rendered("sweep_notes.txt", diagnosis=report.diagnosis)).splitlines()
    if not rows:
        return Table(notes=notes)
    header = ("verdict", "kind", "name", "confidence", "evidence")
    return Table(header=header, rows=rows, align="lllrl", notes=notes)


def _suspect_row(verdict: str, suspect: Suspect) -> Cells:
    record = _suspect_record(verdict, suspect)
    confidence = confidence_text(suspect.confidence)
    if suspect.kind is SuspectKind.SLOW_GROUP:
        confidence = "-"  # That it is slow is measured: only what that means is undecided
    return record["verdict"], record["kind"], suspect.name, confidence, suspect.evidence


def pairs(matrix: "Matrix") -> Iterator[tuple[str, str, float]]:
    """Yield the pairs of nodes, and their part of the typical figure: see `part_words`."""
    for row, column in combinations(range(len(matrix.names)), 2):
        part = float(matrix.cells[row, column])
        yield matrix.names[row], matrix.names[column], part


def confidence_text(chance: float) -> str:
    """Format a confidence; nothing above 99 % was calibrated, and below 2 % nothing was shown."""
    if chance < _LEAST_CHANCE:
        return "-"
    if chance >= _MOST_CHANCE:
        return "> " + format(_MOST_CHANCE, ".0%")
    return format(min(chance, _MOST_CHANCE - 0.01), ".0%")  # Rounding must not reach 99 %


_LEAST_CHANCE = 0.02
_MOST_CHANCE = 0.99


def sweep_document(report: SweepReport) -> PlainData:
    """Return the result as plain data; documented in docs/sweep.md."""
    diagnosis = report.diagnosis
    return {
        "format": 1,
        **picked(report, "unfinished", metric="metric.name", unit="metric.unit"),
        **picked(
            diagnosis,
            *("nodes", "tests", "contradiction", "out_of_time"),
            required_confidence="required",
        ),
        "spread": diagnosis.spread or None,
        "links": dict(zip(("tested", "all"), diagnosis.links, strict=True)),
        "typical": diagnosis.typicals.get(""),  # of any kind of test, if they are alike
        "typicals": [
            {"of": kind, "figure": figure} for kind, figure in diagnosis.typicals.items() if kind
        ],
        "groups": [_group_record(each) for each in diagnosis.groups],
        "groups_found": diagnosis.groups_found,
        "suspects": [_suspect_record("bad", each) for each in diagnosis.suspects],
        "undecided": [_suspect_record("undecided", each) for each in diagnosis.undecided],
        "failed_once": diagnosis.failed_once,
        "by_chance": [_suspect_record("by chance", each) for each in diagnosis.by_chance],
        "differences": list(diagnosis.differences),
        "left_out": [{"source": source, "reason": reason} for source, reason in report.left_out],
    }


def _group_record(group: "NodeGroup") -> PlainData:
    inside, to_others = group.pairs
    tests = {"inside": inside, "between": to_others}
    return {**picked(group, "name", "nodes", "inside", "between"), "pairs": tests}


def _suspect_record(verdict: str, suspect: Suspect) -> PlainData:
    confidence = min(round(suspect.confidence, 2), _MOST_CHANCE)  # nothing above was calibrated
    kind = suspect.kind.value
    if suspect.kind is SuspectKind.SLOW_GROUP:  # A verdict of its own, neither bad nor undecided
        verdict = kind
        kind = SuspectKind.GROUP.value
    return {
        "verdict": verdict,
        "kind": kind,
        **picked(suspect, "name", "nodes"),
        "confidence": confidence,
        "evidence": suspect.evidence,
        "cannot_run": suspect.cannot_run,
    }


CORDON = ("kubectl", "scontrol")  # Programs that take nodes out of service
# No option, list or range, nor Slurm's word for all.
_NODE_NAME = re.compile(r"(?!(?i:all)$)[A-Za-z0-9][\w.-]*", re.ASCII)


def cordon_commands(diagnosis: "Diagnosis", program: str) -> Iterator[str]:
    """Yield shell commands that take bad nodes out of service.

    What is no fault of a node's hardware gets a comment.
    """
    reasons: dict[str, str] = {}
    comments: list[str] = []
    for suspect in diagnosis.suspects:
        why = _why_no_command(suspect)
        if why:
            name = one_line(suspect.name)
            comments.append(f"# {_kind_in_words(suspect)} {name}: no command; {why}")
            continue
        for node in suspect.nodes:
            reasons.setdefault(node, f"{suspect.kind} {suspect.name}")
    for node, reason in reasons.items():
        yield cordon_command(program, node, reason)
    yield from comments


def _kind_in_words(suspect: Suspect) -> str:
    # A group without nodes is the path between two groups
    is_path = suspect.kind is SuspectKind.GROUP and not suspect.nodes
    return "path" if is_path else suspect.kind.value


def _why_no_command(suspect: Suspect) -> str:
    """Return why no node of a suspect is taken out of service; empty: they are."""
    if suspect.cannot_run:
        return "mend what its tests end with: a missing program, a setting, or its network"
    if suspect.of_all:
        return "all nodes have it: look at its switch"
    # A link, a path between groups, or the uplink of a group
    if suspect.is_between:
        return "its nodes are fine: look at what is between them"
    return ""


def cordon_command(program: str, node: str, reason: str) -> str:
    """Return a shell command that takes a node out of service; `node` may be ``USER@NODE``."""
    node = node.rpartition("@")[2]
    if not _NODE_NAME.fullmatch(node):
        return f"# node {one_line(node)}: no command; this is not the name of one node"
    if program == "kubectl":
        return shlex.join(["kubectl", "cordon", "--", node])
    reason = one_line(f"Reason=fabbench: {reason}")
    return shlex.join(["scontrol", "update", f"NodeName={node}", "State=DRAIN", reason])


# ---------------------------------------------------------------- heat map

MAX_ROWS = 40
MAX_SVG_ROWS = 64
_LEAST_WIDTH = 386  # Of a picture, for four words of the legend in each line
_MAX_WRITTEN = 18  # Up to so many rows, cells have their value and columns their names
_LEVELS = (0.25, 0.5, 0.75, 0.9, 0.95)
_LEVEL_WORDS = ["≥ " + format(level, ".0%") for level in reversed(_LEVELS)]
_LEGEND = (*_LEVEL_WORDS, "less", "failed", "not tested")


def heat_map_text(matrix: "Matrix") -> str:
    """Write a line for each row, with columns in the same order.

    Of four nodes or fewer, a line for each pair.
    """
    values = {"cut": cut, "pairs": pairs(matrix), "words": part_words}
    text = str(rendered("heat.txt", matrix=matrix, **values))
    return with_line_feeds(map(str.rstrip, text.splitlines()))


def heat_map(matrix: "Matrix", title: str) -> Picture:
    """Return a matrix as a picture; a length is in pixels.

    `side` and `head` are the places of the first cell, `across` and `down` the size of each. Those
    with a number written in them are large. Above are the legend and, if tilted, names of columns.
    """
    count = len(matrix.names)
    names = [cut(name, limit=26) for name in matrix.names]
    longest = max(map(len, names), default=0)
    side = 62 + int(LETTER * longest)  # A group has its number of nodes too
    written = count <= _MAX_WRITTEN
    across = 36 if written else 14
    down = 30 if written else 14
    margin = 60 if written else 20
    width = max(side + count * across + margin, _LEAST_WIDTH)
    column_names = 12 + int(4.6 * longest) if written else 8  # Their height: they are tilted
    head = 52 + column_names  # Below two lines of the legend
    drawn = {
        "width": width,
        "height": head + count * down + 16,
        "side": side,
        "head": head,
        "across": across,
        "down": down,
        # The class of each color: see `_color_class`; n: not tested
        "legend": zip("012345xn", _LEGEND, strict=True),
        "names": names,
        "written": written,
        "matrix": matrix,
        "cells": [list(_rectangles(matrix, row, written=written)) for row in range(count)],
    }
    return Picture("heat", [drawn], title)


class _Rectangle(NamedTuple):
    """A cell of the picture."""

    level: str  # The class of its color
    column: int
    title: str  # What it is
    value: str  # What is written in it


def _rectangles(matrix: "Matrix", row: int, *, written: bool) -> Iterator[_Rectangle]:
    """Yield the cells of a row that were tested."""
    node = matrix.names[row]
    for column, part in enumerate(map(float, matrix.cells[row])):
        if not isnan(part):
            title = f"{node}, {matrix.names[column]}: {part_words(part)}"
            value = _percent(part) if written else ""
            yield _Rectangle(_color_class(part), column, title, value)


def _percent(part: float) -> str:
    """Write a part of the typical figure in percent; x: failed."""
    return format(100 * part, ".0f") if part > 0 else "x"


def part_words(part: float) -> str:
    """Say a cell of a matrix in words: a part of the typical figure, 0: failed, NaN: not tested."""
    if isnan(part):
        return "not tested"
    if part <= 0:
        return "failed"
    return format(part, ".0%") + " of typical"


def _color_class(part: float) -> str:
    """Return the color of a cell that was tested: a digit, 0 for the fastest; x failed."""
    if part <= 0:
        return "x"
    return str(len(_LEVELS) - bisect(_LEVELS, part))
