"""What tests need of this machine: where a test is left out, and where it fails instead.

Programs that `setup/prepare dev` installs are there, or the test that calls them fails: a test that
nobody notices to be left out proves nothing. Two exceptions, neither of them where CI is set:
SYSTEM=no, which asks to go on without programs, and hosts made of namespaces for users that are not
root.
"""

import os
import shutil
from typing import NoReturn

import pytest

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def strict(variable: str) -> bool:
    """Return whether a tier that cannot start fails.

    In CI, and where its target sets this variable.
    """
    return bool(os.environ.get("CI") or os.environ.get(variable))


def refuse(reason: str, *, fail: bool) -> NoReturn:
    """End this test for want of something: as failed, or as left out."""
    if fail:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def need(*programs: str) -> None:
    """Fail this test if a program is missing that `setup/prepare dev` installs."""
    path = f"{os.environ.get('PATH', '')}:{PATH}"
    if missing := [program for program in programs if shutil.which(program, path=path) is None]:
        without = os.environ.get("SYSTEM") == "no" and not os.environ.get("CI")
        refuse(f"missing: {', '.join(missing)}; setup/prepare dev installs it", fail=not without)
