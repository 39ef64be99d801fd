"""What NCCL's inspector wrote of a job that is watched, in sentences."""

from collections.abc import Sequence

from fabbench.counters.watch import JobView, judged
from fabbench.model.errors import Exit
from fabbench.model.log import Proof, Severity
from fabbench.report.job_calls import with_calls
from tests.support.paths import DATA

FOLDER = DATA / "inspector"


def lines(kind: str) -> Sequence[str]:
    files = sorted((FOLDER / kind).iterdir())
    return [line for path in files for line in path.read_text().splitlines()]


def shown(kind: str, proof: Proof | None = None) -> JobView:
    return with_calls(JobView(note="RAS."), lines(kind), "/job", proof)


def test_the_figure_alone_and_who_is_waited_for() -> None:
    view = shown("skewed")
    codes = [each.code for each in view.calls]
    assert codes == ["inspector-speed", "inspector-speed", "rank-waited-for"]
    assert view.note == "RAS."
    assert "all_reduce at 64 MB: busbw 278.46 GB/s." in "".join(each.meaning for each in view.calls)


def test_beside_what_is_published() -> None:
    """A quarter of what two nodes with all their NICs reach, at a size that is published."""
    text = lines("skewed")[0].replace('"n_ranks":2,"nnodes":1', '"n_ranks":16,"nnodes":2')
    text = text.replace("67108864", "17179869184").replace(":25334,", ":268435,")
    text = text.partition('"coll_algobw_gbs"')[0]
    text += '"coll_algobw_gbs":64.000064,"coll_busbw_gbs":120.000120}}'
    view = with_calls(JobView(), [text], "/job", Proof(instance_type="p5.48xlarge"))
    speed, ranks = view.calls
    assert ranks.code == "inspector-ranks"
    assert speed.severity is Severity.NOTE
    assert "all_reduce at 16 GB runs at 25 % of what is normal here: low: 120 GB/s" in speed.meaning


def test_nothing_new_is_said_if_it_was_asked_for() -> None:
    assert "nothing new to /job" in with_calls(JobView(), [], "/job", None).note
    assert with_calls(JobView(), [], "", None) == JobView(calls=[])


def test_calls_say_that_a_job_runs_whose_nics_rest() -> None:
    """Ranks of one host need no NIC: what is not sampled decides nothing here."""
    assert judged({}, {}).status is Exit.UNTRUSTED
    assert judged({}, {}, shown("healthy")).status is Exit.FINE
    result = judged({}, {}, shown("skewed"))
    assert result.status is Exit.BAD_ANSWER
    assert result.last.startswith("bad: all_reduce: rank 1 (node-a, process 1674) comes last")
