"""Text that was copied: with a margin, or from a window whose width has cut its lines."""

from collections import Counter
from collections.abc import Callable, Iterator
from textwrap import indent

import pytest

from fabbench.logs.copied import unwrapped, without_margin
from tests.support.corpus import paths
from tests.support.read_logs import read_kinds
from tests.unit.evidence.test_dead_runs import CASES

WATCHDOG = (
    "[rank{rank}]:[E1105 17:40:08 ProcessGroupNCCL.cpp:607] [Rank {rank}] Watchdog caught "
    "collective operation timeout: WorkNCCL(SeqNum=2, OpType=BROADCAST, NumelIn=48, NumelOut=48, "
    "Timeout(ms)=900000) ran for 900034 milliseconds before timing out."
)
RANKS = [WATCHDOG.format(rank=rank) for rank in (8, 9, 10, 11)]

PROSE = """\
This is usually due to either a failure of the TCP network
connection to the node, or possibly an internal failure of
the daemon itself."""
TABLE = """\
1024        None      (null)    0.750000          1.000
Job Name shmem_put_bw_bidi: the factor is not set.
1048576     None      (null)    20.125000         1.000
Job Name shmem_put_bw_bidi: the factor is not set."""


def cut(text: str, width: int) -> str:
    """Return text as it is copied from a window of a width."""
    return "\n".join(piece for line in text.split("\n") for piece in pieces(line, width))


def pieces(line: str, width: int) -> Iterator[str]:
    for begin in range(0, max(len(line), 1), width):
        yield line[begin : begin + width]


@pytest.mark.parametrize("width", range(40, 230))  # below the length of two lines
def test_lines_are_whole_again_and_keep_their_numbers(width: int) -> None:
    whole = "\n".join(RANKS)
    text = cut(whole, width)
    found = unwrapped(text)
    assert [line for line in found.split("\n") if line] == RANKS
    assert found.count("\n") == text.count("\n")
    last = text.split("\n").index(RANKS[-1][:width])
    assert found.split("\n")[last] == RANKS[-1]


def test_no_window_is_as_narrow_as_39_columns() -> None:
    assert unwrapped(cut("\n".join(RANKS), 39)) == cut("\n".join(RANKS), 39)


def test_a_blank_at_a_cut_may_be_lost() -> None:
    unseen = []
    for width in range(40, 230):
        text = cut("\n".join(RANKS), width)
        trimmed = "\n".join(line.rstrip() for line in text.split("\n"))
        if unwrapped(trimmed) == trimmed != text:
            unseen.append(width)  # too few lines have the width
        else:
            assert unwrapped(trimmed) == unwrapped(text)
    assert len(unseen) < 25


def test_text_that_no_window_has_cut_stays_as_it_is() -> None:
    texts = {path.name: path.read_text(errors="replace") for path in paths()}
    small = {name: text for name, text in texts.items() if len(text) < 1 << 17}
    changed = {name for name, text in small.items() if unwrapped(text) != text}
    assert changed == {"lines-that-a-terminal-wrapped.txt"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n" * 3,
        "a" * 80,
        "\n".join(RANKS),
        # As long as each other, of one kind
        "\n".join(
            f"k1:7{rank}:90 [{rank}] NCCL INFO Channel 0{rank}/0 : 0[0]" for rank in range(9)
        ),
        PROSE,
        TABLE,
    ],
)
def test_lines_of_one_length_alone_show_nothing(text: str) -> None:
    assert unwrapped(text) == text


# (width, the least share of runs that are read as if no window had cut their lines)
WIDTHS = [
    (80, 0.9),
    pytest.param(100, 0.9, marks=pytest.mark.slow),
    pytest.param(120, 0.92, marks=pytest.mark.slow),
    pytest.param(160, 0.92, marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("width", "least"), WIDTHS)
def test_runs_that_died_are_read_as_if_no_window_had_cut_them(width: int, least: float) -> None:
    shown = Counter[str]()
    for case in CASES:
        text = cut(case["text"], width)
        if text == case["text"]:
            continue
        shown["cases"] += 1
        shown["same"] += read_kinds(text) == read_kinds(case["text"])
    print(f"\nat {width} columns: {dict(shown)}")
    assert shown["same"] >= least * shown["cases"]


def numbered(form: str, text: str) -> str:
    lines = text.rstrip("\n").split("\n")
    return "\n".join(form.format(at, line) for at, line in enumerate(lines, start=97))


MARGINS: dict[str, Callable[[str], str]] = {
    "of Markdown": lambda text: indent(text, "    "),
    "of a tab": lambda text: indent(text, "\t"),
    "of cat -n": lambda text: numbered("{:6}\t{}", text),
    "of less -N": lambda text: numbered("{:>7} {}", text),
    "of an editor": lambda text: numbered("{:4}: {}", text),
}


@pytest.mark.parametrize("name", MARGINS)
def test_a_margin_changes_nothing(name: str) -> None:
    for case in CASES:
        text = case["text"].rstrip("\n")
        lines = text.split("\n")
        if len(lines) >= 3 and not lines[0].startswith(" "):
            assert without_margin(MARGINS[name](text)).split("\n") == lines


def test_numbered_lines_may_end_with_an_empty_one() -> None:
    assert without_margin("1: a\n2: b\n3: c\n") == "a\nb\nc"


def test_only_a_margin_is_left_out() -> None:
    indented = (
        "index1607805282-gbits-rows.txt",
        "indented.txt",
        "a-sweep-that-ran-out-of-memory-indented.txt",
    )
    for path in paths():
        text = path.read_text(errors="replace")
        if path.name not in indented:
            assert without_margin(text) == text, path


@pytest.mark.parametrize(
    "text",
    [
        "1 0.31\n2 0.32\n4 0.33",  # sizes
        "1 0.31\n2 0.32",
        "7: a\n8: b\nc: d",
        "     8     2     float\n    16     4     float\n",  # rows
    ],
)
def test_numbers_of_a_table_are_no_margin(text: str) -> None:
    assert without_margin(text) == text
