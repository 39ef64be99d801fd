"""The certificate of ``fabbench accept``: its values, and how it is written. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from itertools import chain
from typing import Any

from fabbench import __version__
from fabbench.model.errors import Exit
from fabbench.model.log import METRICS
from fabbench.model.messages import counted
from fabbench.model.units import format_duration, format_ratio, format_size, scale
from fabbench.report.json_contract import to_json
from fabbench.report.junit import document_of, test_case
from fabbench.report.sweep_report import CORDON, cordon_command
from fabbench.report.table import Table, to_csv, write_result
from fabbench.report.templates import rendered

FORMATS = ("markdown", "json", "html", "junit", "ctrf", "terminal")


class State(StrEnum):
    """The result of one rung."""

    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    """It says nothing for certain."""
    NOT_APPLICABLE = "not applicable"
    """The nodes do not have what it tests."""


class Answer(StrEnum):
    """The answer."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    INCOMPLETE = "incomplete"


EXITS: Mapping[Answer, Exit] = {
    Answer.ACCEPTED: Exit.FINE,
    Answer.REJECTED: Exit.BAD_ANSWER,
    Answer.INCOMPLETE: Exit.UNTRUSTED,
}


@dataclass(frozen=True, slots=True)
class FigureResult:
    """One figure of a rung, in the metric's base unit."""

    metric: str
    size: int | None
    """None: the largest that was tested."""
    value: float
    repeats: int = 1
    limit: str = ""
    """What it was judged by, with its source; empty: by nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RungResult:
    """One rung that has ended."""

    name: str
    what: str
    state: State
    why: str = ""
    """A sentence, unless it passed."""
    bad: Mapping[str, str] = field(default_factory=dict)
    """Node, NIC, link or group → why it is bad."""
    nodes: Mapping[str, str] = field(default_factory=dict)
    """Of these, the nodes that later rungs leave out → why."""
    figures: tuple[FigureResult, ...] = ()
    fabric: str = ""
    """What carried the data, as proven."""
    run: str = ""
    """The run of the store that has everything."""
    together: bool = False
    """Whether its figures are of all nodes, which no comparison of nodes judges."""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRecord:
    """What is known of a node."""

    name: str
    instance_type: str = ""
    gpus: int = 0
    gpu_model: str = ""
    nics: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """The answer of a ladder, and all that led to it; documented in docs/accept.md."""

    format: int = 1
    id: str
    level: str
    profile: str
    target: str
    command: tuple[str, ...] = ()
    fabbench: str = __version__
    started: float
    ended: float | None = None
    """None while it is in progress."""
    nodes: tuple[NodeRecord, ...] = ()
    rungs: tuple[RungResult, ...] = ()
    limits: str = ""
    """Where limits come from that are not published."""

    @property
    def bad(self) -> Mapping[str, str]:
        """What is bad → why, each with the first reason."""
        found: dict[str, str] = {}
        for rung in self.rungs:
            for name, why in rung.bad.items():
                found.setdefault(name, why)
        return found

    @property
    def bad_nodes(self) -> Mapping[str, str]:
        """Nodes that are bad, or have a bad NIC → why."""
        return {name: why for rung in reversed(self.rungs) for name, why in rung.nodes.items()}

    @property
    def untested(self) -> Mapping[str, str]:
        """Rung that says nothing for certain → why."""
        open_ends = {each.name: each.why for each in self.rungs if each.state is State.INCOMPLETE}
        if self.ended is None:
            open_ends["the rest"] = f"It has not ended: fabbench accept --resume {self.id}."
        elif not any(each.figures for each in self.rungs):
            open_ends.setdefault("measurements", "Nothing was measured.")
        unjudged = [each.name for each in self.rungs if each.together and not all(one.limit for one in each.figures)]
        if unjudged:
            open_ends["limits"] = (
                f"Nothing says what is normal for {', '.join(unjudged)}. On nodes known to be good, write limits with "
                "--write-thresholds FILE, and pass them with --thresholds FILE."
            )
        return open_ends

    @property
    def verdict(self) -> Answer:
        """The answer: nothing that was not tested is accepted."""
        if any(each.state is State.FAILED for each in self.rungs):
            return Answer.REJECTED
        return Answer.INCOMPLETE if self.untested else Answer.ACCEPTED


# ---------------------------------------------------------------- how it is written

_SHOWN = ("rung", "result", "carried by", "figure", "judged by", "time")


def render_certificate(certificate: Certificate, form: str, *, color: bool = False, width: int | None = None) -> str:
    """Write a certificate in one of `FORMATS`. Ends with a newline."""
    if form == "html":
        return rendered("certificate.html", **page(certificate))
    if form == "junit":
        return junit(certificate)
    if form == "ctrf":
        return to_json(ctrf(certificate))
    shown, document = list(tables(certificate)), partial(certificate_document, certificate)
    return write_result(form, lambda: shown, document, partial(to_csv, shown[0]), color=color, width=width)


def headline(certificate: Certificate) -> str:
    """Return the verdict and its main reason in one line."""
    verdict = certificate.verdict
    nodes = counted(len(certificate.nodes), "node")
    if verdict is Answer.REJECTED:
        return f"Rejected: {', '.join(certificate.bad) or 'see the rungs'}, of {nodes}."
    if verdict is Answer.INCOMPLETE:
        return f"Incomplete: {', '.join(certificate.untested)} not settled on {nodes}."
    return f"Accepted: {nodes}, level {certificate.level}, profile {certificate.profile}."


def tables(certificate: Certificate) -> Iterator[Table]:
    """Yield the rungs, what is bad, and what was not tested."""
    rows, notes = list(map(_row, certificate.rungs)), [f"Limits: {certificate.limits}."] if certificate.limits else []
    yield Table(header=_SHOWN, rows=rows, headline=headline(certificate), notes=notes)
    if bad := certificate.bad:
        yield Table(title="Bad", header=("what", "why"), rows=list(bad.items()))
    if open_ends := certificate.untested:
        yield Table(title="Not tested, or not certain", header=("what", "why"), rows=list(open_ends.items()))
    if nodes := certificate.bad_nodes:
        rows = [(cordon_command(each, name, why),) for each in CORDON for name, why in nodes.items()]
        yield Table(title="To take them out of service", header=("command",), rows=rows)
    without = {each.name: each.why for each in certificate.rungs if each.state is State.NOT_APPLICABLE}
    if without:
        yield Table(title="Does not apply", header=("what", "why"), rows=list(without.items()))


def _row(rung: RungResult) -> tuple[str, ...]:
    limits = dict.fromkeys(figure.limit for figure in rung.figures if figure.limit)
    figures = "; ".join(map(_figure, rung.figures))
    took = format_duration(rung.seconds) if rung.seconds else ""
    return (rung.name, str(rung.state), rung.fabric, figures, "; ".join(limits), took)


def _figure(figure: FigureResult) -> str:
    at = "" if figure.size is None else f" at {format_size(figure.size)}"
    return f"{figure.metric} {_quantity(figure)}{at}"


def _quantity(figure: FigureResult) -> str:
    return scale(METRICS[figure.metric].unit, figure.value).quantity(figure.value)


def certificate_document(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate as plain data; documented in docs/accept.md."""
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(certificate)
    answer = {"verdict": str(certificate.verdict), "bad": certificate.bad, "untested": certificate.untested}
    return {"format": plain.pop("format"), **answer, **plain}


def render_changes(
    old: Certificate, new: Certificate, form: str, *, color: bool = False, width: int | None = None
) -> str:
    """Write what changed between two certificates: nodes, results of rungs, figures. Ends with a newline."""
    table = _changes(old, new)
    document = {"format": 1, "old": certificate_document(old), "new": certificate_document(new)}
    return write_result(form, lambda: [table], lambda: document, partial(to_csv, table), color=color, width=width)


def _changes(old: Certificate, new: Certificate) -> Table:
    rungs = [{each.name: each for each in one.rungs} for one in (old, new)]
    rows = []
    for name in dict.fromkeys(chain(*rungs)):
        pair = [one.get(name) for one in rungs]
        states = [str(each.state) if each else "-" for each in pair]
        figures = [{(figure.metric, figure.size): figure for figure in each.figures} if each else {} for each in pair]
        for key in dict.fromkeys(chain(*figures)) or (("", None),):
            before, after = (known.get(key) for known in figures)
            shown = [_figure(each) if each else "-" for each in (before, after)]
            rows.append((name, *states, *shown, _ratio(before, after)))
    nodes = [{each.name: each for each in one.nodes} for one in (old, new)]
    gone, come = (", ".join(sorted(one.keys() - other.keys())) for one, other in (nodes, nodes[::-1]))
    notes = [f"{word}: {names}." for word, names in (("Gone", gone), ("New", come)) if names]
    for name in sorted(nodes[0].keys() & nodes[1].keys()):
        known, now = (one[name].versions for one in nodes)
        different = [
            f"{key} {known.get(key, '-')} → {now.get(key, '-')}"
            for key in {**known, **now}
            if known.get(key) != now.get(key)
        ]
        notes += [f"{name}: {', '.join(different)}."] if different else []
    return Table(
        headline=f"{old.id} → {new.id}: {old.verdict} → {new.verdict}.",
        header=("rung", "result", "now", "figure", "now", "ratio"),
        rows=rows,
        align="lllllr",
        notes=notes,
    )


def _ratio(old: FigureResult | None, new: FigureResult | None) -> str:
    if old is None or new is None or not old.value or not new.value:
        return "-"
    lower = METRICS[old.metric].lower_is_better
    return format_ratio(old.value / new.value if lower else new.value / old.value)


_WORDS = {
    State.PASSED: ("passed", ""),
    State.FAILED: ("failed", "failure"),
    State.NOT_APPLICABLE: ("skipped", "skipped"),
    State.INCOMPLETE: ("other", "error"),
}
"""State → its word in CTRF, and its element in JUnit."""


def _cases(certificate: Certificate) -> Sequence[RungResult]:
    """Return the rungs, and what keeps the verdict open besides them."""
    names = {each.name for each in certificate.rungs}
    more = {name: why for name, why in certificate.untested.items() if name not in names}
    return (
        *certificate.rungs,
        *(RungResult(name=name, what=name, state=State.INCOMPLETE, why=why) for name, why in more.items()),
    )


def junit(certificate: Certificate) -> str:
    """Write each rung as a test case: failed rungs are failures, incomplete ones errors."""
    cases = [test_case("fabbench.accept", each.name, _WORDS[each.state][1], [each.why]) for each in _cases(certificate)]
    return document_of({"accept": cases}, name=f"fabbench accept {certificate.id}")


def ctrf(certificate: Certificate) -> dict[str, Any]:
    """Return the rungs in the Common Test Report Format."""
    tests = [
        {"name": each.name, "status": _WORDS[each.state][0], "duration": round(1e3 * each.seconds), "message": each.why}
        for each in _cases(certificate)
    ]
    counts = {word: sum(test["status"] == word for test in tests) for word, _ in _WORDS.values()}
    start, stop = (round(1e3 * moment) for moment in (certificate.started, certificate.ended or certificate.started))
    summary = {"tests": len(tests), "pending": 0, **counts, "start": start, "stop": stop}
    tool = {"name": "fabbench", "version": certificate.fabbench}
    return {"results": {"tool": tool, "summary": summary, "tests": tests}}


def page(certificate: Certificate) -> dict[str, Any]:
    """Return the values of the page."""
    moment = datetime.fromtimestamp(certificate.started, UTC)
    facts = {
        "Target": certificate.target,
        "Level": f"{certificate.level}, profile {certificate.profile}",
        "Started": f"{moment:%Y-%m-%d %H:%M} UTC",
        "Took": format_duration((certificate.ended or certificate.started) - certificate.started),
        "Command": " ".join(certificate.command),
    }
    nodes = [
        (
            each.name,
            each.instance_type or "-",
            " × ".join(filter(None, (str(each.gpus), each.gpu_model))),
            ", ".join(each.nics) or "-",
            ", ".join(f"{name} {value}" for name, value in each.versions.items()),
            certificate.bad.get(each.name, "") and "bad",
        )
        for each in certificate.nodes
    ]
    return {
        "title": headline(certificate).rstrip("."),
        "verdict": str(certificate.verdict),
        "facts": facts,
        "tables": list(tables(certificate)),
        "nodes": nodes,
        "version": certificate.fabbench,
    }
