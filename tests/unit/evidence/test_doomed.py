"""NCCL's return chains and warnings end a run that measured nothing, if it did not go on."""

import pytest

from tests.support.read_logs import read_one

HEAD = "node0:4711:4712 [0] "
CHANNEL = HEAD + "NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/IPC"
COMM = HEAD + "NCCL INFO comm 0x55 rank 0 nRanks 2 nNodes 1 localRanks 2 localRank 0 MNNVL 0"
DUPLICATE = HEAD + "init.cc:12 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on 38000"


@pytest.mark.parametrize(
    "chain",
    [
        "init.cc:1444 -> 3",
        "init.cc:1444 (ncclCommInitRankFunc) -> 3",
        "group.cc:64 (ncclAsyncJobMain) -> 3 [Async thread]",
        "misc/shmutils.cc:140 (ncclShmOpen) -> 2 (Permission denied)",
        "[init.cc:1444](http://init.cc:1444) -> 3",
        "[init.cc:1444](http://init.cc:1444) (ncclCommInitRankFunc) -> 3",
    ],
)
def test_a_return_chain_of_any_release_is_a_failure(chain: str) -> None:
    assert read_one([COMM, f"{HEAD}NCCL INFO {chain}"]).outcome == "failed"


@pytest.mark.parametrize(
    "line",
    [
        "gin/gin_host.cc:77 (ncclGinConnect) -> 3",  # tried besides the network
        "Channel 00/0 : 0[0] -> 1[1] via NET/IB/0",
        "Trees [0] 1/-1/-1->0->-1 [1] -1/-1/-1->0->1",
    ],
)
def test_other_arrows_are_none(line: str) -> None:
    assert read_one([COMM, f"{HEAD}NCCL INFO {line}"]).outcome == "observed"


def test_a_warning_alone_is_a_failure_if_nccl_returns_an_error_below_it() -> None:
    assert read_one([DUPLICATE]).outcome == "failed"


def test_a_process_that_goes_on_is_none() -> None:
    warned = HEAD + "misc/socket.cc:9 NCCL WARN ncclSocketAccept: wrong socket state 3"
    assert read_one([warned]).outcome == "failed"
    assert read_one([warned, CHANNEL]).outcome == "observed"
    other = CHANNEL.replace("4711", "5")
    assert read_one([warned, other]).outcome == "failed"


def test_a_channel_that_another_rank_has_printed_shows_progress_too() -> None:
    warned = HEAD + "misc/socket.cc:9 NCCL WARN ncclSocketAccept: wrong socket state 3"
    first = CHANNEL.replace("4711", "5")
    assert read_one([first, warned, CHANNEL]).outcome == "observed"


def test_taking_a_communicator_down_is_no_progress() -> None:
    down = HEAD + "NCCL INFO comm 0x55 rank 0 nranks 2 cudaDev 0 - Abort COMPLETE"
    assert read_one([DUPLICATE, down]).outcome == "failed"
