"""What stands above a table. Pure."""

import re
from typing import NamedTuple

from fabbench.benchmarks.nvshmem import jobs
from fabbench.benchmarks.nvshmem.layouts import read_sub_job, scope_of

_TITLE = re.compile(r"#\s*([A-Za-z]\w*)|#?\s*([A-Za-z]\w*) \(GB/s\)")
_BOX_TITLE = re.compile(r"\|\s*([A-Za-z]\w*)\s*\|\s*(\S+)\s*\|")
_OPERAND = re.compile(r"#\s*(\d+-bit) operand")
_OPERATION = re.compile(r"(Put|Get) with (thread|warp|block)")


class Title(NamedTuple):
    """A title, or what may be one."""

    line: int
    job: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    sure: bool = False
    """Whether nothing else can be meant. A word behind a hash may be anybody's."""

    def above(self, line: int) -> bool:
        """Whether it is the title of a table that begins in this line."""
        # Two rules may stand between them.
        return self.sure or line - self.line <= 4


def read_title(text: str, line: int) -> Title | None:
    """Read a title of any version; None for any other line.

    Captions that people put above tables (``# 3.5.21``) are none: a job's name is one word.
    """
    text = text.strip()
    if (match := _TITLE.fullmatch(text)) is not None:
        job = match[1] or match[2]
        return Title(line, job, sure=jobs.is_job(job))
    if (match := _BOX_TITLE.fullmatch(text)) is not None:
        return Title(line, match[1], read_sub_job(match[2]), sure=jobs.is_job(match[1]))
    if (match := _OPERAND.fullmatch(text)) is not None:
        return Title(line, None, (("dtype", match[1]),))
    if (match := _OPERATION.fullmatch(text)) is not None:
        return Title(line, f"shmem_{match[1].lower()}_bw", (("scope", scope_of(match[2])),))
    return Title(line, text, sure=True) if jobs.is_job(text) else None
