"""A prefix that was cut once is found by a lookup from then on, and stands for the same stream."""

from fabbench.logs.launcher_prefixes import Prefixes, RepeatedCuts
from fabbench.model.log import NO_STREAM, Stream
from tests.support.nccl_text import nccl_text
from tests.support.prefix_forms import behind

TAGGED = [f"[1,{rank}]<stdout>:{text}" for text in ("a", "b", "c") for rank in (0, 1)]
LEARNED = behind("pdsh", nccl_text([(1024, 1.0)]).split("\n")).splitlines()


class Counted(Prefixes):
    """Keeps the lines that were cut as a whole."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def cut(self, raw: str, outer: Stream = NO_STREAM) -> tuple[str, Stream]:
        self.lines.append(raw)
        return super().cut(raw, outer)


def test_a_prefix_is_cut_once_and_then_looked_up() -> None:
    prefixes = Counted()
    cuts = RepeatedCuts(prefixes)
    assert [cuts.cut(line) for line in TAGGED] == [Prefixes().cut(line) for line in TAGGED]
    assert prefixes.lines == TAGGED[:2]


def test_a_prefix_behind_what_was_cut_is_cut_by_the_whole_and_then_looked_up() -> None:
    """A line without a prefix leaves open whether the next one has one."""
    cuts = RepeatedCuts(Prefixes())
    cuts.cut("no prefix")
    first, second, third, _, fifth, _ = TAGGED
    assert cuts.cut(first) == (first, NO_STREAM)
    whole = cuts.cut_whole(first)
    assert whole == Prefixes().cut(first) != (first, NO_STREAM)
    assert cuts.cut(third) == ("b", whole[1])
    assert cuts.cut(second) == (second, NO_STREAM)
    assert cuts.cut("nothing") == ("nothing", NO_STREAM)
    assert cuts.cut(fifth) == ("c", whole[1])


def test_what_was_cut_counts_no_more_when_another_prefix_is_learned() -> None:
    prefixes = Prefixes()
    cuts = RepeatedCuts(prefixes)
    before = [cuts.cut(line)[0] for line in LEARNED]
    assert before == LEARNED
    assert any(prefixes.learn(line) for line in LEARNED)
    assert [cuts.cut(line) for line in LEARNED] == [prefixes.cut(line) for line in LEARNED]
    assert all(cuts.cut(line)[0] != line for line in LEARNED)


def test_what_ends_behind_the_text_is_no_prefix_to_look_up() -> None:
    """A cell of a table ends behind the text: a line that begins alike may end otherwise."""
    cell = "[1,0]<stdout>:a | |"
    prefixes = Counted()
    cuts = RepeatedCuts(prefixes)
    text, _ = cuts.cut(cell)
    assert not cell.endswith(text)
    cuts.cut(cell)
    assert prefixes.lines == [cell] * 2
