"""PyTorch's flight recorder of a running job: its ranks are asked for dumps, which are copied."""

import gzip
from base64 import b64decode
from itertools import chain
from pathlib import Path

from fabbench.execution.worker_pool import Results, map_hosts, succeeded
from fabbench.remote.counter_shell import HostShell
from fabbench.remote.transport import Transport

_LIMIT_S = 60.0  # Longer than job.sh waits for the ranks of a host


def copy_dumps(connections: Results[Transport], folder: Path) -> int:
    """Have all ranks dump, and copy the dumps to a folder; return how many there are.

    Hosts that do not answer have none.
    """
    answers = map_hosts(connections, lambda each: HostShell(each).ask("fabbench_dumps", _LIMIT_S))
    answered = chain.from_iterable(succeeded(answers).values())
    lines = [line for line in answered if line]
    for line in lines:
        rank, _, dump = line.partition(" ")
        path = folder / f"rank_{int(rank)}"
        path.write_bytes(gzip.decompress(b64decode(dump)))
    return len(lines)
