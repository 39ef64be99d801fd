"""The site as files: its search, where no server is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.browser import browser
from tests.support.paths import ROOT

pytestmark = pytest.mark.slow
ASK = """new Promise(done => {
    const results = document.querySelector(".md-search-result__list");
    const told = () => results.children.length && done(1);
    setTimeout(done, 60000);
    new MutationObserver(told).observe(results, {childList: true});
    document.querySelector("[data-md-toggle=search]").click();
    const field = document.querySelector(".md-search__input");
    field.value = "plateau";
    field.dispatchEvent(new Event("keyup", {bubbles: true}));
})"""
"""Type a word, and wait for what is found; a minute at most, so that nothing found is a failure."""


def test_the_search_works_without_a_server_and_fetches_nothing(tmp_path: Path) -> None:
    site = tmp_path / "site"
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    words += ("--site-dir", str(site))
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    subprocess.run(words, cwd=ROOT, env=environment, check=True)
    assert [*site.rglob("*.pyc")] == []
    with browser(tmp_path / "profile") as started:
        started.look()
        for page in ("sweep.html", "skills/fabbench-accept/SKILL.html"):
            started.open(site / page)
            started.ask("Runtime.evaluate", expression=ASK, awaitPromise=True)
            found = started.value("document.querySelector('.md-search-result__list').textContent")
            assert "Glossary" in found
            fetched = "performance.getEntriesByType('resource').map(each => each.name)"
            assert [each for each in started.value(fetched) if not each.startswith("file:")] == []
