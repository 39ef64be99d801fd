"""Rows for NCCL's example tuner plug-in, which takes the first that fits."""

from itertools import chain

from fabbench.analysis.tuning import TunedSize
from fabbench.runs.tuner_csv import ranges

OWN = {
    TunedSize("all_reduce", 8): "ring,ll,1",
    TunedSize("all_reduce", 64): "ring,ll,1",
    TunedSize("all_reduce", 512): "nvls,simple,16",
    TunedSize("reduce", 8): "ring,simple,4",
}
WON = {TunedSize("all_reduce", 64): "tree,ll,2"}


def picked(rows: list[str], collective: str, size: int, here: str) -> str:
    """Return what the plug-in takes, as its pluginGetCollInfo does."""
    for row in rows:
        name, least, most, *choice, nodes, ranks = row.split(",")
        fits = name == collective and int(least) <= size <= int(most)
        if fits and f"{nodes},{ranks}" in {here, "-1,-1"}:
            return ",".join(choice)
    return "one channel"


def test_each_size_has_the_row_that_is_meant() -> None:
    rows = [*chain(ranges({**OWN, **WON}, "2,16"), ranges(OWN, "-1,-1"))]
    sizes = (8, 63, 64, 511, 512, 1 << 40)
    here = [picked(rows, "allreduce", size, "2,16") for size in sizes]
    assert here == ["ring,ll,1"] * 2 + ["tree,ll,2"] * 2 + ["nvls,simple,16"] * 2
    elsewhere = [picked(rows, "allreduce", size, "1,8") for size in sizes]
    assert elsewhere == ["ring,ll,1"] * 4 + ["nvls,simple,16"] * 2
    assert picked(rows, "reduce", 1 << 20, "1,8") == "ring,simple,4"


def test_neighbors_with_one_choice_share_a_row() -> None:
    assert len([*ranges(OWN, "-1,-1")]) == 3
