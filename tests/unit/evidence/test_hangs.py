"""Who waits for whom: what each source of a hang says, and the conclusion."""

import pytest

from fabbench.evidence.hangs import Call as Collective
from fabbench.evidence.hangs import Group, Hangs, RankState, is_sign, join


def watchdog(rank: int, number: int, call: str = "ALLREDUCE", elements: int = 8) -> str:
    return (
        f"[rank{rank}]:[E1 ProcessGroupNCCL.cpp:689] [Rank {rank}] Watchdog caught "
        f"collective operation timeout: WorkNCCL(SeqNum={number}, OpType={call}, "
        f"NumelIn={elements}, NumelOut={elements}, "
        "Timeout(ms)=10000) ran for 10026 milliseconds before timing out."
    )


def status(rank: int, started: int, ended: int, at: int = 0, group: str = "tp") -> str:
    seen = f"failure detected by watchdog at work sequence id: {at} PG status:" if at else ""
    return (
        f"[rank{rank}]:[E1 ProcessGroupNCCL.cpp:2303] [PG ID 1 PG GUID 1({group}) Rank {rank}]  "
        f"{seen} last enqueued work: {started}, last completed work: {ended}"
    )


def hangs(*lines: str) -> Hangs:
    found = Hangs()
    for line in lines:
        assert is_sign(line) or found.reports
        found.feed(line)
    return found


def meanings(found: Hangs) -> list[str]:
    return [each.meaning for each in found.findings()]


def test_a_rank_that_had_not_started_the_collective_is_named() -> None:
    found = hangs(watchdog(0, 4), status(0, 6, 3, at=4), status(1, 3, 3))
    (finding,) = found.findings()
    assert "Rank 1 had not started it (the last: 3)" in finding.meaning
    assert "process group tp, 2 more are queued" in finding.meaning
    assert "rank 1" in (finding.advice or "")


@pytest.mark.parametrize(("call", "elements"), [("ALLGATHER", 8), ("ALLREDUCE", 4)])
def test_a_rank_that_calls_something_else_at_that_number_is_named(call: str, elements: int) -> None:
    found = hangs(watchdog(0, 4), watchdog(1, 4), watchdog(2, 4, call, elements))
    (meaning,) = meanings(found)
    assert f"Rank 2 called {call} of {elements} elements at that number" in meaning


def test_a_rank_for_which_a_group_waits_may_wait_in_another() -> None:
    first = [watchdog(0, 4), status(0, 4, 3, at=4, group="tp")]
    second = [watchdog(1, 2), status(1, 2, 1, at=2, group="default_pg")]
    (finding,) = hangs(*first, *second).findings()
    assert "not named" in (finding.advice or ""), "a third rank may be the one that ended"
    both = hangs(*first, *second, status(0, 1, 1, group="default_pg"))
    (finding,) = both.findings()
    assert "Rank 0, for which default_pg waits, waits in tp" in finding.meaning


def test_groups_that_wait_for_each_other_were_called_in_another_order() -> None:
    one = [watchdog(0, 4), status(0, 4, 3, at=4), status(1, 3, 3)]
    other = [watchdog(1, 2), status(1, 2, 1, at=2, group="dp"), status(0, 1, 1, group="dp")]
    (meaning,) = meanings(hangs(*one, *other))
    assert (
        "Rank 1, for which tp waits, waits in dp. Rank 0, for which dp waits, waits in" in meaning
    )
    assert "the program differs between ranks" in meaning


def test_what_is_said_again_is_one_wait() -> None:
    lines = [watchdog(0, 4), status(0, 4, 3, at=4), status(1, 1, 1, group="dp"), watchdog(0, 4)]
    (meaning,) = meanings(hangs(*lines))
    assert meaning.count("waited") == 1


def test_sends_and_receives_have_their_own_numbers() -> None:
    lines = [watchdog(0, 4), status(0, 4, 3, at=4), watchdog(1, 4, "RECV"), status(1, 4, 3, at=4)]
    (meaning,) = meanings(hangs(*lines))
    assert "Rank 1 waited 10.03 s in RECV" in meaning
    assert "differs" not in meaning


def test_a_rank_may_wait_in_two_groups() -> None:
    lines = [
        watchdog(0, 4),
        watchdog(0, 9),
        status(0, 4, 3, at=4),
        status(0, 9, 8, at=9, group="dp"),
    ]
    (meaning,) = meanings(hangs(*lines))
    assert "number 4 of process group tp" in meaning
    assert "number 9 of process group dp" in meaning


def test_each_other_call_is_told_of_its_own_ranks() -> None:
    same = [watchdog(rank, 4) for rank in range(3)]
    found = hangs(*same, watchdog(3, 4, "ALLGATHER"), watchdog(4, 4, "BROADCAST"))
    (meaning,) = meanings(found)
    assert "Rank 3 called ALLGATHER of 8 elements, Rank 4 called BROADCAST" in meaning


def test_a_torn_line_of_the_watchdog_swallows_no_other() -> None:
    torn = watchdog(0, 4)[:-120]
    assert "Work" in torn
    found = Hangs()
    for line in (torn[: torn.index("Work") + 4], "something else", watchdog(1, 5)):
        found.feed(line)
    (meaning,) = meanings(found)
    assert meaning.startswith("Rank 1 waited")


@pytest.mark.parametrize("more", ["", " watchdog got stuck for 480 seconds"])
def test_a_heartbeat_without_a_queue_names_the_rank_that_printed_it(more: str) -> None:
    line = f"[rank3]:[E] [PG 0 Rank 3] Heartbeat monitor timed out!{more}"
    (finding,) = hangs(line).findings()
    assert (finding.code, "rank 3" in (finding.advice or "")) == ("watchdog-stuck", True)


def test_what_all_ranks_started_accuses_none() -> None:
    found = hangs(watchdog(0, 4), watchdog(1, 4), status(0, 4, 3, at=4), status(1, 4, 3, at=4))
    (finding,) = found.findings()
    assert "of process group tp. If these are all ranks, none is behind" in finding.meaning
    assert "not named" in (finding.advice or "")


def test_a_line_that_a_page_wrapped_is_read() -> None:
    whole = watchdog(2, 1890)
    at = whole.index("NCCL(")
    assert meanings(hangs(whole[:at], whole[at:])) == meanings(hangs(whole))


def test_ranks_that_are_too_many_to_keep_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabbench.evidence.hangs._MOST_RANKS", 2)
    stuck = (
        f"[rank{rank}]: [PG ID 1 PG GUID 1(default_pg) Rank {rank}] ProcessGroupNCCL's watchdog "
        "got stuck for 480 seconds without making progress"
        for rank in range(4)
    )
    found = hangs(*stuck, status(1, 5, 4, group="default_pg"))
    ranks = found.groups[Group("default_pg", "1")]
    assert [*ranks] == [0, 1]
    assert ranks[1].started == 5


def test_the_shorter_queue_is_behind() -> None:
    lines = [
        f"[rank{rank}]:[E] [PG 0 Rank {rank}] Heartbeat monitor timed out! "
        f"workMetaList_.size()={queued}"
        for rank, queued in ((0, 84), (1, 103), (2, 103))
    ]
    (finding,) = hangs(*lines).findings()
    assert finding.code == "watchdog-stuck"
    assert "Rank 0 had queued 84 collectives, others 103" in finding.meaning


def test_the_desync_report_comes_first() -> None:
    found = hangs(
        watchdog(0, 241),
        "	 - To our best knowledge, the lagging/dead/mismatched ranks that caused "
        "the desync are:",
        "	     [7] finished collective #182, but didn't join collective #183 (count from 1)",
    )
    first, second = found.findings()
    assert (first.code, second.code) == ("ranks-missing", "collective-timeout")
    assert "Rank 7 did not join it" in second.meaning


def test_processes_of_one_job_know_each_other_and_only_one_that_waits_says_so() -> None:
    one = hangs(watchdog(0, 4), status(0, 4, 3, at=4))
    other = hangs(status(1, 3, 3))
    join([one, other])
    assert "Rank 1 had not started it" in meanings(one)[0]
    assert meanings(one) == meanings(one)
    assert (other.is_shown(), meanings(other)) == (False, [])


def test_a_rank_has_started_what_it_waits_in() -> None:
    waits = RankState(waits_for=4, calls={4: Collective("ALLREDUCE")})
    assert (waits.has_started(4), RankState(started=3).has_started(4)) == (True, False)


@pytest.mark.parametrize(
    "line",
    [
        watchdog(0, 4).replace("10026", "9" * 600),
        f"[rank2]: [/w/gloo/buffer.cc:78] Timed out waiting {'9' * 600}ms for recv",
        "[rank0]: [Rank 0]: Ranks 1, , 2 failed to pass monitoredBarrier in 4000 ms",
        "[, 3] finished collective #4, but didn't join collective #5",
    ],
)
def test_numbers_that_no_program_prints_are_left_out(line: str) -> None:
    found = Hangs()
    found.feed(line)
    assert found.laggards == {}
    assert "9999" not in "".join(meanings(found))


def test_over_gloo_a_rank_waits_in_the_collective_of_its_traceback() -> None:
    found = hangs(
        '[rank2]:   File "torch/distributed/distributed_c10d.py", line 4181, in all_reduce',
        "[rank2]: RuntimeError: [/w/gloo/buffer.cc:78] Timed out waiting 8000ms for recv operation",
    )
    assert meanings(found) == ["Rank 2 waited 8 s in all_reduce."]


@pytest.mark.parametrize(
    ("ranks", "are_all"), [((0, 1, 2), True), ((0, 2), False), ((1, 2), False), ((0,), False)]
)
def test_if_all_ranks_wait_nobody_is_behind(ranks: tuple[int, ...], *, are_all: bool) -> None:
    waits = (
        f"[rank{rank}]: [/w/gloo/buffer.cc:78] Timed out waiting 8000ms for recv operation"
        for rank in ranks
    )
    (meaning,) = meanings(hangs(*waits))
    assert ("none is behind" in meaning) == are_all
