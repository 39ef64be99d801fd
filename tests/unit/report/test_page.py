"""Runs as an HTML page, and their plots: whole, escaped, and nothing fetched."""

import re
from collections.abc import Sequence
from dataclasses import replace
from xml.etree import ElementTree as ET

import pytest

from fabbench.analysis.aggregate import Column
from fabbench.analysis.compare import Comparison, compare
from fabbench.model.log import Finding, Severity
from fabbench.report.page import RunPage, comparison_page, page_of, run_section
from fabbench.report.svg import KINDS, Axis, Panel, Picture, plots, to_svg, to_svg_file
from tests.support.logs_by_hand import GB, KB, MB, column, log, rates
from tests.support.pages import EFA, HOSTILE, TCP, Page, assert_nothing_is_fetched, page


def written(runs: Sequence[RunPage]) -> str:
    return "".join(page_of([run_section(run, number) for number, run in enumerate(runs, 1)]))


def test_hostile_text_is_no_markup() -> None:
    plain, hostile = Page(written([page()])), Page(written([page(HOSTILE, first=HOSTILE)]))
    assert hostile.tags == plain.tags
    assert hostile.attributes == plain.attributes
    assert "onerror=alert(1)" in hostile.text
    assert "\u202e" not in hostile.text


def test_nothing_is_fetched_and_only_its_own_script_runs() -> None:
    text = written([page(), page(HOSTILE, first=HOSTILE)])
    assert_nothing_is_fetched(text)
    assert set(re.findall(r"url\(([^)]*)\)", text)) == {f"#mark{index}" for index in range(KINDS)}
    assert re.search(r"Written on <time>\d{4}-\d\d-\d\d \d\d:\d\d</time> UTC by fabbench \d", text)


@pytest.mark.parametrize(
    ("address", "linked"),
    [
        ("https://example.org/fabbench", True),
        ("https://github.com/OWNER/project", False),  # Before anybody has said where it is
    ],
)
def test_the_footer_links_a_project_whose_address_is_known(
    monkeypatch: pytest.MonkeyPatch, address: str, linked: bool
) -> None:
    known = {"Project-URL": f"Source, {address}"}
    monkeypatch.setattr("importlib.metadata.metadata", lambda name: known)
    assert (f'by <a href="{address}">fabbench' in written([page()])) is linked


def test_every_plot_has_a_name_and_a_table() -> None:
    found = Page(written([page(), page()]))
    assert len(found.ids) == len(set(found.ids))
    assert {"run-1-0-0-0-title", "run-1-0-0-0-about", "run-2-1-0-0-about"} <= {*found.ids}
    assert found.text.count("Values as a table") == 2  # of the second metric of each run
    assert "Values of 0 are not plotted" in found.text


def test_several_runs_begin_with_an_overview() -> None:
    found = Page(written([page(), replace(page("night"), id="def456")]))
    assert found.targets[:3] == ["#main", "#run-1", "#run-2"]
    assert {each.removeprefix("#") for each in found.targets} <= {*found.ids}
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
    assert [drawn["below"] for drawn in plot.drawn] == [[], [], []]


def test_a_size_of_0_has_a_plot() -> None:
    """As of benchmarks that state none."""
    (plot,) = plots(compare([rates("a", [(0, 1)])]))
    assert [dict(drawn["below"]) for drawn in plot.drawn] == [{2: "2 B", 1: "1 B"}] * 3


def test_an_interval_is_drawn_where_there_are_repeats() -> None:
    def several(label: str, *values: float) -> list[Picture]:
        new = column(label, *(log([(GB, value * 1e9)]) for value in values))
        return list(plots(compare([new, column("b", log([(GB, 1e9)]), log([(GB, 1.1e9)]))])))

    (plot,) = several("a", 2.0, 2.2)
    values, changes = (each.content for each in plot.drawn[0]["panels"])
    assert [line.shaded for line in values.lines] == [True, True]
    assert [(each.low, each.high) for line in values.lines for each in line.points] == [
        (2.0, 2.2),
        (1.0, 1.1),
    ]
    ((size, ratio, low, high),) = changes.lines[0].points
    assert size == GB
    assert low < 2 < high
    assert low < ratio < high


def changes_of(comparison: Comparison) -> tuple[Panel, Axis]:
    (plot,) = plots(comparison)
    _, changes = plot.drawn[0]["panels"]
    assert changes.linear is None
    return changes.content, changes.y


def repeated(label: str, *factors: float) -> Column:
    """Return a column with a log per factor, of three sizes."""
    logs = [log([(size, factor * 1e9) for size in (KB, MB, GB)]) for factor in factors]
    return column(label, *logs)


def test_changes_tell_two_lines_apart_that_coincide() -> None:
    """Under the values: the ratio with its interval, and where there is no change."""
    before = repeated("before", 1.0, 1.002, 0.998)
    slower, y = changes_of(compare([repeated("after", 0.9, 0.902, 0.898), before]))
    (line,) = slower.lines
    assert [round(each.value, 3) for each in line.points] == [0.9] * 3
    assert all(each.low < 0.9 < each.high < 1 for each in line.points)
    assert y.place(0.9) - y.place(1) > 40  # pixels
    assert {"0 %", "-5 %", "-10 %"} <= {label for _, label in y.ticks(slower.written)}
    assert [label.text for label in slower.labels()] == ["after -10 %", "no change"]
    faster, y = changes_of(compare([repeated("after", 5.0, 5.01), before]))
    assert {"0 %", "5 x"} <= {label for _, label in y.ticks(faster.written)}
    (alone,) = plots(compare([before]))
    assert len(alone.drawn[0]["panels"]) == 1


def test_intervals_do_not_hide_changes() -> None:
    """Assumed ones of single logs are wide: they are cut; those of many lines are not shaded."""
    some = [repeated(f"new{number}", 1 + number / 50) for number in range(1, 5)]
    base = repeated("base", 1.0)
    one, y = changes_of(compare([some[-1], base]))
    (wide,) = one.lines
    assert wide.shaded
    assert max(each.high for each in wide.points) > 1.3
    assert y.place(1) - y.place(1.08) > 15
    many, _ = changes_of(compare([*some, base]))
    assert [line.shaded for line in many.lines] == [False] * 4
    (plot,) = plots(compare([*some, base]))
    assert [note for note in plot.notes if "up to 3 columns" in note]
    told = dict(plot.drawn[0]["told"])
    assert told[GB][0] == "1 GB"
    assert told[GB][1].startswith("new1 1.02, +2.0 % (")
    assert told[GB][-1] == "base 1"


def test_a_few_odd_sizes_do_not_set_the_scale_of_changes() -> None:
    sizes = [KB << step for step in range(16)]
    base = column("base", log([(size, 1e9) for size in sizes]))
    odd = [(size, 9e9 if size == KB else 0.95e9) for size in sizes]
    _, y = changes_of(compare([column("new", log(odd)), base]))
    assert y.place(0.95) - y.place(1) > 30
    assert y.place(9) == y.end


def test_a_linear_axis_begins_at_0_and_only_pages_have_it() -> None:
    (plot,) = plots(compare([rates("a", [(KB, 0.1), (MB, 1), (GB, 10)])]))
    _, wide, _ = ET.fromstring(f"<div>{to_svg(plot)}</div>")
    line, sample = [each for each in wide.iter("polyline") if "data-linear" in each.attrib]
    places = [float(pair.partition(",")[2]) for pair in line.attrib["data-linear"].split()]
    lowest, middle, highest = places
    assert abs((middle - highest) / (lowest - highest) - 9 / 9.9) < 0.01
    assert sample.attrib["data-linear"] != sample.attrib["points"]
    assert "data-linear" not in to_svg_file([plot])


def test_a_value_of_0_is_left_out_and_named() -> None:
    comparison = compare([EFA, TCP])
    (plot,) = plots(comparison)
    assert [len(line.points) for line in plot.drawn[0]["panels"][0].content.lines] == [2, 1]
    assert "Values of 0 are not plotted" in Page(written([comparison_page(comparison)])).text
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
    # One of its repeats is 0, the median is not
    assert "not plotted" not in Page(written([comparison_page(some)])).text


def test_backquotes_are_code_and_a_lone_one_is_text() -> None:
    logs = tuple(
        replace(
            each,
            findings=[Finding(code="x", severity=Severity.NOTE, meaning="Run `<a> b`, not `c")],
        )
        for each in EFA.logs
    )
    text = written([comparison_page(compare([replace(EFA, logs=logs)]))])
    assert "Run <code>&lt;a&gt; b</code>, not `c" in text


def test_a_heading_names_a_few_of_many_columns() -> None:
    many = [replace(EFA, label=f"night-{number:02}") for number in range(20)]
    about = comparison_page(compare(many))
    assert about.id == "night-00, night-01, night-02 and 16 more vs night-19"


def test_what_is_alike_of_many_columns_is_said_once() -> None:
    many = [replace(EFA, label=f"night-{number:02}") for number in range(20)]
    found = Page(written([comparison_page(compare(many))]))
    assert found.text.count("The logs show") == 1
    assert "night-00, night-01, night-02, night-03 and 16 more: ok" in found.text


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
    values = plot.drawn[0]["panels"][0].content
    assert values.ceilings == (93.75,)  # of both: one line
    assert [(each.size, each.low, each.high, each.kind) for each in values.published] == [
        (2 * GB, 77.35, 77.9, 0),
        (2 * GB, 4.13, 8.2, 1),
    ]
    assert "EFA: normal: 77 GB/s at 2 GB, 82 % of the ceiling" in plot.description
    drawn, wide, phone = ET.fromstring(f"<div>{to_svg(plot)}</div>")
    kinds = [each.attrib.get("class") for each in drawn.iter("path")]
    assert [kind for kind in kinds if kind not in {None, "grid", "reference"}] == [
        "ceiling call",
        "published c0",
        "published c1",
    ] * 2
    for each in (drawn, wide, phone):
        texts = {text.text for text in each.iter("text")}
        assert {"ceiling 93.75", "published 77.35–77.9", "published 4.13–8.2", "EFA 77"} < texts
    assert ["".join(text.itertext()) for text in drawn.findall(".//g[@class='at']/text")] == [
        "1 MBEFA 4, 4.0 x (2.3 to 7.0 x)TCP 1",
        "2 GBEFA 77, 19.3 x (14.6 to 25.4 x)TCP 4",
    ]
    head = Page(written([comparison_page(compare([EFA_ON_P4D, TCP_ON_P4D]))])).text
    figures = "busbwat2GB77GB/sEFAchangeagainstTCP19.3xTCP:4GB/softheNICs'ceiling82%"
    assert figures in "".join(head.split())
    assert "2 × p4d.24xlarge, 8 × A100, 4 NICs" in head
