"""What the processes of one execution say of themselves, and whether they agree."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fabbench.model import Finding, Severity

LONGEST_QUOTE = 300


@dataclass(slots=True)
class Told:
    """Collects facts; both sides, and every step, tell them again."""

    _values: dict[str, dict[str, str]] = field(default_factory=dict)
    """fact → value → the side that told it first."""

    def add(self, fact: str, value: str, side: str) -> None:
        """Note a fact."""
        self._values.setdefault(fact, {}).setdefault(value, side)

    def first(self, fact: str) -> str:
        """Give the first value of a fact; empty: nobody told."""
        return next(iter(self._values.get(fact, {})), "")

    def facts(self) -> Iterator[tuple[str, str]]:
        """Give the facts as a log has them: addresses as the client sees them, the provider as transport."""
        for name, values in self._values.items():
            if name in {"source_address", "dest_address"}:
                yield (
                    name,
                    next((value for value, side in values.items() if side == "client"), self.first(name)),
                )
            else:
                yield name, ", ".join(values)
        providers = self._values.get("provider", {})
        if providers:
            yield "transport", "mixed" if len(providers) > 1 else self.first("provider")

    def findings(self, facts: Iterable[str] = ("provider", "domain")) -> Iterator[Finding]:
        """Say where the processes differ: then it is not one fabric that was measured."""
        for fact in facts:
            values = self._values.get(fact, {})
            if len(values) > 1:
                who = ", ".join(f"{value} ({side})" if side else value for value, side in values.items())
                yield Finding(
                    code=f"mixed-{fact}",
                    severity=Severity.ERROR if fact == "provider" else Severity.WARNING,
                    meaning=f"The processes did not use one {fact}: {who}.",
                    advice="Measure again with one provider and one domain on both sides.",
                )


def said(side: str, program: str, text: str) -> str:
    """Write what a process said as a sentence."""
    words = " ".join(text.split())
    quote = words if len(words) <= LONGEST_QUOTE else words[: LONGEST_QUOTE - 1] + "…"
    return f"{f'The {side}' if side else program} said: {quote}"


def truncated_size(printed: str, size: int) -> Finding:
    """Say that a size is not known exactly."""
    return Finding(
        code="size-truncated",
        severity=Severity.WARNING,
        meaning=f"The program cut the size down to {printed}; {size} bytes are assumed.",
        advice="Keep the command line, with -S, in the log.",
    )
