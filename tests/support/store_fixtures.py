"""A store of a few runs, for the tests that want one."""

import shutil
from pathlib import Path

import pytest

from tests.performance.store import write_store

RUNS = 4


@pytest.fixture(scope="session")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = tmp_path_factory.mktemp("made") / "store"
    write_store(store, RUNS)
    return store


@pytest.fixture
def store(stored: Path, tmp_path: Path) -> Path:
    """A store of runs that were written long ago, without summaries."""
    return Path(shutil.copytree(stored, tmp_path / "store"))
