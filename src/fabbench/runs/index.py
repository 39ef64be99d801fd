"""The index of a store: what its runs are and measured, so that lists of thousands need not read their logs.

It is never trusted over the directories: a run is read again when any of its files has another time of
change, size or inode than when it was read, and forgotten when it is gone. So the index may be removed at
any time, and is made anew. It is one SQLite database, with a rollback journal rather than a write-ahead log:
stores lie on network file systems too, where a log that processes share as memory cannot be. Transactions
are short, so two processes at once wait for each other; one that is killed leaves what it committed. Where
the index cannot be written, such as in a store of somebody else, everything works from what was read.
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
from fabbench.runs.indexed_run import IndexedFigure, IndexedRun, Measured, RunSetup, read_run

FILE = ".index.sqlite3"
_FORMAT = 2
_SETTLED_NS = 2_000_000_000
"""A file that changed less than this before it was read may change again in the same tick of its clock."""
_BATCH_S = 1.0
"""After how long what was read is committed."""
_WAIT_S = 60.0
"""For another process that writes."""
_POSITIVE = (1 << 63) - 1
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
"""What many rows have in common is a text of its own: it is stored once, and read once."""

Answer = TypeVar("Answer")
Reading: TypeAlias = Callable[[int], AbstractContextManager[Callable[[], None]]]
"""Is told how many runs are read, and gives what to call after each."""


class _Entry(NamedTuple):
    """One run that was read."""

    files: str
    stamps: bytes
    run: IndexedRun
    measured: Sequence[Measured]


def _unseen(count: int) -> AbstractContextManager[Callable[[], None]]:
    del count
    return nullcontext(lambda: None)


class StoreIndex:
    """The runs of a store, as their directories are now. A context manager, which closes the database."""

    def __init__(self, store: Path, reading: Reading) -> None:
        self._folders, self._reading = _Folders(store), reading
        ways = [_connect, _connect_anew, _connect_in_memory]
        self._ways = ways if self._folders.paths else ways[-1:]
        self._database: sqlite3.Connection | None = None
        self.runs = self._ask(self._runs)
        """Newest first, damaged ones too."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def figures(self, metric: Metric, size: int | None = None) -> Sequence[tuple[IndexedRun, IndexedFigure]]:
        """Return what each run measured of a metric: at a size, or the best of all; newest run first."""
        found = self._ask(lambda database: _figures(database, metric, size))
        return [(run, each) for run in self.runs for each in found.get(run.path, ())]

    def _ask(self, question: Callable[[sqlite3.Connection], Answer]) -> Answer:
        """Ask the database; where it cannot be used, ask a new one, and then one in memory."""
        while True:
            try:
                if self._database is None:
                    self._database = self._ways.pop(0)(self._folders.store)
                    self._folders.bring_up_to_date(self._database, self._reading)
                return question(self._database)
            except (sqlite3.Error, ValueError, TypeError, KeyError):
                # Damaged, of another release, locked for long, or where nothing more can be written.
                self._close()
                if not self._ways:
                    raise

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _runs(self, database: sqlite3.Connection) -> tuple[IndexedRun, ...]:
        setups = {number: RunSetup.from_json(text) for number, text in database.execute(_SETUPS)}
        rows, read = database.execute(_RUNS).fetchall(), cache(json.loads)
        known = {
            path: IndexedRun(
                *(path, run, name, created, setups[setup], sizes, peak, gate, read(outcomes), read(damaged))
            )
            for path, run, name, created, setup, sizes, peak, gate, outcomes, damaged in rows
        }
        return tuple(known[path] for path in self._folders.paths if path in known)


_UNUSED = "DELETE FROM texts WHERE number NOT IN (SELECT setup FROM runs UNION SELECT key FROM measured)"
_SETUPS = "SELECT number, text FROM texts WHERE number IN (SELECT setup FROM runs)"
_RUNS = "SELECT path, id, name, created, setup, sizes, peak, gate, outcomes, damaged FROM runs"


def open_index(store: Path, reading: Reading = _unseen) -> StoreIndex:
    """Bring the index of a store up to date, and open it. What is wrong with the index itself is mended."""
    return StoreIndex(store, reading)


def _figures(
    database: sqlite3.Connection, metric: Metric, size: int | None
) -> dict[str, list[IndexedFigure]]:
    """Return figures by the path of their run. Of each row no more is unpacked than is asked for."""
    best = min if metric.lower_is_better else max
    places, keys = cache(lambda sizes: _place(sizes, size)), _keys(database)
    found: dict[str, list[IndexedFigure]] = {}
    for path, configuration, key, sizes, figures in database.execute(
        "SELECT path, configuration, key, measured.sizes, figures "
        "FROM measured JOIN runs ON run = number WHERE metric = ? ORDER BY measured.rowid",
        (metric.name,),
    ):
        if size is None:
            value = best(array("d", figures), default=None)
        else:
            place = places(sizes)
            value = None if place is None else _DOUBLE.unpack_from(figures, place)[0]
        if value is not None:
            found.setdefault(path, []).append(IndexedFigure(configuration, keys[key], value))
    return found


_DOUBLE = struct.Struct("d")


def _place(sizes: bytes, size: int | None) -> int | None:
    """Return where the figure of a size begins."""
    known = list(array("q", sizes))
    return known.index(size) * _DOUBLE.size if size in known else None


def _keys(database: sqlite3.Connection) -> dict[int, tuple[tuple[str, str], ...]]:
    rows = database.execute(
        "SELECT number, text FROM texts WHERE number IN (SELECT key FROM measured)"
    ).fetchall()
    return {number: tuple((name, value) for name, value in json.loads(text)) for number, text in rows}


# ---------------------------------------------------------------- the database


def _connect(store: Path) -> sqlite3.Connection:
    """Open the index of a store; one that only others may write is copied into memory."""
    path = store / FILE
    if os.access(store, os.W_OK) and (not path.exists() or os.access(path, os.W_OK)):
        return _prepared(sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None))
    memory = sqlite3.connect(":memory:", isolation_level=None)
    if path.exists():
        file = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        with _closed_if_unusable(memory), closing(sqlite3.connect(file, uri=True)) as kept:
            kept.backup(memory)
    return _prepared(memory)


def _connect_anew(store: Path) -> sqlite3.Connection:
    """Begin a new index in place of one that cannot be used."""
    for name in (FILE, f"{FILE}-journal"):
        with suppress(OSError):
            (store / name).unlink()
    return _connect(store)


def _connect_in_memory(store: Path) -> sqlite3.Connection:
    del store
    return _prepared(sqlite3.connect(":memory:", isolation_level=None))


def _prepared(database: sqlite3.Connection) -> sqlite3.Connection:
    """Return a database with the tables; one that cannot be used is closed."""
    with _closed_if_unusable(database):
        database.execute("PRAGMA foreign_keys = ON")
        (found,) = database.execute("PRAGMA user_version").fetchone()
        if found not in {0, _FORMAT}:
            raise ValueError(f"the index has format {found}")
        if not found:
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
    """Return the number of a text, which is there from now on."""
    database.execute("INSERT OR IGNORE INTO texts (text) VALUES (?)", (text,))
    (number,) = database.execute("SELECT number FROM texts WHERE text = ?", (text,)).fetchone()
    return int(number)


# ---------------------------------------------------------------- the directories


class _Folders:
    """The run directories of a store. What was read of them is kept, should the index turn out unusable."""

    def __init__(self, store: Path) -> None:
        self.store = store
        self.paths = run_folders(store)
        self._entries: dict[str, _Entry] = {}

    def bring_up_to_date(self, database: sqlite3.Connection, reading: Reading) -> None:
        """Read what is not in the index as it is on disk, and forget what is gone."""
        rows = database.execute("SELECT path, files, stamps FROM runs WHERE reader = ?", (__version__,))
        known = {path: (files, stamps) for path, files, stamps in rows.fetchall()}
        folder = os.fspath(self.store)
        stale = [
            path
            for path in self.paths
            if path not in known
            or stamps_of(f"{folder}/{path}/", known[path][0].split("\n")).tobytes() != known[path][1]
        ]
        there = set(self.paths)
        self._forget(database, [path for (path,) in _paths(database) if path not in there])
        if stale:
            with reading(len(stale)) as read:
                self._read(database, stale, read)

    def _forget(self, database: sqlite3.Connection, gone: Sequence[str]) -> None:
        if gone:
            with _transaction(database):
                database.executemany("DELETE FROM runs WHERE path = ?", ((path,) for path in gone))
                database.execute(_UNUSED)

    def _read(self, database: sqlite3.Connection, stale: Sequence[str], read: Callable[[], None]) -> None:
        """Read runs; what was read is committed about every second, so that little is lost at any moment."""
        waiting, last, gone = [], time.monotonic(), []
        for path in stale:
            entry = self._entries.get(path) or self._entry(path)
            if entry is None:
                gone.append(path)
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
        self._forget(database, gone)

    def _entry(self, path: str) -> _Entry | None:
        """Read one run; None: it is gone, or has no request yet."""
        folder = f"{os.fspath(self.store)}/{path}/"
        files = watched_files(folder)
        if REQUEST not in files:
            return None
        # The times before the content: a change in between is seen the next time.
        stamps, now = stamps_of(folder, files), time.time_ns()
        run, measured = read_run(self.store, path)
        settled = max(stamps[::3]) < now - _SETTLED_NS
        return _Entry("\n".join(files), stamps.tobytes() if settled else b"", run, measured)


def _paths(database: sqlite3.Connection) -> list[tuple[str]]:
    return database.execute("SELECT path FROM runs").fetchall()


def watched_files(folder: str) -> list[str]:
    """Return the files of a run that its index row depends on, and the folders in which more may appear.

    Names of a run with a line feed are of nobody's: they are left to the folder's own time.
    """
    found = ["", *(name for name in _names(folder) if name in {REQUEST, VERDICT, "exec", "counters"})]
    for execution in _names(f"{folder}exec"):
        inside = _names(f"{folder}exec/{execution}")
        # A folder may grow until its run.json, the last of its files, is there.
        found += [f"exec/{execution}"] * ("run.json" not in inside)
        found += (f"exec/{execution}/{name}" for name in inside)
    found += (f"counters/{name}" for name in _names(f"{folder}counters"))
    return [name for name in found if "\n" not in name]


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))  # noqa: PTH208 - of thousands
    except OSError:
        return []


def stamps_of(folder: str, files: Iterable[str]) -> "array[int]":
    """Return time of change, size and inode of files, three numbers each; of what is not there -1."""
    found = array("q")
    add, status_of = found.extend, os.stat  # of tens of thousands
    for name in files:
        try:
            status = status_of(folder + name)
        except OSError:
            add((-1, -1, -1))
        else:
            add((status.st_mtime_ns, status.st_size, status.st_ino & _POSITIVE))
    return found
