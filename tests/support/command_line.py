"""The command line, in this process."""

import inspect
from collections.abc import Mapping
from typing import Any

from click.testing import CliRunner


def runner(env: Mapping[str, str | None] | None = None) -> CliRunner:
    """Return a runner that keeps standard error apart, as every click since 8.2 does."""
    known = inspect.signature(CliRunner).parameters
    apart: dict[str, Any] = {"mix_stderr": False} if "mix_stderr" in known else {}
    return CliRunner(env=env, **apart)
