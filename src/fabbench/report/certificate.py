"""The certificate of ``fabbench accept``: its values, and how it is written. Pure."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from enum import StrEnum
from functools import partial
from typing import Any

from fabbench import __version__
from fabbench.model.errors import Exit, Fault, gravest
from fabbench.model.hostlist import compress_hostlist, expand_hostlist
from fabbench.model.hosts import Hosts
from fabbench.model.ids import dated_id
from fabbench.model.log import METRICS
from fabbench.model.mappings import Names, Reasons, gathered
from fabbench.model.messages import counted, tally, with_remark
from fabbench.model.plan import Words
from fabbench.model.units import format_duration, format_quantity, format_size
from fabbench.model.values import frozen
from fabbench.report.sweep_report import CORDON, cordon_command
from fabbench.report.table import Cells, PlainData, Table, write_result
from fabbench.report.templates import rendered

ALL = "all:"
"""How the names of rungs on all nodes together begin.

Only limits judge these, no comparison of nodes does.
"""


class State(StrEnum):
    """The result of a rung, and of all of them."""

    PASSED = "passed"
    FAILED = "failed"
    INCOMPLETE = "incomplete"  # It says nothing for certain
    NOT_APPLICABLE = "not applicable"  # The nodes do not have what it tests


_CERTAIN = frozenset({State.PASSED, State.FAILED})
_OF_NICS = frozenset({"nics", "rails"})
"""Rungs that test each NIC."""
VERDICTS = {
    State.PASSED: "accepted",
    State.FAILED: "rejected",
    State.INCOMPLETE: "incomplete",
}
EXITS = {
    State.PASSED: Exit.FINE,
    State.FAILED: Exit.BAD_ANSWER,
    State.INCOMPLETE: Exit.UNTRUSTED,
}


@frozen
class RungFigure:
    """One figure of a rung, in the metric's base unit."""

    metric: str
    size: int | None  # None: the largest that was tested
    value: float
    repeats: int = 1

    @property
    def what(self) -> str:
        """Return the metric and the size."""
        if self.size is None:
            return self.metric
        size = format_size(self.size)
        return f"{self.metric} at {size}"

    def __str__(self) -> str:
        """Return the value with its unit."""
        return format_quantity(self.value, METRICS[self.metric].unit)


@frozen
class RungResult:
    """One rung that has ended."""

    name: str
    what: str
    state: State
    why: str = ""  # A sentence, unless it passed
    bad: Reasons = field(default_factory=dict)  # Node, NIC, link or group → why it is bad
    # Of these, the nodes that later rungs leave out → why
    nodes: Reasons = field(default_factory=dict)
    # Nodes that later rungs leave out although nothing says that they are bad → why
    left_out: Reasons = field(default_factory=dict)
    fault_class: Fault | None = None  # What has to be mended, unless it passed; None: not known
    figures: tuple[RungFigure, ...] = ()
    limits: tuple[str, ...] = ()  # What the figures were judged by, besides those of other nodes
    sources: tuple[str, ...] = ()  # Where the limits are from
    doubts: tuple[str, ...] = ()  # Sentences: what is not certain, whatever the state
    fabric: str = ""  # What carried the data, as proven
    run: str = ""  # The run of the store that has everything
    seconds: float = 0.0


_WRITE_LIMITS = (
    "Write them on good nodes with --write-thresholds FILE, and pass them with --thresholds FILE."
)


def _nics_of(node: str, suspects: Iterable[str]) -> Iterator[str]:
    """Yield the NICs of a node among suspects, which are NODE:NIC or NODES:NIC."""
    for suspect in suspects:
        nodes, colon, nic = suspect.rpartition(":")
        if colon and node in expand_hostlist(nodes):
            yield nic


def _first_reasons(rungs: Iterable[Reasons]) -> Reasons:
    """Return what rungs name → why, each with its first reason."""
    reasons: dict[str, str] = {}
    for named in rungs:
        for name, why in named.items():
            reasons.setdefault(name, why)
    return reasons


@frozen
class Certificate:
    """The answer of a ladder, and all that led to it; documented in docs/accept.md."""

    format: int = 1
    id: str = field(default_factory=dated_id)
    level: str
    profile: str
    target: str
    command: Words = ()
    fabbench: str = __version__
    started: float = field(default_factory=time.time)
    ended: float | None = None  # None while it is in progress
    nodes: Hosts = ()
    rungs: tuple[RungResult, ...] = ()
    limits: str = ""  # The file of limits, if there is one

    @property
    def hosts(self) -> Names:
        """The names of the nodes."""
        return tuple(node.name for node in self.nodes)

    @property
    def status(self) -> Exit:
        """The exit status of the answer."""
        return EXITS[self.state]

    @property
    def results(self) -> Mapping[str, RungResult]:
        """Rung → its result."""
        return {each.name: each for each in self.rungs}

    @property
    def bad(self) -> Reasons:
        """What is bad → why, each with the first reason."""
        return _first_reasons(each.bad for each in self.rungs)

    @property
    def bad_nodes(self) -> Reasons:
        """Nodes that are bad, or have a bad NIC → why."""
        return _first_reasons(each.nodes for each in self.rungs)

    @property
    def left_out(self) -> Reasons:
        """Nodes that rungs leave out, bad or not → why."""
        others = _first_reasons(each.left_out for each in self.rungs)
        return {**others, **self.bad_nodes}

    @property
    def fault_class(self) -> Fault | None:
        """What has to be mended: where something is bad that, else where nothing is certain."""
        return gravest(each.fault_class for each in self.rungs if each.state is self.state)

    @property
    def untested(self) -> Reasons:
        """Rung that says nothing for certain → why."""
        open_ends = {each.name: each.why for each in self._incomplete_rungs()}
        if self.ended is None:  # it was interrupted, or goes on
            open_ends["the rest"] = f"It has not ended: fabbench accept --resume {self.id}."
        elif not any(each.figures for each in self.rungs):
            open_ends.setdefault("measurements", "Nothing was measured.")
        unjudged = ", ".join(self._names_of_unjudged())
        if unjudged:
            open_ends["limits"] = f"No limits say what is normal for {unjudged}. {_WRITE_LIMITS}"
        return open_ends

    @property
    def verdicts(self) -> Mapping[str, PlainData]:
        """Each node → its `answer` (bad, not settled, passed, not tested), `why`, and `nics`."""
        devices = {each.name: each.devices for each in self.nodes}
        names = {**devices, **self.left_out}
        return {name: self._verdict_on(name, devices.get(name, ())) for name in names}

    def _verdict_on(self, node: str, devices: Iterable[str]) -> PlainData:
        # Why it was left out; a failure of all nodes together settles none of them
        why = self.left_out.get(node) or self.bad.get("all nodes", "")
        measured = any(each.figures for each in self.rungs)
        answer = "passed" if measured else "not tested"
        if why:
            answer = "bad" if node in self.bad_nodes else "not settled"
        nics = dict.fromkeys(devices, "not tested")
        # They passed if a rung of NICs came to a result before, or when, the node was left out
        for rung in self.rungs:
            if rung.name in _OF_NICS and rung.state in _CERTAIN:
                nics = dict.fromkeys(devices, "passed")
            if node in {**rung.nodes, **rung.left_out}:  # later rungs do without it
                break
        bad = filter(nics.__contains__, _nics_of(node, self.bad))
        return {"answer": answer, "why": why, "nics": nics | dict.fromkeys(bad, "bad")}

    def _incomplete_rungs(self) -> list[RungResult]:
        return [each for each in self.rungs if each.state is State.INCOMPLETE]

    def _names_of_unjudged(self) -> Iterator[str]:
        """Yield rungs that passed only because nothing judges their figures."""
        # Of all nodes together only limits judge; of others, the figures of other nodes too.
        alone = len(self.nodes) < 2  # and so there is no other node to compare with
        for each in self.rungs:
            if each.state is not State.PASSED or each.limits:
                continue
            if each.name.startswith(ALL) or (alone and each.figures):
                yield each.name

    @property
    def open(self) -> bool:
        """Whether something is left to test."""
        return self.ended is None or bool(self._incomplete_rungs())

    @property
    def state(self) -> State:
        """The answer: nothing that was not tested is accepted."""
        if self.bad:
            return State.FAILED
        return State.INCOMPLETE if self.untested else State.PASSED

    @property
    def verdict(self) -> str:
        """The answer, in the word for nodes."""
        return VERDICTS[self.state]

    @property
    def headline(self) -> str:
        """The answer and its main reason in one line."""
        verdict = self.verdict.capitalize()
        reason = self._main_reason()
        return f"{verdict}: {reason}."

    def _main_reason(self) -> str:
        nodes = counted(len(self.nodes), "node")
        if self.state is State.FAILED:
            bad = ", ".join(self.bad)
            are = "are" if " " in bad else "is"  # A blank is between two names, or in `all nodes`
            verdicts = self.verdicts.items()
            passed = [name for name, verdict in verdicts if not verdict["why"]]
            others = f"; {compress_hostlist(passed)} passed what was tested" if passed else ""
            return f"{bad} {are} bad{others}"
        if self.state is State.INCOMPLETE:
            return f"{nodes}, not settled: " + ", ".join(self.untested)
        return f"{nodes}, level {self.level}, profile {self.profile}"


# ---------------------------------------------------------------- how it is written


def render_certificate(certificate: Certificate, form: str, **how: Any) -> str:
    """Write a certificate in one of its `FORMATS`, as `write_result` does. Ends with a newline."""
    tables = [*_certificate_tables(certificate)]
    if form in {"html", "ctrf", "junit"}:
        return rendered(
            f"certificate.{form}",
            certificate=certificate,
            rungs=[*certificate.rungs, *_open_ends_as_rungs(certificate)],
            tables=tables,
            time=time,
            duration=format_duration,
        )
    document = partial(certificate_document, certificate)
    # `str`, which returns an empty text: no certificate is written as CSV
    return write_result(form, lambda: tables, document, str, **how)


def _open_ends_as_rungs(certificate: Certificate) -> Iterator[RungResult]:
    """Yield as rungs what is not certain and no rung says itself, such as missing limits."""
    stated = {(each.name, each.why) for each in certificate.rungs}
    for name, why in sorted(certificate.untested.items()):
        if (name, why) not in stated:
            yield RungResult(name=name, what="", state=State.INCOMPLETE, why=why)


def _certificate_tables(certificate: Certificate) -> Iterator[Table]:
    """Yield the rungs, what is bad, and what was not tested."""
    yield Table(
        header=("rung", "result", "carried by", "found", "judged by", "time"),
        rows=[_rung_row(each) for each in certificate.rungs],
        headline=certificate.headline,
        notes=[f"Limits: {certificate.limits}."] if certificate.limits else [],
    )
    yield Table(
        title="Nodes and NICs",
        header=("nodes", "answer", "NICs", "why"),
        rows=list(_nodes_alike(certificate)),
    )
    cordons = [
        (node, cordon_command(program, node, why))
        for program in CORDON
        for node, why in certificate.bad_nodes.items()
    ]
    for title, header, pairs in (
        ("Bad", "why", certificate.bad.items()),
        ("Not tested, or not certain", "why", certificate.untested.items()),
        ("To take them out of service", "command", cordons),
    ):
        if pairs:
            yield Table(title=title, header=("what", header), rows=list(pairs))


def _nodes_alike(certificate: Certificate) -> Iterator[Cells]:
    """Yield a row for each answer, with the nodes that have it, and the numbers of their NICs."""
    verdicts = certificate.verdicts.items()
    alike = gathered((_answer(verdict), node) for node, verdict in verdicts)
    for answer, nodes in alike.items():
        yield (compress_hostlist(nodes), *answer)


def _answer(verdict: PlainData) -> Cells:
    nics = Counter(verdict["nics"].values())
    return (verdict["answer"], tally(nics), verdict["why"])


def _rung_row(rung: RungResult) -> Cells:
    # Without figures, what was found is why there are none.
    figures = "; ".join(f"{figure.what}: {figure}" for figure in rung.figures)
    state = rung.state.value
    result = figures or rung.why
    limits = with_remark("; ".join(rung.limits), ", ".join(rung.sources))
    took = format_duration(rung.seconds) if rung.seconds else ""
    return (rung.name, state, rung.fabric, result, limits, took)


def certificate_document(certificate: Certificate) -> PlainData:
    """Return a certificate as plain data; documented in docs/accept.md."""
    import msgspec

    plain: PlainData = msgspec.to_builtins(certificate)
    names = ("headline", "verdict", "fault_class", "bad", "untested", "verdicts")
    answer = {name: getattr(certificate, name) for name in names}
    return {"format": plain.pop("format"), **answer, **plain}
