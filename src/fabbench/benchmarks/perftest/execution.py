"""One execution of perftest: the blocks of its server and its client, and what they come to."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fabbench.markers import Marker
from fabbench.model import Record

if TYPE_CHECKING:
    from fabbench.benchmarks.perftest.block import Block

_NUMBERS = frozenset({"qps", "mtu", "gid_index", "iterations", "status"})
_ALONE = frozenset({"iterations", "cpu_util"})
"""Facts that only one value makes sense of."""


class Execution:
    """Takes the blocks of one run."""

    def __init__(self, trial: str = "") -> None:
        self.trial = trial
        self.blocks: list[Block] = []
        self.step: Marker | None = None
        """The step that is open."""
        self._cut = False
        self._together = ""
        self._statuses: list[str] = []

    def begin(self, marker: Marker) -> None:
        """Begin a step of a trial that fabbench runs."""
        self._cut = self._cut or self.step is not None
        self.step = marker
        self._together = self._together or marker.facts.get("together", "")

    def end(self, marker: Marker) -> None:
        """End a step, with the exit status that its processes ended with."""
        self.step = None
        self._cut = self._cut or marker.status is None
        if marker.status:
            self._statuses.append(f"perftest ended with exit status {marker.status} in step {marker.name}.")

    def finish(self) -> Record:
        """Give the record."""
        for block in self.blocks:
            block.end()
        found = [block.found for block in self.blocks]
        record = Record(benchmark="perftest", case=self._case(), finished=self._finished())
        numbered = sorted((entry for each in found for entry in each.points), key=lambda entry: entry[0])
        record.points = [point for _, point in numbered]
        record.damaged = sorted(row for each in found for row in each.damaged)
        failures = sorted((entry for each in found for entry in each.failures), key=lambda entry: entry[0])
        record.failures = [*dict.fromkeys(sentence for _, sentence in failures), *self._statuses]
        record.findings = list({finding: None for each in found for finding in each.findings})
        record.wrong = sum(each.wrong for each in found)
        record.off_fabric = next((block.off_fabric for block in self.blocks if block.off_fabric), "")
        record.facts = dict(self._facts())
        if self._together:
            record.facts["together"] = self._together
        if record.facts.get("transport") == "RawEth" and record.case:
            record.case = f"raw_ethernet_{record.case.rpartition('_')[2]}"
        return record

    def _case(self) -> str | None:
        return next((block.case for block in self.blocks if block.case), None)

    def _finished(self) -> bool | None:
        if self._cut or self.step is not None:
            return False
        told = {block.finished for block in self.blocks if block.found.points}
        return False if False in told else True if True in told else None

    def _facts(self) -> Iterator[tuple[str, str | int]]:
        values: dict[str, dict[str, None]] = {}
        for block in self.blocks:
            for name, value in block.found.facts:
                values.setdefault(name, {})[value] = None
        for name, each in values.items():
            value = next(iter(each))
            if len(each) > 1:
                if name not in _ALONE:
                    yield name, ", ".join(each)
            elif name in _NUMBERS and value.isascii() and value.isdigit():
                yield name, int(value[:18])
            else:
                yield name, value
