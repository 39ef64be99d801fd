"""Golden files.

What a test made when somebody last read it, so that a change is reviewed as a diff.

`FABBENCH_GOLDEN=write pytest FILE` rewrites those of the tests in FILE.
"""

import os
from pathlib import Path

from tests.support.paths import DATA

GOLDEN = DATA / "golden"


def assert_golden(path: Path, text: str) -> None:
    """Fail unless a file has this text."""
    if os.environ.get("FABBENCH_GOLDEN") == "write":
        path.write_text(text, "utf-8")
    assert text == path.read_text("utf-8"), f"FABBENCH_GOLDEN=write rewrites {path}"
