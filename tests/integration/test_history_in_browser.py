"""The page of `fabbench history` in a browser: widths and colors."""

from collections.abc import Iterator

import pytest

from fabbench.analysis.history import History, HistoryPoint, with_changes
from fabbench.model.log import METRICS
from fabbench.report.history_report import history_page
from tests.support.browser import Browser, browser

pytestmark = pytest.mark.slow
KEY = {
    "benchmark": "nccl",
    "case": "all_reduce",
    "configuration": "efa",
    "target": "prod",
    "sizes": "8," * 90,
}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("browser")
    points = [
        HistoryPoint(
            f"{place:06x}", "2026-01-01T00:00:00Z", (9e9 if place < 30 else 8e9) + place, {}
        )
        for place in range(40)
    ]
    found = [with_changes({**KEY, "configuration": name}, points, 0.1) for name in ("efa", "tcp")]
    target = folder / "history.html"
    history = History(metric=METRICS["busbw"], sizes=None, series=found)
    target.write_text("".join(history_page(history)), "utf-8")
    with browser(folder / "profile") as started:
        started.look()
        started.open(target)
        yield started


@pytest.mark.parametrize("width", [320, 390, 1200])
def test_it_fits_every_width(shown: Browser, width: int) -> None:
    shown.look(width=width)
    assert shown.value("document.scrollingElement.scrollWidth") <= width
    long = "[...document.querySelectorAll('p')].every(each => each.scrollWidth <= each.clientWidth)"
    assert shown.value(long)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_is_drawn_differs_from_its_background(shown: Browser, scheme: str) -> None:
    shown.look(scheme=scheme)
    back = shown.value("getComputedStyle(document.body).backgroundColor")
    colors = [
        shown.value(f"getComputedStyle(document.querySelector('{name}')).stroke")
        for name in (".dots", ".level", ".changed")
    ]
    assert len({back, *colors}) == 4
