"""A made-up program whose table is described in each way that readers of tables know.

Only this module knows how a benchmark describes its table; tests know the program's lines alone.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

from fabbench.benchmarks import Reader, engine, executions, tables
from fabbench.benchmarks.consistency import product
from fabbench.benchmarks.engine import Statement
from fabbench.benchmarks.events import (
    Ahead,
    Begin,
    Between,
    Command,
    End,
    Events,
    Fail,
    Header,
    Note,
    Setting,
    Stop,
    Wrong,
)
from fabbench.benchmarks.tables import Column, Row

KNOWN = {
    "size": tables.SIZE,
    r"time\(us\)": Column("time", 1e-6),
    r"(min|mean|max)\(us\)": Column("time", 1e-6, "{}"),
    r"rate\(mb/s\)": Column("bandwidth", 1e6),
    "volume": Column("size", cell=r"\d+", units=(("B", 1), ("KB", 1024))),
    "check": tables.CHECK,
    "errors": Column("check", cell=r"\d\.\d\d"),
    "type": Column(label="dtype", cell="[a-z]+"),
    "x": Column(label="x", cell="[a-z]+"),
    "note": Column("note", cell=r"\d+"),
}
HEADER = ("size", "volume", "time(us)", "min(us)", "type", "x")


def meant_as_events(text: str, execution: executions.Execution | None) -> Events | None:  # noqa: C901, PLR0911, PLR0912
    """Return what a line of the made-up program means."""
    words = text.split()
    match words:
        case ["$", "toy", *options]:
            settings = dict(each.split("=") for each in options)
            end = settings.pop("end", None)
            if end is None:
                return (Ahead((Setting(facts=settings),)),)
            return (Command(last_size=int(end), facts=settings),)
        case ["#", "toy", case]:
            return (Begin(), Setting(case=case))
        case ["#", "best", name, _]:
            best = (Column(cell=f"# best {name}"), Column("time", 1.0))
            return (Begin(), Setting(case=name), Header((best,), is_row=True))
        case ["#", "server", name]:
            return (Between((Setting(facts={"server": name}),)),)
        case ["#", "check", "failed"]:
            return (Between((Wrong(1),)),)
        case ["#", "next"]:
            return (Ahead(()), Stop())
        case ["#", "end"]:
            return (Stop(), Setting())
        case ["#", "size", number]:
            return (Setting(size=int(number)),)
        case ["#", "ends", "at", number]:
            return (Setting(last_size=int(number)),)
        case ["#", "label", label]:
            name, _, value = label.partition("=")
            return (Setting(labels={name: value}),)
        case ["#", "title", title]:
            return (Setting(title=title),)
        case ["#", "keep", kind]:
            return (Note(kind, line=text),)
        case ["#", "wrong", count]:
            return (Wrong(int(count)),)
        case ["#", "done"]:
            return (End(),)
        case ["#", "maybe", "done"]:
            return (End(None),)
        case ["#", "failed:", *why]:
            return (Fail(" ".join(why)),)
        case ["#", *_] if execution is not None:
            return ()
        case [first, *_] if first in HEADER:
            layout = tables.read_columns(words, KNOWN)
            whole = (layout, layout[:-1]) if words[-1] == "note" else (layout,)
            return (Header(whole), *tables.unknown_columns(layout, text))
    return None


def meant_as_statement(text: str, execution: engine.Execution | None) -> Statement | None:  # noqa: C901, PLR0911, PLR0912
    """Return what a line of the made-up program means."""
    words = text.split()
    match words:
        case ["$", "toy", *options]:
            settings = dict(each.split("=") for each in options)
            end = settings.pop("end", None)
            return Statement(above=True, end=None if end is None else int(end), facts=settings)
        case ["#", "toy", case]:
            return Statement(begins=True, case=case)
        case ["#", "best", name, _]:
            best = (Column(cell=f"# best {name}"), Column("time", 1.0))
            return Statement(begins=True, row=True, case=name, layouts=(best,))
        case ["#", "server", name]:
            return Statement(late=True, facts={"server": name})
        case ["#", "check", "failed"]:
            return Statement(late=True, wrong=1)
        case ["#", "next"]:
            return Statement(above=True, ends=True)
        case ["#", "end"]:
            return Statement(ends=True)
        case ["#", "size", number]:
            return Statement(size=int(number))
        case ["#", "ends", "at", number]:
            return Statement(end=int(number))
        case ["#", "label", label]:
            name, _, value = label.partition("=")
            return Statement(labels={name: value})
        case ["#", "title", title]:
            return Statement(title=title)
        case ["#", "keep", kind]:
            return Statement(notes=(engine.Note(kind, line=text),))
        case ["#", "wrong", count]:
            return Statement(wrong=int(count))
        case ["#", "done"]:
            return Statement(finished=True)
        case ["#", "maybe", "done"]:
            return Statement(finished=None)
        case ["#", "failed:", *why]:
            return Statement(failure=" ".join(why))
        case ["#", *_] if execution is not None:
            return engine.NO_MEANING
        case [first, *_] if first in HEADER:
            layout = tables.read_columns(words, KNOWN)
            whole = (layout, layout[:-1]) if words[-1] == "note" else (layout,)
            found = next(iter(tables.unknown_columns(layout, text)), None)
            return Statement(layouts=whole, finding=found)
    return None


def product_fits(row: Row) -> bool:
    """Return whether the rate is that of the time."""
    time, rate = row.main("time"), row.main("bandwidth")
    if time is None or rate is None:
        return True
    low, high = product(time, rate)
    return low <= row.size <= high


class Dialect(NamedTuple):
    """A way to describe a table."""

    name: str
    table: Callable[..., Any]
    reader: Callable[[Any], Reader]
    field: str
    """What of a table says what lines mean."""
    meaning: Callable[[str, Any], Any]
    begun: Callable[[tuple[tables.Layout, ...]], Any]
    """Makes the meaning of a line with which an execution begins, with columns."""

    def toy(self, says: Callable[[str, Any], Any] | None = None, **changes: Any) -> Any:
        """Return the table of the made-up program, with changes."""
        usual = {
            "benchmark": "toy",
            "program": "toy",
            self.field: says or self.meaning,
            "failed": re.compile(r".*[Ee]rror: .*"),
            "failing": "toy",
            "fits": product_fits,
            "finished": False,
        }
        return self.table(**{**usual, **changes})

    def stated(self, text: str, *layouts: tables.Layout) -> Any:
        """Return what "begin" means: an execution begins, with columns; None for other lines."""
        return self.begun(layouts) if text == "begin" else None


DIALECTS = (
    Dialect(
        "events",
        executions.Table,
        executions.Assembler,
        "events",
        meant_as_events,
        lambda layouts: (Begin(), Header(layouts)),
    ),
    Dialect(
        "statements",
        engine.Table,
        engine.TableReader,
        "statement",
        meant_as_statement,
        lambda layouts: Statement(begins=True, layouts=layouts),
    ),
)
