"""What lines of nccl-tests mean, by themselves."""

import pytest

from fabbench.benchmarks.events import End, Fail, Header, Note, Setting, Wrong
from fabbench.benchmarks.executions import whole_row
from fabbench.benchmarks.nccl.lines import (
    LINE_KINDS,
    Device,
    LineKind,
    NcclEvent,
    Stage,
    read_command,
    read_line,
)
from fabbench.benchmarks.nccl.rows import UNNAMED
from fabbench.benchmarks.nccl.torn import TornRows
from fabbench.model.log import Line

ROW = "1024 256 float sum -1 20.01 0.05 0.09 0 21.01 0.05 0.09 0"
LIBRARY = "# nccl-tests version 2.17.8 nccl-headers=22809 nccl-library=22809"
CONFIG = "# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20"


@pytest.mark.parametrize("line", LINE_KINDS, ids=lambda each: each.kind)
def test_a_kind_of_line_is_known_by_its_example(line: LineKind) -> None:
    read = read_line(line.example)
    beside = read_line(line.counterexample)
    assert read is not None
    assert (read.kind, read.stage) == (line.kind, Stage[line.stage])
    assert beside is None or beside.kind != line.kind


@pytest.mark.parametrize(
    ("text", "events"),
    [
        (
            "#  Rank  3 Group  0 Pid   77 on  node-1 device  3 [0000:01:00] NVIDIA H100",
            (Device(3, "0", "node-1", "77", "3", "0000:01:00", "NVIDIA H100"),),
        ),
        (LIBRARY, (Setting(facts={"nccl_tests": "2.17.8"}), Setting(facts={"nccl": "2.28.9"}))),
        (
            CONFIG,
            (Note("sweep", "8 64 2 factor"), Setting(facts={"iterations": 20, "warmup": 5})),
        ),
        ("# Collective test starting: ./build/all_reduce_perf", (Setting(case="all_reduce"),)),
        ("# Out of bounds values : 0 OK", (End(),)),
        ("# Out of bounds values : 3 FAILED", (End(), Wrong(3))),
        (
            "# Reducing maxBytes to 64 due to memory limitation",
            (Note("reducing", "64", "# Reducing maxBytes to 64 due to memory limitation"),),
        ),
        (
            "invalid size specified for 'minbytes'",
            (Fail("nccl-tests reported an error: invalid size specified for 'minbytes'"),),
        ),
    ],
)
def test_a_line_says(text: str, events: tuple[NcclEvent, ...]) -> None:
    said = read_line(text)
    assert said is not None
    assert said.events == events


def test_names_of_columns_say_where_redop_may_be_blank() -> None:
    names = "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
    said = read_line(names)
    assert said is not None
    assert said.stage is Stage.HEADER
    (header,) = said.events
    assert isinstance(header, Header)
    assert [len(layout) for layout in header.layouts] == [13, 12]


def test_a_line_of_another_program_says_nothing_but_may_name_one() -> None:
    assert read_line("all_reduce of gradients took 3 s") is None
    assert read_command("mpirun -np 8 ./build/alltoall_perf -b 8") == "alltoall"
    assert read_command("mpirun -np 8 ./a.out") is None


@pytest.mark.parametrize("cut", [3, 12, 24, len(ROW) - 2])
def test_pieces_of_a_row_are_a_row(cut: int) -> None:
    torn = TornRows(UNNAMED)
    whole = whole_row(Line(1, ROW), UNNAMED)
    assert torn.feed(Line(1, ROW[:cut]), closed=False) == ()
    assert torn.feed(Line(2, "of another program"), closed=False) is None
    assert torn.feed(Line(3, ROW[cut:]), closed=False) == (whole,)
    assert torn.held is None
