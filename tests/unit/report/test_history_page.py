"""A history as a page.

Every series with its plot, its changes and its runs, and nothing fetched.
"""

import re

from fabbench.analysis.history import History, HistoryPoint, Series, with_changes
from fabbench.model.log import METRICS
from fabbench.model.units import parse_sizes
from fabbench.report.history_report import history_page
from tests.support.pages import HOSTILE, Page, assert_nothing_is_fetched

KEY = {"benchmark": "nccl", "case": "all_reduce", "configuration": "efa", "target": "prod"}


def series(count: int = 20, **more: str) -> Series:
    """The last quarter is 10 % lower, with another NCCL."""
    points = [
        HistoryPoint(
            run=f"{place:06x}",
            created=f"2026-01-{place + 1:02}T00:00:00Z",
            value=(90e9 if place >= count * 3 // 4 else 100e9) + 1e6 * place,
            circumstances={"nccl": f"2.2{6 + (place >= count * 3 // 4)}"},
        )
        for place in range(count)
    ]
    return with_changes({**KEY, **more}, points, 0.1)


def written(*found: Series) -> str:
    history = History(metric=METRICS["busbw"], sizes=parse_sizes("1G"), series=found)
    return "".join(history_page(history))


def test_a_change_is_in_the_plot_the_list_and_the_table() -> None:
    text = written(series())
    found = Page(text)
    assert "busbw at 1 GB: 20 runs in 1 series, 1 change" in found.text
    assert (
        "with run 00000f, 2026-01-16 00:00:00 UTC. Changed with it: nccl 2.26 → 2.27." in found.text
    )
    assert text.count('class="level"') == 2 * 3  # before and after the change, in each width
    assert re.search(r'<text x="[\d.]+" y="\d+" text-anchor="middle">1</text>', text)
    dots, *_ = re.findall(r'<path class="dots" stroke-width="6" d="([^"]*)"/>', text)
    assert dots.count("h0") == 20
    assert text.count('<tr><th scope="row"') == 20
    assert "Overview" not in found.text
    (about,) = re.findall(r'<desc id="trend-1-about">(.*?)</desc>', text)
    assert about.startswith("20 runs from 2026-01-01 to 2026-01-20. The level is 90")


def test_several_series_begin_with_an_overview_that_links_them() -> None:
    found = Page(written(series(), series(ranks="8"), series(5, configuration="tcp", ranks="4")))
    assert found.targets[:4] == ["#main", "#series-1", "#series-2", "#series-3"]
    assert {"series-1", "series-2", "series-3"} < set(found.ids)
    assert len(found.ids) == len(set(found.ids))
    assert "nccl all_reduce on prod: efa, ranks 8" in found.text
    assert "nccl all_reduce on prod: tcp, ranks 4" in found.text
    assert "No change detected." in found.text


def test_hostile_text_is_no_markup() -> None:
    text = written(series(target=HOSTILE))
    plain, hostile = Page(written(series())), Page(text)
    assert hostile.tags == plain.tags
    assert hostile.attributes == plain.attributes
    assert_nothing_is_fetched(text)
