"""The page of `fabbench report` in a browser.

Widths, colors, paper, screen readers, keyboard, no network.
"""

import csv
import io
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from fabbench.analysis.compare import compare
from fabbench.report.page import comparison_page, page_of, run_section
from tests.support.browser import Browser, browser
from tests.support.local_runs import eventually
from tests.support.logs_by_hand import GB, KB, MB, rates
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


# ---------------------------------------------------------------- its script


def pointed(shown: Browser, selector: str, number: int = 0) -> tuple[float, float]:
    """Scroll to an element; return where its middle is."""
    part = f"document.querySelectorAll({selector!r})[{number}]"
    shown.value(f"{part}.scrollIntoView({{block: 'center'}})")
    shown.settle()
    box = shown.value(
        f"(box => [box.x + box.width / 2, box.y + box.height / 2])({part}.getBoundingClientRect())"
    )
    return box[0], box[1]


def mouse(shown: Browser, kind: str, at: tuple[float, float]) -> None:
    button = "none" if kind == "mouseMoved" else "left"
    place = {"x": at[0], "y": at[1], "button": button, "clickCount": 1}
    shown.ask("Input.dispatchMouseEvent", type=kind, **place)
    shown.settle()


def click(shown: Browser, selector: str, number: int = 0) -> None:
    at = pointed(shown, selector, number)
    for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
        mouse(shown, kind, at)


def test_a_curve_tells_its_values_where_a_reader_points(shown: Browser) -> None:
    """Also without the script: the strip of a size shows a box with the value of each line."""
    at = pointed(shown, "svg.wide .strip", 1)
    opacity = (
        "getComputedStyle(document.querySelectorAll('svg.wide .at')[1].querySelector('.box'))"
        ".opacity"
    )
    assert shown.value(opacity) == "0"
    mouse(shown, "mouseMoved", at)
    assert shown.value(opacity) == "1"
    told = shown.value(
        "[...document.querySelectorAll('svg.wide .at')[1].querySelectorAll('tspan')]"
        ".map(each => each.textContent)"
    )
    assert told[0] == "1 GB"
    assert told[1].startswith("EFA 80, 20.0 x (")
    assert told[2] == "TCP 4"


def test_an_axis_is_switched_to_linear_and_back(shown: Browser) -> None:
    points = "document.querySelector('svg.wide polyline').getAttribute('points')"
    ticks = "[...document.querySelectorAll('svg.wide')][0].querySelectorAll('text')"
    seen = f"[...{ticks}].filter(each => each.checkVisibility()).map(each => each.textContent)"
    before, labels = shown.value(points), shown.value(seen)
    click(shown, "figure .tools button")
    linear = shown.value(points)
    assert linear != before
    assert "0" in shown.value(seen)
    assert shown.value("document.querySelector('figure .tools button').ariaPressed") == "true"
    click(shown, "figure .tools button")
    assert (shown.value(points), shown.value(seen)) == (before, labels)


def column_of(shown: Browser, number: int) -> list[str]:
    cells = (
        f"[...document.querySelectorAll('.pair table')[0].tBodies[0].rows].map(row => "
        f"row.cells[{number}].textContent.trim())"
    )
    found: list[str] = shown.value(cells)
    return found


def test_a_table_is_sorted_by_quantity(shown: Browser) -> None:
    sizes = column_of(shown, 0)
    assert sizes == ["1 KB", "1 GB"]
    shown.value("document.querySelectorAll('.pair table')[0].tHead.rows[0].cells[0].id = 'by'")
    click(shown, "#by button")
    assert column_of(shown, 0) == ["1 KB", "1 GB"]
    assert shown.value("document.querySelector('#by').ariaSort") == "ascending"
    click(shown, "#by button")
    assert column_of(shown, 0) == ["1 GB", "1 KB"]
    click(shown, "#by button")


@pytest.mark.parametrize(
    ("texts", "ordered"),
    [
        (["1 MB", "512 B", "-", "2 KB"], ["512 B", "2 KB", "1 MB", "-"]),
        (["2.1x", "-20.0%", "+33.3%", "0.40x"], ["0.40x", "-20.0%", "+33.3%", "2.1x"]),
        (["1 ms", "20–30 us", "2 s", "900 ns"], ["900 ns", "20–30 us", "1 ms", "2 s"]),
        (["node10", "node9", "-", "node1"], ["node1", "node9", "node10", "-"]),
    ],
)
def test_cells_are_compared_as_what_they_are(
    shown: Browser, texts: list[str], ordered: list[str]
) -> None:
    rows = "".join(f"<tr><td>{each}</td></tr>" for each in texts)
    made = f"<table id=t><thead><tr><th>x</th></tr></thead><tbody>{rows}</tbody></table>"
    shown.value(
        "{ document.querySelector('#t')?.remove();"
        f" document.body.insertAdjacentHTML('beforeend', {made!r});"
        " const made = document.querySelector('#t'); sorted(made, made.tHead.rows[0].cells[0]); }"
    )
    cells = "[...document.querySelectorAll('#t td')].map(each => each.textContent)"
    assert shown.value(cells) == ordered
    shown.value("document.querySelector('#t').remove()")


def test_a_table_is_copied_as_markdown_and_csv(shown: Browser) -> None:
    """What the buttons put on the clipboard; hostile cells stay text in both."""
    shown.value("navigator.clipboard.writeText = async text => { window.copiedText = text; }")
    shown.value(
        "{ const bar = document.querySelector('.pair table').closest('.scroll').nextSibling;"
        " bar.id = 'bar'; }"
    )
    click(shown, "#bar button", 0)
    markdown = shown.value("window.copiedText").splitlines()
    assert markdown[0].startswith("| Size | ")
    assert markdown[1].startswith("|--:|--:|")
    assert markdown[2].startswith("| 1 KB | ")
    assert len({line.count("|") for line in markdown}) == 1
    click(shown, "#bar button", 1)
    header, *rows = csv.reader(io.StringIO(shown.value("window.copiedText")))
    assert header[:2] == ["Size", "EFA"]
    assert [row[0] for row in rows] == ["1 KB", "1 GB"]
    cells = ["=1+1", "-6.2 %", 'a "b", c', "@x", "| a\\b"]
    written = [shown.value(f"csvCell({each!r})") for each in cells]
    assert written == ["'=1+1", "-6.2 %", '"a ""b"", c"', "'@x", "| a\\b"]
    assert shown.value(f"escaped({cells[4]!r})") == "\\| a\\\\b"


def test_headings_have_addresses(shown: Browser) -> None:
    targets = shown.value(
        "[...document.querySelectorAll('h2 a.here, h3 a.here')].map(each => each.hash)"
    )
    assert {"#run-1", "#run-1-metric-0", "#run-1-proof", "#run-2-findings"} <= {*targets}
    assert shown.value(f"{targets!r}.every(each => document.querySelector(each) !== null)")


def test_without_its_script_a_page_has_all_but_buttons(shown: Browser) -> None:
    assert shown.value("document.querySelectorAll('button').length") > 4
    assert events(shown, "Runtime.exceptionThrown") == []
    shown.ask("Page.reload")  # Other tests have opened parts of it
    assert eventually(lambda: min(pictures_and_tables(shown)) >= 2)
    with_script = pictures_and_tables(shown)
    shown.ask("Emulation.setScriptExecutionDisabled", value=True)
    try:
        shown.ask("Page.reload")
        eventually(
            lambda: {"image", "table"} <= {*by_role(shown)} and "button" not in by_role(shown)
        )
        # The tree of a page that is just read grows
        assert eventually(lambda: pictures_and_tables(shown) == with_script)
    finally:
        shown.ask("Emulation.setScriptExecutionDisabled", value=False)
        shown.ask("Page.reload")
        eventually(lambda: "button" in by_role(shown))


@pytest.mark.parametrize("inputs", [1, 2, 6, 20])
def test_pages_of_many_inputs_have_no_blank_areas(
    shown: Browser, tmp_path: Path, inputs: int
) -> None:
    """Nothing wider than the window, and nothing that is much higher than its text."""
    address = Path(unquote(urlsplit(shown.value("location.href")).path))
    columns = [
        rates(f"night-2026-11-{number:02}", [(KB, 0.1), (MB, 10), (GB, 80 + number)], **P4D)
        for number in range(1, inputs + 1)
    ]
    target = tmp_path / "many.html"
    section = run_section(comparison_page(compare(columns)), 1)
    target.write_text("".join(page_of([section])), "utf-8")
    shown.open(target)
    for width in (400, 900, 1280):
        shown.look(width=width)
        assert shown.value("document.scrollingElement.scrollWidth") <= width
        facts = "Math.max(0, ...[...document.querySelectorAll('.facts')].map(e => e.offsetHeight))"
        assert shown.value(facts) < 250
        chart = "[...document.querySelectorAll('figure svg')].find(e => e.checkVisibility())"
        share = shown.value(
            f"{chart}.getBoundingClientRect().width / document.querySelector('main').clientWidth"
        )
        assert share > 0.9
        assert shown.value("document.body.offsetHeight") < 6500
    shown.open(address)


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


def pictures_and_tables(shown: Browser) -> tuple[int, int]:
    found = by_role(shown)
    return len(found.get("image", ())), len(found.get("table", ()))


def test_all_that_moves_or_opens_can_be_reached_by_keyboard(shown: Browser) -> None:
    """The skip link first; then links, folded parts and tables that scroll, in order.

    Each is outlined.
    """
    shown.value("document.querySelectorAll('details').forEach(each => { each.open = true })")
    every = "[...document.querySelectorAll('a[href], button, summary, [tabindex=\"0\"]')]"
    every += ".filter(each => each.checkVisibility())"
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
