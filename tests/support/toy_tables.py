"""A made-up program, and its table.

Only this module knows how a benchmark describes its table; tests know the program's lines alone.
"""

import re
from collections.abc import Callable
from typing import Any, TypeAlias

from fabbench.benchmarks import tables
from fabbench.benchmarks.consistency import product
from fabbench.benchmarks.events import (
    Ahead,
    Begin,
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
from fabbench.benchmarks.executions import Execution, Table
from fabbench.benchmarks.tables import Column, Row

Meaning: TypeAlias = Callable[[str, Execution | None], Events | None]

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


def meaning(text: str, execution: Execution | None) -> Events | None:  # noqa: C901, PLR0911, PLR0912
    """Return what a line of the made-up program means."""
    words = text.split()
    match words:
        case ["$", "toy", *options]:
            settings = dict(each.split("=") for each in options)
            end = settings.pop("end", None)
            if end is None:
                return (Ahead((Setting(facts=settings),)),)
            return (Command((Setting(last_size=int(end), facts=settings),)),)
        case ["#", "toy", case]:
            return (Begin(), Setting(case=case))
        case ["#", "best", name, _]:
            best = (Column(cell=f"# best {name}"), Column("time", 1.0))
            return (Begin(), Setting(case=name), Header((best,), is_row=True))
        case ["#", "check", "failed"]:
            return (Wrong(1),)
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


def product_fits(row: Row) -> bool:
    """Return whether the rate is that of the time."""
    time, rate = row.main("time"), row.main("bandwidth")
    if time is None or rate is None:
        return True
    low, high = product(time, rate)
    return low <= row.size <= high


def toy(says: Meaning | None = None, **changes: Any) -> Table:
    """Return the table of the made-up program, with changes."""
    usual = {
        "benchmark": "toy",
        "program": "toy",
        "events": says or meaning,
        "failed": re.compile(r".*[Ee]rror: .*"),
        "failing": "toy",
        "fits": product_fits,
        "finished": False,
    }
    return Table(**{**usual, **changes})


def stated(text: str, *layouts: tables.Layout) -> Events | None:
    """Return what "begin" means: an execution begins, with columns; None for other lines."""
    return (Begin(), Header(layouts)) if text == "begin" else None
