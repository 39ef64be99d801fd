"""The index of a store: its runs and what they measured, so that lists of thousands need not read logs.

The directories take precedence: a run is read again when the modification time, size or inode of any of its
files differs from when it was read, and dropped when it was removed. So the index may be removed at any
time, and is rebuilt. It is one SQLite database, with a rollback journal rather than a write-ahead log:
stores may be on network file systems, where processes cannot share the log's memory. Transactions are short,
so concurrent processes wait for each other; one that is killed leaves what it committed. If the index cannot
be written, such as in another user's store, everything works from what was read.
"""

import json
import os
import sqlite3
import struct
import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self, TypeAlias, TypeVar

from fabbench import __version__
from fabbench.model.log import Metric
from fabbench.runs.folders import REQUEST, VERDICT, run_folders
from fabbench.runs.indexed_run import IndexedFigure, IndexedMetric, IndexedRun, RunSetup, read_run

FILE = ".index.sqlite3"
_FORMAT = 2
_SETTLED_NS = 2_000_000_000
"""A file changed less than this before it was read may change again within the same clock tick."""
_BATCH_S = 1.0
"""Interval at which what was read is committed."""
_WAIT_S = 60.0
"""How long to wait for another process that writes."""
_INODE_MASK = (1 << 63) - 1
"""The bits of an inode that a column holds."""

_TABLES = """
CREATE TABLE IF NOT EXISTS texts (number INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE IF NOT EXISTS runs (
    number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, reader TEXT NOT NULL,
    files TEXT NOT NULL, stamps BLOB NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, created TEXT NOT NULL,
    setup INTEGER NOT NULL REFERENCES texts, sizes TEXT NOT NULL, peak TEXT NOT NULL, gate TEXT NOT NULL,
    outcomes TEXT NOT NULL, damaged TEXT NOT NULL
);
CREATE TABLE IF NOT EXISTS measured (
    run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE, metric TEXT NOT NULL, configuration TEXT NOT NULL,
    key INTEGER NOT NULL REFERENCES texts, sizes BLOB NOT NULL, figures BLOB NOT NULL,
    executions INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS by_metric ON measured (metric);
CREATE INDEX IF NOT EXISTS by_run ON measured (run);
"""
"""Values that many rows share are in the table of texts: stored once, and read once."""

Answer = TypeVar("Answer")
Reading: TypeAlias = Callable[[int], AbstractContextManager[Callable[[], None]]]
"""Called with the number of runs to read; yields the function to call after each."""


class _Entry(NamedTuple):
    files: str
    stamps: bytes
    run: IndexedRun
    measured: Sequence[IndexedMetric]


class StoreIndex:
    """The runs of a store, as their directories are now. A context manager that closes the database."""

    def __init__(self, store: Path, reading: Reading) -> None:
        self._folders, self._reading = _Folders(store), reading
        connectors = [_connect, _connect_to_new, _connect_in_memory]
        self._connectors = connectors if self._folders.paths else connectors[-1:]
        self._database: sqlite3.Connection | None = None
        self.runs = self._query(self._runs)
        """Newest first, including damaged ones."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def figures(self, metric: Metric, size: int | None = None) -> Sequence[tuple[IndexedRun, IndexedFigure]]:
        """Return each run's figures of a metric: at a size, or the best of all sizes; newest run first."""
        by_path = self._query(lambda database: _figures(database, metric, size))
        return [(run, each) for run in self.runs for each in by_path.get(run.path, ())]

    def _query(self, query: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Query the database; if it is unusable, query a new one, and then one in memory."""
        while True:
            try:
                if self._database is None:
                    self._database = self._connectors.pop(0)(self._folders.store)
                    self._folders.update(self._database, self._reading)
                return query(self._database)
            except (sqlite3.Error, ValueError, TypeError, KeyError):
                # Damaged, from another release, locked for long, or not writable any more.
                self._close()
                if not self._connectors:
                    raise

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _runs(self, database: sqlite3.Connection) -> tuple[IndexedRun, ...]:
        setups = {number: RunSetup.from_json(text) for number, text in database.execute(_SETUPS)}
        rows, read = database.execute(_RUNS).fetchall(), cache(json.loads)
        runs = (
            IndexedRun(path, run, name, created, setups[setup], sizes, peak, gate, read(outcomes), read(damaged))
            for path, run, name, created, setup, sizes, peak, gate, outcomes, damaged in rows
        )
        known = {run.path: run for run in runs}
        return tuple(known[path] for path in self._folders.paths if path in known)


_UNUSED = "DELETE FROM texts WHERE number NOT IN (SELECT setup FROM runs UNION SELECT key FROM measured)"
_SETUPS = "SELECT number, text FROM texts WHERE number IN (SELECT setup FROM runs)"
_RUNS = "SELECT path, id, name, created, setup, sizes, peak, gate, outcomes, damaged FROM runs"


def open_index(
    store: Path,
    reading: Reading = lambda count: nullcontext(lambda: None),  # noqa: ARG005 - no progress is shown
) -> StoreIndex:
    """Update the index of a store, and open it. An unusable index is repaired."""
    return StoreIndex(store, reading)


def _figures(database: sqlite3.Connection, metric: Metric, size: int | None) -> dict[str, list[IndexedFigure]]:
    """Return figures by the path of their run. Only the requested values of each row are unpacked."""
    best = min if metric.lower_is_better else max
    offsets = cache(lambda sizes: _offset(sizes, size))
    texts = database.execute("SELECT number, text FROM texts WHERE number IN (SELECT key FROM measured)").fetchall()
    keys = {number: tuple((name, value) for name, value in json.loads(text)) for number, text in texts}
    by_path: dict[str, list[IndexedFigure]] = {}
    for path, configuration, key, sizes, figures in database.execute(
        "SELECT path, configuration, key, measured.sizes, figures "
        "FROM measured JOIN runs ON run = number WHERE metric = ? ORDER BY measured.rowid",
        (metric.name,),
    ):
        if size is None:
            value = best(array("d", figures), default=None)
        else:
            offset = offsets(sizes)
            value = None if offset is None else _DOUBLE.unpack_from(figures, offset)[0]
        if value is not None:
            by_path.setdefault(path, []).append(IndexedFigure(configuration, keys[key], value))
    return by_path


_DOUBLE = struct.Struct("d")


def _offset(sizes: bytes, size: int | None) -> int | None:
    """Return the offset in bytes of the figure of a size; None if there is none."""
    known = list(array("q", sizes))
    return known.index(size) * _DOUBLE.size if size in known else None


# ---------------------------------------------------------------- the database


def _connect(store: Path) -> sqlite3.Connection:
    """Open the index of a store. One that this user may not write is copied into memory."""
    path = store / FILE
    if os.access(store, os.W_OK) and (not path.exists() or os.access(path, os.W_OK)):
        return _prepared(sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None))
    memory = sqlite3.connect(":memory:", isolation_level=None)
    if path.exists():
        file = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with _closed_if_unusable(memory), closing(sqlite3.connect(file, uri=True)) as kept:
            kept.backup(memory)
    return _prepared(memory)


def _connect_to_new(store: Path) -> sqlite3.Connection:
    """Replace an unusable index with a new one."""
    for name in (FILE, f"{FILE}-journal"):
        with suppress(OSError):
            (store / name).unlink()
    return _connect(store)


def _connect_in_memory(store: Path) -> sqlite3.Connection:
    del store
    return _prepared(sqlite3.connect(":memory:", isolation_level=None))


def _prepared(database: sqlite3.Connection) -> sqlite3.Connection:
    """Create the tables of a database if necessary; close it if it is unusable."""
    with _closed_if_unusable(database):
        database.execute("PRAGMA foreign_keys = ON")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version not in {0, _FORMAT}:
            raise ValueError(f"the index has format {version}")
        if not version:
            with _transaction(database):
                for statement in filter(str.strip, _TABLES.split(";")):
                    database.execute(statement)
                database.execute(f"PRAGMA user_version = {_FORMAT}")
    return database


@contextmanager
def _closed_if_unusable(database: sqlite3.Connection) -> Iterator[None]:
    try:
        yield
    except BaseException:
        database.close()
        raise


@contextmanager
def _transaction(database: sqlite3.Connection) -> Iterator[None]:
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def _store(database: sqlite3.Connection, entries: Iterable[_Entry]) -> None:
    for files, stamps, run, measured in entries:
        database.execute("DELETE FROM runs WHERE path = ?", (run.path,))
        row = database.execute(
            "INSERT INTO runs (path, reader, files, stamps, id, name, created, setup, sizes, peak, gate, "
            "outcomes, damaged) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(run.path, __version__, files, stamps, run.id, run.name, run.created),
                *(_text(database, run.setup.to_json()), run.sizes, run.peak, run.gate),
                *(json.dumps(dict(run.outcomes)), json.dumps(list(run.damaged))),
            ),
        )
        database.executemany(
            "INSERT INTO measured VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    *(row.lastrowid, each.metric, each.configuration),
                    *(_text(database, json.dumps(each.key)), array("q", each.sizes).tobytes()),
                    *(array("d", each.values).tobytes(), each.executions),
                )
                for each in measured
            ],
        )


def _text(database: sqlite3.Connection, text: str) -> int:
    """Return the number of a text, which is added if necessary."""
    database.execute("INSERT OR IGNORE INTO texts (text) VALUES (?)", (text,))
    (number,) = database.execute("SELECT number FROM texts WHERE text = ?", (text,)).fetchone()
    return int(number)


# ---------------------------------------------------------------- the directories


class _Folders:
    """The run directories of a store. What was read is kept, in case the index turns out to be unusable."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.paths = run_folders(store)
        self._entries: dict[str, _Entry] = {}

    def update(self, database: sqlite3.Connection, reading: Reading) -> None:
        """Read runs that differ from the index, and drop runs that were removed."""
        rows = database.execute("SELECT path, files, stamps FROM runs WHERE reader = ?", (__version__,))
        known = {path: (files, stamps) for path, files, stamps in rows.fetchall()}
        folder = os.fspath(self.store)
        stale = [
            path
            for path in self.paths
            if path not in known
            or stamps_of(f"{folder}/{path}/", known[path][0].split("\n")).tobytes() != known[path][1]
        ]
        existing = set(self.paths)
        listed = database.execute("SELECT path FROM runs").fetchall()
        self._forget(database, [path for (path,) in listed if path not in existing])
        if stale:
            with reading(len(stale)) as read:
                self._read(database, stale, read)

    def _forget(self, database: sqlite3.Connection, removed: Sequence[str]) -> None:
        if removed:
            with _transaction(database):
                database.executemany("DELETE FROM runs WHERE path = ?", ((path,) for path in removed))
                database.execute(_UNUSED)

    def _read(self, database: sqlite3.Connection, stale: Sequence[str], read: Callable[[], None]) -> None:
        """Read runs. They are committed about every second, so that little is lost at any time."""
        waiting, last, removed = [], time.monotonic(), []
        for path in stale:
            entry = self._entries.get(path) or self._entry(path)
            if entry is None:
                removed.append(path)
            else:
                self._entries[path] = entry
                waiting.append(entry)
            read()
            if time.monotonic() - last > _BATCH_S:
                with _transaction(database):
                    _store(database, waiting)
                waiting, last = [], time.monotonic()
        with _transaction(database):
            _store(database, waiting)
        self._forget(database, removed)

    def _entry(self, path: str) -> _Entry | None:
        """Read one run; None if it was removed, or has no request yet."""
        folder = f"{os.fspath(self.store)}/{path}/"
        files = watched_files(folder)
        if REQUEST not in files:
            return None
        # The stamps are read before the content, so a change in between is detected next time.
        stamps, now = stamps_of(folder, files), time.time_ns()
        run, measured = read_run(self.store, path)
        settled = max(stamps[::3]) < now - _SETTLED_NS
        return _Entry("\n".join(files), stamps.tobytes() if settled else b"", run, measured)


def watched_files(folder: str) -> list[str]:
    """Return the files of a run that its index row depends on, and the folders where more may appear.

    Names with a line feed are not fabbench's: the folder's own modification time covers them.
    """
    paths = ["", *(name for name in _names(folder) if name in {REQUEST, VERDICT, "exec", "counters"})]
    for execution in _names(f"{folder}exec"):
        inside = _names(f"{folder}exec/{execution}")
        # A folder may grow until its last file, run.json, exists.
        paths += [f"exec/{execution}"] * ("run.json" not in inside)
        paths += (f"exec/{execution}/{name}" for name in inside)
    paths += (f"counters/{name}" for name in _names(f"{folder}counters"))
    return [name for name in paths if "\n" not in name]


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - faster for thousands
    except OSError:
        return []


def stamps_of(folder: str, files: Iterable[str]) -> "array[int]":
    """Return the modification time (ns), size and inode of each file; -1 each if it is missing."""
    stamps = array("q")
    add, status_of = stamps.extend, os.stat  # looked up once: there may be tens of thousands
    for name in files:
        try:
            status = status_of(folder + name)
        except OSError:
            add((-1, -1, -1))
        else:
            add((status.st_mtime_ns, status.st_size, status.st_ino & _INODE_MASK))
    return stamps
