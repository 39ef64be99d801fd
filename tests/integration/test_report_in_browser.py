"""The page of `fabbench report` in a browser.

Widths, colors, paper, screen readers, keyboard, no network.
"""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from fabbench.analysis.compare import compare
from fabbench.report.page import page_of, run_section
from tests.support.browser import Browser, browser
from tests.support.local_runs import eventually
from tests.support.logs_by_hand import GB, KB, rates
from tests.support.pages import HOSTILE, page

pytestmark = pytest.mark.slow
P4D: dict[str, str | int] = {"instance_type": "p4d.24xlarge", "nodes": 2}


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    folder = tmp_path_factory.mktemp("browser")
    target = folder / "report.html"
    known = compare(
        [rates("EFA", [(KB, 0.1), (GB, 80)], **P4D), rates("TCP", [(KB, 0.1), (GB, 4)], **P4D)]
    )
    runs = [page("word " * 60, comparison=known), page(HOSTILE, first=HOSTILE)]
    target.write_text(
        "".join(page_of([run_section(run, number) for number, run in enumerate(runs, 1)])), "utf-8"
    )
    with browser(folder / "profile") as started:
        started.look()
        started.open(target)
        yield started


@pytest.fixture(autouse=True)
def usual(shown: Browser) -> None:
    shown.look()


def test_nothing_is_fetched_and_hostile_text_does_nothing(shown: Browser) -> None:
    loaded = [
        each["params"]["request"]["url"] for each in events(shown, "Network.requestWillBeSent")
    ]
    assert [url.rpartition("/")[2] for url in loaded] == ["report.html"]
    assert events(shown, "Page.javascriptDialogOpening") == []
    assert events(shown, "Log.entryAdded") == []  # the page's own policy refused nothing


def events(shown: Browser, method: str) -> list[dict[str, Any]]:
    return [each for each in shown.events if each.get("method") == method]


@pytest.mark.parametrize("width", [320, 390, 1200])
def test_it_fits_every_width(shown: Browser, width: int) -> None:
    """Wide tables scroll inside themselves, the page does not."""
    shown.look(width=width)
    assert shown.value("document.scrollingElement.scrollWidth") <= width


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(shown: Browser, scheme: str) -> None:
    shown.look(scheme=scheme)
    back = channels(shown.value("getComputedStyle(document.body).backgroundColor"))
    assert (sum(back) > 384) == (scheme == "light")
    for selector in ("body", ".faint", ".warning", "a", "figcaption", ".plot text", ".plot .faint"):
        part = "fill" if "plot" in selector else "color"
        found = f"getComputedStyle(document.querySelector({selector!r})).{part}"
        assert contrast(channels(shown.value(found)), back) >= 4.5, selector
    for kind in range(2):  # what is no text needs 3 (WCAG 2.2)
        found = f"getComputedStyle(document.querySelector('.plot .k{kind}')).stroke"
        assert contrast(channels(shown.value(found)), back) >= 3


def channels(color: str) -> tuple[float, ...]:
    assert color.startswith("rgb("), color
    return tuple(map(float, color[4:-1].split(",")))


def contrast(one: tuple[float, ...], other: tuple[float, ...]) -> float:
    lights = sorted(map(_luminance, (one, other)))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(color: tuple[float, ...]) -> float:
    parts = [part / 255 for part in color]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_paper_shows_all_of_it_in_dark_on_white(shown: Browser) -> None:
    shown.look(media="print", scheme="dark")
    assert shown.value("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    folded = (
        "[...document.querySelectorAll('details table, details pre')].map(each => "
        "each.offsetHeight)"
    )
    heights = shown.value(folded)
    assert heights
    assert all(height > 0 for height in heights)


def test_screen_readers_get_landmarks_names_and_tables(shown: Browser) -> None:
    eventually(lambda: "image" in by_role(shown))  # the tree follows the page, a little later
    found = by_role(shown)
    assert len(found["main"]) == 1
    nameless = [
        each
        for role in ("image", "table", "region")
        for each in found[role]
        if not each["name"]["value"]
    ]
    assert nameless == []
    plots = [each for each in found["image"] if "by message size" in each["name"]["value"]]
    assert all(each["description"]["value"] for each in plots)
    assert any("ceiling of the NICs" in each["description"]["value"] for each in plots)
    assert len(found["columnheader"]) > 4 < len(found["rowheader"])
    levels = [
        next(each["value"]["value"] for each in node["properties"] if each["name"] == "level")
        for node in found["heading"]
    ]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))


def by_role(shown: Browser) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for node in shown.ask("Accessibility.getFullAXTree")["nodes"]:
        if not node["ignored"]:
            found.setdefault(node["role"]["value"], []).append(node)
    return found


def test_all_that_moves_or_opens_can_be_reached_by_keyboard(shown: Browser) -> None:
    """The skip link first; then links, folded parts and tables that scroll, in order.

    Each is outlined.
    """
    shown.value("document.querySelectorAll('details').forEach(each => { each.open = true })")
    every = "[...document.querySelectorAll('a[href], summary, [tabindex=\"0\"]')]"
    wanted = shown.value(f"{every}.map(each => each.outerHTML.slice(0, 60))")
    reached = []
    for _ in wanted:
        shown.press("Tab")
        reached.append(shown.value("document.activeElement.outerHTML.slice(0, 60)"))
        assert shown.value("getComputedStyle(document.activeElement).outlineStyle") != "none", (
            reached
        )
    assert reached == wanted
    assert reached[0].startswith('<a class="skip"')
