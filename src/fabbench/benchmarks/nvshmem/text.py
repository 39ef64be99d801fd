"""The names of perftests, and what they mean. Pure.

A title names the job: point-to-point ones are the program's name and the direction (`shmem_put_bw_uni`), device
collectives have names of their own (`alltoall_device` of `alltoall_latency`, `device_reduction`).
"""

from functools import cache

from fabbench.model.patterns import lazy

_COLLECTIVE = lazy(r"alltoall|fcollect|reducescatter|reduction|broadcast|bcast|barrier|sync")
GATHERING = frozenset({"alltoall", "fcollect", "reducescatter"})
"""Collectives whose printed size is one PE's block or the total, depending on the version."""
UNSIZED = frozenset({"barrier", "sync"})
"""Collectives that send no data: the column `size(B)` contains the threads of a block."""

HOST_TITLES = {"bandwidth": "bw", "latency": "latency", "stream_latency": "stream_latency"}
"""Titles of host programs, which other programs may print as well, and the programs."""
JOB = lazy(
    r"shmem_\w+|device_[a-z]\w*|[a-z]\w*_(?:device|on_stream)"
    r"|(?:put|get|p|g|st|atomic\w*)_(?:bw|latency|ping_pong_latency)(?:_\w+)?"
)
"""Names that can only be those of an NVSHMEM job."""
CUT_JOB = lazy(r"\w+_(?:un?|bid|de(?:v(?:ic?)?)?|on_?|on_s(?:t(?:r(?:ea?)?)?)?)")
"""Jobs whose suffix is truncated: `_uni`, `_bidi`, `_device`, `_on_stream`."""
PROGRAM = (
    r"(?:shmem_\w+|[a-z]\w*_on_stream|stream_latency"
    r"|(?:alltoall|bcast|broadcast|fcollect|reduction|reducescatter|barrier|barrier_all|sync|sync_all)_latency"
    r"|(?:put|get|p|g|st|atomic)_(?:\w+_)?(?:bw|latency))"
)
"""A pattern for the programs' names."""

DIRECTION = lazy(r"_(?:uni|bidi|bi)(?=_|$)")
_DEVICE = lazy(r"device_(\w+)|(\w+?)_device")


@cache
def collective(job: str | None) -> str:
    """Return the collective of a job or program; empty: point-to-point, or unknown."""
    match = _COLLECTIVE.search((job or "").lower().replace("reduce_scatter", "reducescatter"))
    return match[0].replace("broadcast", "bcast") if match is not None else ""


@cache
def case_of(job: str) -> str:
    """Return the program that prints a title; empty: unknown."""
    if job.lower() in HOST_TITLES:
        return HOST_TITLES[job.lower()]
    if (match := _DEVICE.fullmatch(job)) is not None:
        return f"{collective(job) or match[1] or match[2]}_latency"
    return DIRECTION.sub("", job).removesuffix("_msgrate")
