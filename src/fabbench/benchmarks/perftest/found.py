"""What was read of one process's output, before it becomes a record."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from fabbench.benchmarks.perftest.text import FACTS
from fabbench.model import Damaged, Finding, Line, Point

_MOST = 50
"""Sentences and findings that are kept."""


@dataclass(slots=True)
class Found:
    """Grows while a block is read; numbers are those of lines."""

    points: list[tuple[int, Point]] = field(default_factory=list)
    damaged: list[Damaged] = field(default_factory=list)
    facts: dict[tuple[str, str], None] = field(default_factory=dict)
    """Each fact and value once, in order of appearance."""
    findings: list[Finding] = field(default_factory=list)
    failures: list[tuple[int, str]] = field(default_factory=list)
    wrong: int = 0

    def fail(self, sentence: str, line: Line) -> None:
        """Note an error, once."""
        if len(self.failures) < _MOST and sentence not in {known for _, known in self.failures}:
            self.failures.append((line.number, sentence))

    def find(self, finding: Finding) -> None:
        """Note a finding, once."""
        if len(self.findings) < _MOST and finding not in self.findings:
            self.findings.append(finding)

    def fact(self, name: str, value: str) -> None:
        """Note a fact."""
        self.facts[name, value] = None

    def tell(self, setup: Mapping[str, str]) -> None:
        """Note what the set-up text says, as facts."""
        for name, value in setup.items():
            if name in FACTS:
                self.fact(FACTS[name], value.partition("[")[0])
