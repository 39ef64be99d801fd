"""Runs as `fabbench report` gets them, and its page as a parser reads it."""

import re
from base64 import b64encode
from dataclasses import replace
from hashlib import sha256
from html.parser import HTMLParser

from fabbench.analysis.compare import Comparison, compare
from fabbench.model.compat import override
from fabbench.model.log import Finding, Severity
from fabbench.report.page import RunPage
from fabbench.report.table import Table
from tests.support.logs_by_hand import GB, KB, rates

EFA, TCP = rates("EFA", [(KB, 0.1), (GB, 80)]), rates("TCP", [(KB, 0), (GB, 4)])
HOSTILE = "</title></style></pre><img src=x onerror=alert(1)>\"'&amp;\x1b[31m\u202e"


def page(
    text: str = "plain", *, first: str = "EFA", comparison: Comparison | None = None
) -> RunPage:
    """Return a run in which everything says `text`."""
    found = Finding(code="x", severity=Severity.WARNING, meaning=text, line=text, advice=text)
    logs = tuple(replace(each, evidence={"transport": text}, findings=[found]) for each in EFA.logs)
    comparison = comparison or compare([replace(EFA, label=first, logs=logs), TCP])
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
        nics=[Table(title=text, header=(text, "tx"), rows=[(text, "1 GB")], notes=[text])],
        nodes=[Table(title=text, header=(text,), rows=[(text,)])],
        command=f"fabbench run {text}",
        programs={text: [text]},
    )


_VOID = {"meta", "br", "circle", "rect", "path", "polyline", "polygon"}


class Page(HTMLParser):
    """Reads a page; raises AssertionError for one whose elements are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.ids: list[str] = []
        self.targets: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.targets += [value or "" for name, value in attrs if name == "href"]
        if tag not in _VOID:
            self._open.append(tag)

    @override
    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in _VOID:
            self._open.pop()

    @override
    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    @override
    def handle_data(self, data: str) -> None:
        if self._open[-1:] == ["script"]:
            self.scripts.append(data)
        else:
            self.text += data


def assert_nothing_is_fetched(text: str) -> None:
    """Raise AssertionError if a page can run anything but its own script, or load anything."""
    found = Page(text)
    assert not found.tags & {"link", "img", "iframe", "object", "base", "form"}
    assert not {name for name in found.attributes if name.startswith("on") or name == "src"}
    (script,) = found.scripts
    digest = b64encode(sha256(script.encode()).digest()).decode()
    assert f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'" in text
    assert not re.findall(r"\b(?:eval|Function|innerHTML|fetch|import|https?:)\b", script)
    assert not [each for each in found.targets if not each.startswith("#")]
