"""Whether an arm ran what it claims, what a tune says and returns, and when its time begins."""

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from fabbench.analysis.tuning import TunedSize, Tuning
from fabbench.benchmarks.nccl.plan import NcclWork
from fabbench.model.errors import Exit
from fabbench.model.log import Facts, Outcome
from fabbench.model.plan import Configuration, Variant
from fabbench.plan.arms import DEFAULT
from fabbench.remote.transport import HostGoneError
from fabbench.report.templates import template
from fabbench.runs import tune
from fabbench.runs.document import StoreError
from fabbench.runs.run import RunResult
from fabbench.runs.tune import Tune, why_void, with_arms
from tests.support.logs_by_hand import log
from tests.support.requests import execution_by_hand, request
from tests.support.simulated_tunes import against_default

RING = {"algorithms": "RING/LL+RING/LL128", "channels": 16}


@pytest.mark.parametrize(
    ("env", "facts", "void"),
    [
        ({"NCCL_ALGO": "Ring"}, RING, False),
        ({"NCCL_ALGO": "RING,TREE", "NCCL_PROTO": "LL,LL128"}, RING, False),
        ({"NCCL_ALGO": "NVLSTree"}, {"algorithms": "NVLS_TREE/SIMPLE"}, False),
        ({"NCCL_ALGO": "TREE"}, RING, True),
        ({"NCCL_ALGO": "^TREE"}, RING, True),
        ({"NCCL_PROTO": "LL"}, RING, True),
        ({"NCCL_PROTO": "LL"}, {}, True),
        ({"NCCL_MIN_NCHANNELS": "8", "NCCL_MAX_NCHANNELS": "8"}, RING, True),
        ({"NCCL_MIN_NCHANNELS": "16", "NCCL_MAX_NCHANNELS": "16"}, RING, False),
        ({"NCCL_MIN_NCHANNELS": "many"}, RING, True),
        ({"NCCL_MIN_NCHANNELS": "32"}, {"algorithms": "RING/LL"}, True),
        ({"OFI_NCCL_PROTOCOL": "RDMA"}, {}, False),
    ],
)
def test_a_log_shows_what_ran(env: dict[str, str], facts: Facts, *, void: bool) -> None:
    assert why_void(Variant(name="arm", env=env), log([], facts=facts)).startswith("void") == void


def test_a_log_that_is_not_ok_does_not_count() -> None:
    assert why_void(None, log([], outcome=Outcome.CORRUPT, reason="2 wrong")) == "corrupt: 2 wrong"
    assert not why_void(None, log([]))


def better_at_one_size(*, confirms: bool = False, by_size: bool = False) -> Tune:
    """Return a tune of an arm that is better at one size, and likely slower at the other."""
    usual = {0: 0.0, 1: 0.01, 2: -0.01}
    fast = {0: 0.5, 1: 0.51, 2: 0.49}
    slow = {0: -0.02, 1: -0.04, 2: -0.06}
    tuning = Tuning(arms=("fast",), maximum=5)
    samples = {
        TunedSize("all_reduce", 8): {"fast": fast, DEFAULT: usual},
        TunedSize("all_reduce", 16): {"fast": slow, DEFAULT: usual},
    }
    tuning.look(against_default(samples), 3)
    asked = with_arms(request("nccl", NcclWork(), "socket"), [Variant(name="fast")])
    return Tune(asked, tuning, RunResult(id="a", path=Path("a")), confirms, by_size)


def said(made: Tune) -> str:
    return template("tune.txt").render(made=made)


def test_what_leads_at_some_sizes_is_an_answer_only_where_each_size_has_its_own() -> None:
    made, of_sizes = better_at_one_size(), better_at_one_size(by_size=True)
    made.tuning.open = of_sizes.tuning.open = ["other"]
    assert (made.status, made.winners) == (Exit.UNTRUSTED, [])
    assert "Not decided." in said(made)
    assert "Nothing beats" not in said(made)
    assert (of_sizes.status, [arm.name for arm in of_sizes.winners]) == (Exit.FINE, ["fast"])


@pytest.mark.parametrize("confirms", [False, True])
def test_a_gain_beside_a_loss_is_called_so(*, confirms: bool) -> None:
    made = better_at_one_size(confirms=confirms)
    made.tuning.open = []
    assert (made.status, made.winners) == (Exit.FINE, [])
    assert "Nothing beats the default everywhere" in said(made)


@pytest.mark.parametrize(
    ("ended", "status"),
    [
        ({"failure": HostGoneError("node1 is gone.")}, Exit.REFUSED),
        ({"failure": StoreError("No space left.")}, Exit.REFUSED),
        ({"release_failure": HostGoneError("node1 is gone.")}, Exit.REFUSED),
        ({"interrupted": True, "failure": StoreError("")}, Exit.INTERRUPTED),
    ],
)
def test_what_is_lost_decides_nothing(ended: dict[str, Any], status: Exit) -> None:
    made = better_at_one_size(by_size=True)
    assert made.winners
    lost = made._replace(result=replace(made.result, **ended))
    assert (lost.status, lost.winners) == (status, [])
    assert "fast won" not in said(lost)


def test_the_time_begins_with_the_first_execution(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("fabbench.runs.tune.time.monotonic", lambda: now)
    monkeypatch.setattr(tune, "stored_columns", lambda *_, **__: [])
    monkeypatch.setattr(tune, "look_at", lambda *_: None)
    default = Configuration(label=DEFAULT, fabric="socket", variant=DEFAULT)
    executions = [execution_by_hand(default, repeat=repeat) for repeat in (1, 2, 3)]
    tuning = Tuning(arms=("fast",), maximum=3)
    order = tune.in_turn(tuning, None, 5.0, cast("Any", None), executions, {})
    now = 100.0  # machines were allocated
    next(order)
    now = 104.0
    assert next(order).repeat == 2
    now = 105.0
    assert [*order] == []
