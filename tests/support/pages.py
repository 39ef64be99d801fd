"""Runs as `fabbench report` gets them, for tests of its page."""

from dataclasses import replace

from fabbench.analysis.compare import Comparison, compare
from fabbench.model.log import Finding, Severity
from fabbench.report.page import ProofLines, RunPage
from fabbench.report.table import Table
from tests.support.logs_by_hand import GB, KB, rates

EFA, TCP = rates("EFA", [(KB, 0.1), (GB, 80)]), rates("TCP", [(KB, 0), (GB, 4)])
HOSTILE = "</title></style></pre><img src=x onerror=alert(1)>\"'&amp;\x1b[31m\u202e"


def page(text: str = "plain", *, first: str = "EFA", comparison: Comparison | None = None) -> RunPage:
    """Return a run in which everything says `text`."""
    comparison = comparison or compare([replace(EFA, label=first), TCP])
    return RunPage(
        id="abc123",
        name=text,
        about=f"nccl on {text}",
        created="2026-01-02 03:04:05 UTC",
        outcomes="2 ok",
        gates="failed",
        breaches=[text],
        damage=[text],
        comparisons=[comparison, comparison],
        proof=[ProofLines(label=text, outcome="ok", reasons=[text], shown=text, lines={"transport": text})],
        nics=[Table(title=text, header=(text, "tx"), rows=[(text, "1 GB")], notes=[text])],
        nodes=[Table(title=text, header=(text,), rows=[(text,)])],
        command=f"fabbench run {text}",
        programs={text: [text]},
        findings=[(text, Finding(code="x", severity=Severity.WARNING, meaning=text, line=text, advice=text))],
    )
