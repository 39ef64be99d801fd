"""Plots as a PNG picture: what is drawn, in which colors, and what the file says as text.

Slow: loading Matplotlib takes a second.
"""

import io
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest
from PIL import Image

from fabbench.analysis.compare import compare
from fabbench.model.errors import RequestError
from fabbench.report.plot import Ceiling, Plot, PlotLine, PublishedRange
from fabbench.report.plots import plots
from fabbench.report.png import MAX_PLOTS, to_png
from tests.support.logs_by_hand import GB, KB, MB
from tests.support.pages import EFA, HOSTILE, TCP

LINE = PlotLine(label="EFA", points=[(KB, 1), (GB, 80)])
PLOT = Plot(title="busbw by message size", axis="GB/s", lines=[LINE], description="EFA is normal.")
ORANGE, BLUE, BLACK = (0xC2, 0x41, 0x0C), (0x1D, 0x4E, 0xD8), (0x1F, 0x23, 0x28)


def picture(plots: Sequence[Plot]) -> Image.Image:
    found = Image.open(io.BytesIO(to_png(plots)))
    found.load()
    return found


def colors(image: Image.Image) -> set[tuple[int, ...]]:
    counted = image.convert("RGB").getcolors(1 << 24)
    return {color for _, color in counted or () if isinstance(color, tuple)}


@pytest.mark.slow
def test_a_line_is_drawn_and_told() -> None:
    found = picture([PLOT])
    assert found.format == "PNG"
    assert ORANGE in colors(found)
    assert not {BLUE, BLACK} & colors(found)
    assert found.info["Description"] == "busbw by message size. EFA is normal."


@pytest.mark.slow
def test_ceilings_bands_and_published_ranges_are_drawn() -> None:
    more = replace(
        PLOT,
        lines=[LINE, PlotLine(label="TCP", points=[(MB, 4)], band=[(MB, 2, 8), (GB, 2, 8)], kind=1)],
        ceilings=[Ceiling(label="ceiling", value=100)],
        published=[PublishedRange(label="published", size=MB, low=20, high=30)],
        even=True,
    )
    assert {ORANGE, BLUE, BLACK} <= colors(picture([more]))
    assert picture([more, PLOT]).height > picture([more]).height


@pytest.mark.slow
def test_labels_are_text_and_no_formulas() -> None:
    labelled = [replace(EFA, label="_$\\frac{1}$"), replace(TCP, label=HOSTILE * 3), replace(TCP, label="漢")]
    assert picture(list(plots(compare(labelled)))).width == 1280


@pytest.mark.slow
def test_no_values_make_a_sentence() -> None:
    assert picture([]).height < 400


def test_more_plots_than_programs_open_are_refused() -> None:
    with pytest.raises(RequestError, match="61 plots are too many"):
        to_png([PLOT] * (MAX_PLOTS + 1))


def test_without_the_library_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as where it is not installed
    with pytest.raises(RequestError, match="needs Matplotlib") as refused:
        to_png([PLOT])
    assert refused.value.hint == "Install fabbench[png], or use --format svg."
