"""What somebody may have planted in a log or a name, and what no output may have of it."""

import json
import re
from collections.abc import Iterator

from tests.support.paths import DATA

_SAID = json.loads((DATA / "payloads/payloads.json").read_text("utf-8"))
PAYLOADS: dict[str, str] = _SAID["payloads"]
OBEYED = re.compile(
    r"##\w*\[|(?m:^)\s*::[A-Za-z]|"
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)
"""None of these may be in anything that a terminal or a CI system gets."""
_LOG = (DATA / "payloads/nccl.txt").read_text("utf-8")
_SPOTS: dict[str, list[str]] = _SAID["spots"]
_LINES: dict[str, str] = _SAID["lines"]
FIELDS = (*_SPOTS, *_LINES)


def planted(field: str, payload: str) -> str:
    """Return a log in one field of which a payload is."""
    if field in _LINES:
        return _LINES[field].replace("{}", payload) + _LOG
    before, after = _SPOTS[field]
    assert before in _LOG
    return _LOG.replace(before, after.replace("{}", payload))


def logs(payload: str) -> Iterator[tuple[str, str]]:
    """Yield a name and a log for each field that a log has."""
    for field in FIELDS:
        yield field, planted(field, payload)
