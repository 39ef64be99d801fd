"""Collectives that move nothing; see the package."""

import os
import socket
from typing import Any

from torch import Tensor, trials

_size = 1


def init_process_group(backend: str, *, init_method: str, rank: int, world_size: int) -> None:
    global _size  # noqa: PLW0603 - as there is one group
    _size = world_size
    address, _, port = init_method.removeprefix("tcp://").rpartition(":")
    assert address, init_method
    assert int(port), init_method
    path = (
        os.environ["NCCL_DEBUG_FILE"]
        .replace("%h", socket.gethostname())
        .replace("%p", str(os.getpid()))
    )
    network = os.environ["NCCL_NET"]
    said = (
        f"NET/{network}/0" if os.environ.get("NCCL_HOSTID") else "P2P/CUMEM",
        f"Using network {network}",
    )
    with open(path, "w") as debug:  # noqa: PTH123 - as a C program does
        before = f"{socket.gethostname()}:{os.getpid()}:1 [{rank}] NCCL INFO"
        debug.write(f"{before} {said[1]}\n{before} Channel 00/0 : 0[0] -> 1[1] via {said[0]}\n")


def all_reduce(data: Tensor) -> None:
    if data.count == 1:
        data.value *= _size
    else:
        trials.append(data.count)


def barrier() -> None:
    pass


def get_world_size() -> int:
    return _size


def destroy_process_group() -> Any:
    pass
