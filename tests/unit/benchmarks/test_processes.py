"""Runs of several processes, on a made-up program: lines in, records out."""

from collections.abc import Sequence
from dataclasses import dataclass

from fabbench.benchmarks import processes
from fabbench.benchmarks.events import (
    Ahead,
    Begin,
    End,
    Error,
    Event,
    Events,
    Header,
    Setting,
)
from fabbench.benchmarks.executions import Execution, Table
from fabbench.benchmarks.tables import SIZE, Column
from fabbench.model.compat import override
from fabbench.model.log import (
    NO_STEP,
    NO_STREAM,
    Line,
    Record,
    Stream,
    begin_marker,
    read_marker,
)


def _events(text: str, execution: Execution | None) -> Events | None:
    """Read `start PROGRAM`, `names`, `FACT=VALUE`, `next FACT=VALUE`, `done` and `error TEXT`."""
    del execution
    word, _, rest = text.partition(" ")
    name, is_fact, value = text.removeprefix("next ").partition("=")
    if is_fact:
        stated = Setting(facts={name: value})
        return (Ahead((stated,)),) if word == "next" else (stated,)
    known: dict[str, Sequence[Event]] = {
        "start": (Begin(), Setting(rest)),
        "names": (Header(((SIZE, Column("latency", cell=r"\d+\.\d")),)),),
        "done": (End(),),
        "error": (Error(rest),),
    }
    return known.get(word)


@dataclass(slots=True, eq=False)
class Process(processes.Process):
    """One that a line `start` begins, and whose other side has another one without a name."""

    @override
    def is_ended_by(self, events: Events) -> bool:
        return any(isinstance(event, Begin) for event in events)

    @property
    @override
    def is_told_by_peer(self) -> bool:
        return self.stream == NO_STREAM and self.step is NO_STEP

    @override
    def is_peer(self, other: processes.Process) -> bool:
        return {*self.reported.get("end", ()), *other.reported.get("end", ())} == {"a", "b"}

    @property
    @override
    def shows_run(self) -> bool:
        return "end" in self.reported or not self.is_told_by_peer


class Reader(processes.ProcessesReader):
    """Reads the made-up program."""

    table = Table(benchmark="toy", events=_events)
    process = Process


def _read(*texts: str | tuple[str, Stream], reader: Reader | None = None) -> list[Record]:
    """Return the records of lines; of another stream than usual where one is given."""
    reader = reader or Reader()
    records: list[Record] = []
    for number, each in enumerate(texts, 1):
        text, stream = (each, NO_STREAM) if isinstance(each, str) else each
        marker = read_marker(text)
        if marker is not None:
            readings = reader.mark(marker)
        else:
            readings = reader.feed(Line(number, text, stream)) or ()
        records += (reading for reading in readings if isinstance(reading, Record))
    return [*records, *(each for each in reader.close() if isinstance(each, Record))]


def _sizes(records: Sequence[Record]) -> list[list[int]]:
    return [[point.size for point in record.points] for record in records]


ONE, OTHER = Stream(rank="0"), Stream(rank="1")
STEP = begin_marker("run/1", {"benchmark": "toy", "device": "nic0", "size": 8})
SECOND = begin_marker("run/2", {"benchmark": "toy", "device": "nic1", "size": 16})


def _table(size: int, stream: Stream = NO_STREAM, *told: str) -> list[tuple[str, Stream]]:
    return [(text, stream) for text in ("start p", *told, "names", f"{size} 1.0")]


def test_the_kth_processes_of_all_ranks_are_one_run() -> None:
    first = [*_table(1, ONE), *_table(2, OTHER)]
    assert _sizes(_read(*first, *_table(3, ONE), *_table(4, OTHER))) == [[1, 2], [3, 4]]


def test_a_process_whose_run_is_over_has_one_of_its_own() -> None:
    first = [*_table(1, ONE), *_table(2, OTHER)]
    late = [*_table(3, ONE), *_table(5, ONE), *_table(4, OTHER)]
    assert _sizes(_read(*first, *late)) == [[3], [1, 2], [5], [4]]


def test_a_run_is_returned_as_soon_as_no_process_can_be_of_it() -> None:
    reader = Reader()
    for number, (text, stream) in enumerate([*_table(1, ONE), *_table(2, OTHER), *_table(3, ONE)]):
        assert not any(
            isinstance(each, Record) for each in reader.feed(Line(number, text, stream)) or ()
        )
    (over,) = reader.feed(Line(20, "start p", OTHER)) or ()
    assert isinstance(over, Record)
    assert _sizes([over]) == [[1, 2]]


def test_without_names_of_streams_a_process_is_of_the_run_of_its_other_side() -> None:
    a, b, also_b = _table(1, NO_STREAM, "end=a"), _table(2, NO_STREAM, "end=b"), _table(3)
    assert _sizes(_read(*a, *b)) == [[1, 2]]
    assert _sizes(_read(*a, *a)) == [[1], [1]]
    assert _sizes(_read(*a, *b, *b)) == [[1, 2], [2]]
    assert _sizes(_read(*a, *also_b)) == [[1], [3]]


def test_two_programs_are_no_run() -> None:
    assert _sizes(
        _read(*_table(1, ONE), ("start q", OTHER), ("names", OTHER), ("2 1.0", OTHER))
    ) == [
        [1],
        [2],
    ]


def test_the_steps_of_an_execution_are_one_run_and_other_devices_are_off_fabric() -> None:
    first, second = _table(8, ONE, "device=nic0"), _table(16, ONE, "device=nic1")
    (record,) = _read(STEP, *first, SECOND, *second)
    assert (_sizes([record]), record.off_fabric) == ([[8, 16]], "")
    (record,) = _read(STEP, *first, SECOND, *first)
    assert "nic1" in record.off_fabric
    assert len(_read(STEP, *first, begin_marker("other/1", {"benchmark": "toy"}), *second)) == 2


def test_a_step_without_any_line_has_a_record_and_a_step_of_another_benchmark_has_none() -> None:
    assert _sizes(_read(STEP)) == [[]]
    assert _read(begin_marker("run/1", {"benchmark": "nccl"})) == []


def test_facts_of_all_processes_are_joined_and_findings_come_once() -> None:
    lines = [*_table(1, ONE, "nic=x", "qps=1"), *_table(2, OTHER, "nic=y", "qps=1")]
    (record,) = _read(*lines, ("error bad luck", ONE), ("error bad luck", OTHER))
    assert record.facts == {"nic": "x, y", "qps": "1"}
    assert record.failures == ["p said: bad luck"]


def test_what_is_said_ahead_is_about_the_process_that_comes_next() -> None:
    said = Reader().feed(Line(1, "next gpu=h100", ONE))
    assert said is None  # another benchmark may read it, too
    first, second = _read(*_table(1, ONE), ("next gpu=h100", ONE), *_table(2, ONE))
    assert (first.facts, second.facts) == ({}, {"gpu": "h100"})


def test_a_run_is_finished_if_all_processes_with_rows_are_and_none_has_to_be() -> None:
    one, other = _table(1, ONE), _table(2, OTHER)
    (record,) = _read(*one, *other)
    assert record.finished is None
    (record,) = _read(*one, ("done", ONE), *other, ("done", OTHER))
    assert record.finished is True


def test_damaged_rows_of_all_processes_stand_in_the_order_of_their_lines() -> None:
    (record,) = _read(*_table(8, ONE), *_table(8, OTHER), ("4 1.0", OTHER), ("4 1.0", ONE))
    assert [row.line for row in record.damaged] == [7, 8]
