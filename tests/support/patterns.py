"""Every regular expression of the program: `python -m tests.support.patterns` prints them.

A process of its own imports each module and reads all recorded logs, so that patterns made of
tables, of columns and of learned prefixes are compiled too. What it notes is each call of `lazy`,
and each pattern that is compiled for a module of the program.
"""

import ast
import json
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from tests.support.paths import DATA, LOGS, ROOT

PACKAGE = ROOT / "src/fabbench"
AT_START = frozenset({"match", "fullmatch"})
ANYWHERE = frozenset({"search", "sub", "subn", "split", "findall", "finditer"})
_OF_TABLES = int(re.IGNORECASE | re.DOTALL)
_NEXT_RECORD = re.compile(r"\|(?=\(\?P<t\d+>)")
"""Between two records of `known_errors`."""


@dataclass(slots=True)
class Pattern:
    """A pattern, where it is made, and the methods that are called on it (none: not known)."""

    pattern: str
    flags: int
    places: set[str] = field(default_factory=set)
    methods: set[str] = field(default_factory=set)

    def searched(self) -> Iterator[str]:
        """Yield the methods that differ in how they look: an unknown use may be any."""
        used = self.methods or AT_START | ANYWHERE
        if used & ANYWHERE:
            yield "search"
        yield from sorted(used & AT_START)


def every_pattern() -> list[Pattern]:
    """Return all patterns, found in a process of its own."""
    argv = [sys.executable, "-m", "tests.support.patterns"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    rows = map(json.loads, done.stdout.splitlines())
    found = [
        Pattern(row["pattern"], row["flags"], set(row["places"]), set(row["methods"]))
        for row in rows
    ]
    _complete(found)
    return [part for each in found for part in _apart(each)]


def _apart(pattern: Pattern) -> Iterator[Pattern]:
    """Yield the records that a table was joined of: together they take what each takes, in sum."""
    for record in _NEXT_RECORD.split(pattern.pattern):
        yield replace(pattern, pattern=record)


def _complete(found: Sequence[Pattern]) -> None:
    """Add to patterns of which no use was seen the uses of others that are made in the same line.

    They are records of one table.
    """
    used: dict[str, set[str]] = defaultdict(set)
    for each in found:
        for place in each.places:
            used[place] |= each.methods
    for each in found:
        if not each.methods:
            each.methods.update(*(used[place] for place in each.places))


class _Used:
    """A pattern of a module that notes which of its methods are asked for."""

    def __init__(self, pattern: re.Pattern[str], noted: Pattern) -> None:
        self._pattern = pattern
        self.noted = noted

    def __getattr__(self, name: str) -> Any:
        self.noted.methods |= {name} & (AT_START | ANYWHERE)
        return getattr(self._pattern, name)

    def __eq__(self, other: object) -> bool:
        return self._pattern == getattr(other, "_pattern", other)

    def __hash__(self) -> int:
        return hash(self._pattern)


class _Notes:
    """What was made so far."""

    def __init__(self) -> None:
        self.found: dict[tuple[str, int], Pattern] = {}

    def add(self, pattern: object, flags: int, caller: FrameType) -> Pattern | None:
        """Note a pattern that a module of the program made; None if another did."""
        path = Path(caller.f_code.co_filename)
        if not isinstance(pattern, str) or not path.is_relative_to(PACKAGE):
            return None
        if path == PACKAGE / "model/patterns.py":
            return None  # compiles what others made
        noted = self.found.setdefault((pattern, flags), Pattern(pattern, flags))
        noted.places.add(f"{path.relative_to(PACKAGE)}:{caller.f_lineno}")
        return noted

    def state(self, pattern: str, flags: int, place: str, method: str) -> None:
        """Note a pattern that was read in the source."""
        noted = self.found.setdefault((pattern, flags), Pattern(pattern, flags))
        noted.places.add(place)
        noted.methods.add(method)

    def watch(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """Return what makes the same patterns and notes them."""

        def made(pattern: Any, flags: int = 0) -> Any:
            noted = self.add(pattern, int(flags), sys._getframe(1))
            result = make(pattern, flags)
            return result if noted is None else _Used(result, noted)

        return made

    def watch_use(self, method: str) -> Callable[..., Any]:
        """Return a function of `re` that notes the pattern it is given."""
        use = getattr(re, method)

        def used(pattern: Any, *args: Any, **options: Any) -> Any:
            if isinstance(pattern, _Used):
                return getattr(pattern, method)(*args, **options)
            flags = int(options.get("flags", 0))
            noted = self.add(pattern, flags, sys._getframe(1))
            if noted is not None:
                noted.methods.add(method)
            return use(pattern, *args, **options)

        return used


def _uses(path: Path) -> dict[str, set[str]]:
    """Return what a module calls on each name that may hold a pattern."""
    called: dict[str, set[str]] = defaultdict(set)
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            called[node.value.id].add(node.attr)
    return called


def _compile_all() -> _Notes:
    from fabbench.model import patterns

    notes = _Notes()
    patterns.lazy = notes.watch(patterns.lazy)
    re.compile = notes.watch(re.compile)
    for method in AT_START | ANYWHERE:
        setattr(re, method, notes.watch_use(method))
    import fabbench

    for module in pkgutil.walk_packages(fabbench.__path__, "fabbench."):
        import_module(module.name)
    _read_everything()
    _add_methods()
    _add_written(notes)
    _add_tabled(notes)
    return notes


def _read_everything() -> None:
    from fabbench.model.errors import MachineError
    from fabbench.runs.parse_file import parse_file

    for path in sorted(each for folder in (LOGS, DATA / "corpus") for each in folder.rglob("*")):
        if path.is_file():
            try:
                list(parse_file(path))
            except MachineError:
                continue  # no log


def _add_methods() -> None:
    """Add what the source calls on patterns that have a name."""
    for module in [each for name, each in sys.modules.items() if name.startswith("fabbench")]:
        uses = _uses(Path(str(module.__file__)))
        for name, value in vars(module).items():
            if isinstance(value, _Used):
                value.noted.methods |= uses[name] & (AT_START | ANYWHERE)


def _add_written(notes: _Notes) -> None:
    """Add what stands in calls of `re` that nothing above made."""
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name(id="re"), attr=method),
                    args=[ast.Constant(value=str(text)), *_],
                ) if method in AT_START | ANYWHERE:
                    place = f"{path.relative_to(PACKAGE)}:{node.lineno}"
                    notes.state(text, 0, place, method)
                case _:
                    continue


def _add_tabled(notes: _Notes) -> None:
    """Add the patterns of tables, which are searched for in lines and messages."""
    from fabbench.evidence import known_errors

    place = "evidence/known_errors.py"
    of_deaths = (each for text in known_errors.fatal_texts() for each in text.expressions)
    of_causes = (each for error in known_errors.by_code().values() for each in error.expressions)
    for pattern in (*of_deaths, *of_causes):
        notes.state(pattern, 0, place, "search")
    for path in (*PACKAGE.glob("launchers/*/*.toml"), *PACKAGE.glob("remote/*.toml")):
        place = str(path.relative_to(PACKAGE))
        for record in tomllib.loads(path.read_text("utf-8")).get("message", ()):
            if "pattern" in record:
                notes.state(record["pattern"], _OF_TABLES, place, "search")


if __name__ == "__main__":
    for each in _compile_all().found.values():
        row = asdict(each)
        print(json.dumps(row | {name: sorted(row[name]) for name in ("places", "methods")}))
