"""Runs as an HTML page, and their plots: whole, escaped, and nothing fetched."""

import re
from collections.abc import Sequence
from dataclasses import replace
from xml.etree import ElementTree as ET

from fabbench.analysis.compare import compare
from fabbench.report.page import RunPage, comparison_page, page_of, run_section
from fabbench.report.svg import KINDS, Picture, left_out, plots, to_svg, to_svg_file
from tests.support.logs_by_hand import GB, KB, MB, column, log, rates
from tests.support.pages import EFA, HOSTILE, TCP, Page, page


def written(runs: Sequence[RunPage]) -> str:
    return "".join(page_of([run_section(run, number) for number, run in enumerate(runs, 1)]))


def test_hostile_text_is_no_markup() -> None:
    plain, hostile = Page(written([page()])), Page(written([page(HOSTILE, first=HOSTILE)]))
    assert hostile.tags == plain.tags
    assert hostile.attributes == plain.attributes
    assert "onerror=alert(1)" in hostile.text
    assert "\u202e" not in hostile.text


def test_nothing_is_fetched_and_nothing_runs() -> None:
    text = written([page(), page()])
    found = Page(text)
    assert not found.tags & {"script", "link", "img", "iframe", "object", "base", "form"}
    assert not {name for name in found.attributes if name.startswith("on") or name == "src"}
    assert all(target.startswith("#") for target in found.targets)
    assert set(re.findall(r"url\(([^)]*)\)", text)) == {f"#mark{index}" for index in range(KINDS)}
    assert "default-src 'none'" in text


def test_every_plot_has_a_name_and_a_table() -> None:
    found = Page(written([page(), page()]))
    assert len(found.ids) == len(set(found.ids))
    assert {"run-1-0-0-0-title", "run-1-0-0-0-about", "run-2-1-0-0-about"} <= {*found.ids}
    assert found.text.count("Values as a table") == 2  # of the second metric of each run
    assert "1 zero value of TCP not plotted." in found.text


def test_several_runs_begin_with_an_overview() -> None:
    found = Page(written([page(), replace(page("night"), id="def456")]))
    assert found.targets == ["#main", "#run-1", "#run-2"]
    assert found.text.index("Overview") < found.text.index("Run abc123")
    assert "Overview" not in Page(written([page()])).text


def test_a_run_without_a_result_has_a_page() -> None:
    empty = RunPage(id="a", name="", about="x", created="", outcomes="none", gates="", programs={})
    assert "No result." in Page(written([empty])).text


# ---------------------------------------------------------------- plots


def points(root: ET.Element) -> list[list[tuple[float, float]]]:
    lines = [each for each in root.iter() if each.tag.endswith("polyline")]
    pairs = [
        [tuple(map(float, pair.split(","))) for pair in each.attrib["points"].split()]
        for each in lines
    ]
    # the others are marks of labels
    return [[(x, y) for x, y in line] for line in pairs if len({*line}) > 1]


def test_both_axes_are_logarithmic() -> None:
    (plot,) = plots(compare([rates("a", [(KB, 0.1), (MB, 1), (GB, 10)])]))
    for (drawn,) in map(
        points, ET.fromstring(f"<div>{to_svg(plot)}</div>")
    ):  # for a wide window and for phones
        (left, low), (middle, half), (right, high) = drawn
        assert abs(middle - left - (right - middle)) < 0.2
        assert abs((low - half) - (half - high)) < 0.2
        assert low > high  # downwards is less


def test_sizes_between_two_powers_of_two_have_a_plot() -> None:
    """None of them is labeled below it."""
    (plot,) = plots(compare([rates("a", [(5 * MB, 1), (7 * MB, 1.1)])]))
    assert [drawn["below"] for drawn in plot.drawn] == [[], []]


def test_an_interval_is_drawn_where_there_are_repeats() -> None:
    def several(label: str, *values: float) -> list[Picture]:
        new = column(label, *(log([(GB, value * 1e9)]) for value in values))
        return list(plots(compare([new, column("b", log([(GB, 1e9)]), log([(GB, 1.1e9)]))])))

    (plot,) = several("a", 2.0, 2.2)
    assert [line.band for line in plot.drawn[0]["lines"]] == [((GB, 2.0, 2.2),), ((GB, 1.0, 1.1),)]


def test_a_value_of_0_is_left_out_and_named() -> None:
    comparison = compare([EFA, TCP])
    (plot,) = plots(comparison)
    assert [len(line.points) for line in plot.drawn[0]["lines"]] == [2, 1]
    assert list(left_out(comparison, comparison.sections[0])) == [
        "1 zero value of TCP not plotted."
    ]
    some = compare(
        [
            column(
                "a",
                log([(KB, 0), (MB, 1e9)]),
                log([(KB, 3e7), (MB, 1e9)]),
                log([(KB, 2e7), (MB, 1e9)]),
            )
        ]
    )
    assert (
        list(left_out(some, some.sections[0])) == []
    )  # one of its repeats is 0, the median is not


def test_a_file_of_plots_is_xml_whatever_the_labels() -> None:
    labelled = [replace(EFA, label=HOSTILE * 3), *(replace(TCP, label=f"x{n}") for n in range(9))]
    text = to_svg_file([*plots(compare(labelled))])
    assert {each.tag.rpartition("}")[2] for each in ET.fromstring(text).iter()} <= {
        *(
            "svg",
            "title",
            "style",
            "defs",
            "marker",
            "rect",
            "g",
            "desc",
            "text",
            "path",
            "polyline",
        ),
        *("polygon", "circle", "tspan"),
    }
    assert "http://" not in text.replace("http://www.w3.org/2000/svg", "")


# ---------------------------------------------------------------- what was to be expected

P4D: dict[str, str | int] = {"instance_type": "p4d.24xlarge", "nodes": 2, "nics": 4}
EFA_ON_P4D = rates("EFA", [(MB, 4), (2 * GB, 77)], **P4D, transport="efa")
TCP_ON_P4D = rates("TCP", [(MB, 1), (2 * GB, 4)], **P4D, transport="socket")


def test_values_stand_beside_the_ceiling_and_published_figures() -> None:
    (plot,) = plots(compare([EFA_ON_P4D, TCP_ON_P4D]))
    assert plot.drawn[0]["ceilings"] == [93.75]  # of both: one line
    assert [(each.size, each.low, each.high, each.kind) for each in plot.drawn[0]["published"]] == [
        (2 * GB, 77.35, 77.9, 0),
        (2 * GB, 4.13, 8.2, 1),
    ]
    assert "EFA: normal: 77 GB/s at 2 GB, 82 % of the ceiling" in plot.description
    drawn, phone = ET.fromstring(f"<div>{to_svg(plot)}</div>")
    kinds = [each.attrib.get("class") for each in drawn.iter("path")]
    assert [kind for kind in kinds if kind not in {None, "grid"}] == [
        "ceiling call",
        "published c0",
        "published c1",
    ] * 2
    for each in (drawn, phone):
        texts = {text.text for text in each.iter("text")}
        assert {"ceiling 93.75", "published 77.35–77.9", "published 4.13–8.2", "EFA 77"} < texts
    assert ["".join(text.itertext()) for text in drawn.findall(".//g/text")] == [
        "1 MBEFA 4TCP 1",
        "2 GBEFA 77TCP 4",
    ]
    head = Page(written([comparison_page(compare([EFA_ON_P4D, TCP_ON_P4D]))])).text
    figures = "busbwat2GB77GB/sEFAspeed-upoverTCP19.3xTCP:4GB/softheNICs'ceiling82%"
    assert figures in "".join(head.split())
    assert "2 × p4d.24xlarge, 8 × A100, 4 NICs" in head
