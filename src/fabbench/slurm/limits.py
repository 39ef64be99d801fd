"""Time limits as Slurm writes them. Pure. Source: sbatch(1), ``--time``."""

import re

from fabbench.errors import RequestError

_FORMS = (
    re.compile(r"(?P<m>\d+)(?::(?P<s>\d\d?))?"),
    re.compile(r"(?P<h>\d+):(?P<m>\d\d?):(?P<s>\d\d?)"),
    re.compile(r"(?P<d>\d+)-(?P<h>\d\d?)(?::(?P<m>\d\d?)(?::(?P<s>\d\d?))?)?"),
)
_PARTS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


def seconds(text: str) -> int:
    """Read a time limit: ``30``, ``30:00``, ``2:00:00``, ``1-12``. Raises RequestError."""
    for form in _FORMS:
        if match := form.fullmatch(text):
            return sum(int(value) * _PARTS[name] for name, value in match.groupdict().items() if value)
    raise RequestError(
        f"{text} is no time limit of Slurm's.", hint="Write minutes, H:MM:SS or D-HH:MM:SS: --time 2:00:00."
    )


def written(limit_s: int) -> str:
    """Write seconds as a time limit: ``D-HH:MM:SS``, and no days where there are none."""
    days, rest = divmod(limit_s, 86400)
    text = f"{rest // 3600:02}:{rest // 60 % 60:02}:{rest % 60:02}"
    return f"{days}-{text}" if days else text
