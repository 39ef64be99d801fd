"""Names: the job titles above the tables, the programs that print them, and what they measure. Pure.

The case of a log is its program's name. Where no command line tells it, it follows from the title:
point-to-point titles are the program's name with the direction behind it (`shmem_put_bw_uni`), device
collectives have titles of their own (`alltoall_device` of `alltoall_latency`, `device_reduction` of
`reduction_latency`).
"""

import re
from functools import cache

_COLLECTIVES = (
    ("alltoall", "alltoall"),
    ("fcollect", "fcollect"),
    ("reducescatter", "reducescatter"),
    ("reduction", "reduction"),
    ("broadcast", "bcast"),
    ("bcast", "bcast"),
    ("barrier", "barrier"),
    ("sync", "sync"),
)
GATHERING = frozenset({"alltoall", "fcollect", "reducescatter"})
"""Collectives whose size is one PE's block or the total, depending on the version."""
UNSIZED = frozenset({"barrier", "sync"})
"""Collectives that send no data: the column `size(B)` has the threads of a block."""

_HOST_TITLES = {"bandwidth": "bw", "latency": "latency", "stream_latency": "stream_latency"}
_DIRECTION = re.compile(r"_(?:uni|bidi|bi)(?=_|$)")
_DEVICE = re.compile(r"device_(\w+)|(\w+?)_device")
_JOB = re.compile(
    r"shmem_\w+|device_[a-z]\w*|[a-z]\w*_(?:device|on_stream)"
    r"|(?:put|get|p|g|st|atomic\w*)_(?:bw|latency|ping_pong_latency)(?:_\w+)?"
)
_NAMES = (
    r"shmem_\w+|[a-z]\w*_on_stream|stream_latency"
    r"|(?:alltoall|bcast|broadcast|fcollect|reduction|reducescatter|barrier|barrier_all|sync|sync_all)_latency"
    r"|(?:put|get|p|g|st|atomic)_(?:\w+_)?(?:bw|latency)"
)
PROGRAM = rf"(?:{_NAMES})"
"""A pattern of the programs' names."""
_COMMAND = re.compile(
    r"(?:[$+#>%]+ +)*(?:\w+=\S* +)*"
    rf"(?:(?:\S*/)?(?:mpirun|mpiexec(?:\.hydra)?|orterun|prterun|srun|nvshmrun(?:\.hydra)?|env|timeout)\s(?:.*[\s/'\"])?"
    rf"|\S*/)?(?P<program>{_NAMES})(?:[\s'\";].*)?"
)


def is_job(name: str) -> bool:
    """Whether a name can only be an NVSHMEM job's."""
    return _JOB.fullmatch(name) is not None


@cache
def collective(job: str | None) -> str:
    """Name the collective of a job or program; empty: point-to-point, or not known."""
    flat = (job or "").lower().replace("reduce_scatter", "reducescatter")
    return next((name for sign, name in _COLLECTIVES if sign in flat), "")


@cache
def case_of(job: str) -> str:
    """Name the program that prints a title."""
    if job.lower() in _HOST_TITLES:
        return _HOST_TITLES[job.lower()]
    if (match := _DEVICE.fullmatch(job)) is not None:
        return f"{collective(job) or match[1] or match[2]}_latency"
    return _DIRECTION.sub("", job).removesuffix("_msgrate")


@cache
def metric_of(job: str | None) -> str:
    """Say what a point-to-point job measures; empty: its name does not tell."""
    name = (job or "").lower()
    if "msgrate" in name or "message_rate" in name:
        return "message_rate"
    if re.search(r"_bw|^bw|bandwidth", name):
        return "bandwidth"
    return "latency" if re.search(r"lat|ping", name) else ""


@cache
def way_of(job: str | None) -> str:
    """Say whether a latency is of one way or of a round trip; empty: the program's source does not say."""
    name = (job or "").lower()
    if metric_of(job) != "latency":
        return ""
    if "ping" in name:
        return "round-trip"
    return "one-way" if re.search(r"(?:^|_)put_latency", name) else ""


@cache
def direction_of(job: str | None) -> str:
    """Say whether a job's title tells of one direction or of both."""
    match = _DIRECTION.search(job or "")
    return "" if match is None else "uni" if match[0] == "_uni" else "bi"


def program(text: str) -> str:
    """Find the program in a command line that starts one; empty: it is no such line."""
    match = _COMMAND.fullmatch(text.strip())
    return match["program"] if match is not None else ""
