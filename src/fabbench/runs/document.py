"""The JSON documents of a store: dataclasses, written atomically and read strictly.

A document may come from another release, be cut by a full disk, or have been edited. Unknown keys
are ignored; a value of the wrong type is damage, reported with its path
(``$.executions[0].outcome``).
"""

import errno
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from fabbench.model.errors import Exit, Fault, MachineError
from fabbench.model.hosts import Hosts
from fabbench.model.log import Ending, Outcome
from fabbench.model.mappings import GroupOfNode, Names, Reasons, Variables
from fabbench.model.plan import Configuration, Variant, Words
from fabbench.model.values import T, frozen
from fabbench.runs.directories import ENVIRONMENT_VARIABLE
from fabbench.sweep.values import SweepOutcome, SweepResult, SweepTest, outcome_of_test

VERDICT = "verdict.json"  # The result of the gates; written last
SUMMARY = "summary.json"  # See `fabbench.runs.summary`

# Number of the layout of a run directory, and of each document that has a `format`
Format: TypeAlias = Literal[1]
_MAX_SIZE = 1 << 28  # Bytes; a larger document is damaged


class StoreError(MachineError):
    """What was measured cannot be stored, as on a full disk.

    This says nothing about the machines.
    """


@frozen
class StoredRequest:
    """The parts of a request that its run stores: what was measured, where, and how."""

    benchmark: str = ""
    target: str = ""
    fabrics: Names = ()
    repeats: int | None = None
    most_repeats: int | None = None
    """The limit of repeats of a run that checked its verdicts after each; None if it did not."""
    where: Mapping[str, Any] = field(default_factory=dict)  # The target, with its options
    variants: tuple[Variant, ...] = ()
    env: Variables = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


@frozen
class SweepDocument:
    """The options of a sweep, which is resumed with the same."""

    mode: str
    benchmark: str
    fabric: str
    nodes: Names  # All nodes, in the launcher's order
    metric: str
    seed: int
    confidence: float
    tolerance: float
    partners: int | None = None  # Random partners of each node, if requested
    # Node → its rack or other group, if known
    group_of: GroupOfNode = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    """Node → its instance type, if known."""
    nics: Names = ()  # NICs that every node has, if they are tested one by one
    raises_limit: bool = False
    """Whether tests that ran out of time too soon are repeated with more time."""
    unreachable: Reasons = field(default_factory=dict)
    """Requested nodes that did not answer at the start, and are left out → why."""


@frozen
class TestResult:
    """One test that has ended."""

    number: int  # Counts from 0
    round: int
    nodes: Names  # The nodes that took part, in order
    rail: str = ""  # The NIC that each node used, if one was chosen
    longer: bool = False  # Whether it had a longer limit, as the usual one was too short
    outcome: str
    reason: str = ""
    value: float | None = None  # The metric in base units; None if no value counts
    # The same for each NIC, if they were measured one by one
    nics: Mapping[str, float] = field(default_factory=dict)
    step: float = 0.0  # In which steps the figures were printed; 0: not rounded, or not known
    notes: tuple[str, ...] = ()  # Warnings, such as those from NIC counters
    fault: Fault | None = None  # What has to be mended where it failed; None: nothing says it
    neighbors: tuple[str, ...] = ()  # Sentences: another run of fabbench was on its nodes
    said: str = ""  # The program's own first line about an error, where it failed
    seconds: float = 0.0  # How long its longest step took, which is what a limit is for

    @property
    def result(self) -> SweepResult:
        """Return the test as planners and the analysis need it."""
        outcome = outcome_of_test(self.outcome)
        ok = outcome is SweepOutcome.OK
        # A test of all NICs at once has a figure of each; one of a rail has one NIC.
        several_nics = len(self.nics) > 1 and not self.rail
        return SweepResult(
            test=SweepTest(self.nodes, self.rail, self.longer),
            outcome=outcome,
            figure=self.value if ok else None,
            nics=self.nics if several_nics else None,
            round=self.round,
            step=self.step,
            seconds=self.seconds,
            reason="" if ok else self._why(),
        )

    def _why(self) -> str:
        if self.outcome == Outcome.FAILED:  # which the result itself says
            return self.reason
        return f"{self.outcome}: {self.reason}" if self.reason else self.outcome


@frozen
class RunDocument:
    """``request.json``. An arm is a configuration."""

    format: Format
    fabbench: str = ""
    id: str = ""
    created: str = ""
    name: str = ""  # The name from `fabbench run --name`
    command: Words = ()  # The command line, without secrets
    request: StoredRequest = StoredRequest()
    arms: tuple[Configuration, ...] = ()
    schedule: tuple[Annotated[str, msgspec.Meta(pattern=r"^\d+-[^/\0]+-r\d+\Z")], ...] = ()
    """The executions' directories: no name leads to another path."""
    hosts: Hosts = ()
    # Variant → the hosts as it sees them
    variants: Mapping[str, Hosts] = field(default_factory=dict)
    image: str = ""
    sweep: SweepDocument | None = None
    """The options of a sweep, whose tests are in files of their own.

    See `fabbench.runs.store.StoredSweep`.
    """


@frozen
class ExecutionDocument:
    """``run.json``."""

    format: Format = 1
    started: float = 0.0
    ended: float = 0.0
    ending: Ending


@frozen
class VerdictDocument:
    """``verdict.json``."""

    format: Format = 1
    status: Exit
    breaches: tuple[str, ...] = ()
    state: str = ""
    """The gravest result of a gate; empty: there are none, or the run is of an older version."""


def plain(document: Any) -> Any:
    """Return dataclasses, and all in them, as mappings, lists, texts and numbers."""
    return msgspec.to_builtins(document, enc_hook=str)


def write(path: Path, document: Any, *, indent: int | None = 1, durable: bool = True) -> None:
    """Write a document atomically: completely, or not at all.

    If `durable`, it survives the machine's end.

    Raise StoreError if that is impossible.
    """
    text = json.dumps(plain(document), indent=indent, ensure_ascii=False) + "\n"
    # A hidden file beside it, which then takes its name.
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.unfinished")
    with store_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        # A byte of an argument that is not UTF-8 becomes a question mark.
        with unfinished.open("w", encoding="utf-8", errors="replace") as file:
            file.write(text)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        unfinished.replace(path)


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn an OSError of the block, which writes a part of a run, into StoreError."""
    try:
        yield
    except OSError as error:
        full = error.errno in {errno.ENOSPC, errno.EDQUOT}
        first = "Free some space, or specify" if full else "Specify"
        hint = f"{first} another directory with --store or {ENVIRONMENT_VARIABLE}."
        why = error.strerror or error
        raise StoreError(f"{path} cannot be written: {why}.", hint=hint) from error


def read(path: Path, kind: type[T]) -> T:
    """Read a document.

    Raise MachineError if it cannot be read, is damaged, or has another format.
    """
    try:
        if path.stat().st_size > _MAX_SIZE:
            limit = _MAX_SIZE >> 20
            raise MachineError(f"{path} is damaged: it is larger than {limit} MiB.")
        return decoded(path.read_bytes(), kind, path)
    except OSError as error:
        why = error.strerror or error
        raise MachineError(f"{path} cannot be read: {why}.") from error


def decoded(text: bytes | str, kind: type[T], source: Path | str) -> T:
    """Return a document in JSON. Raise MachineError if it is damaged, or has another format."""
    try:
        return msgspec.json.decode(text, type=kind)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        # msgspec names the field that it refuses: `format` is that of another fabbench.
        hint = "Read it with the fabbench that wrote it." if "`$.format`" in str(error) else None
        raise MachineError(f"{source} is damaged: {error}.", hint=hint) from error


def readable(path: Path, kind: type[T]) -> T | None:
    """Read a document as `read` does; None if that is impossible."""
    with suppress(MachineError):
        return read(path, kind)
    return None
