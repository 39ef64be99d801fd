"""How much the program says, and where a line says too much: `make size`.

What counts is thoughts, not lines. flake8 with wemake-python-styleguide finds

WPS221  a line of more than 14 nodes of the syntax tree (Jones complexity)
WPS222  a condition of more than 4 parts
WPS231  a function of a cognitive complexity above 15
WPS237  a formatted string that calculates
WPS509  a conditional expression inside another

and one rule of ours a tuple that is assigned to a tuple (`a, b = x, y`), other than a swap: TUPLE.

What stands in the code today is in thoughts.toml, per function. `check` fails if there is more;
`write` takes out what has gone. Neither lets anything in.
"""

import ast
import re
import subprocess
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fabbench.report.table import Table, to_markdown
from tests.support.paths import ROOT

PACKAGE = ROOT / "src/fabbench"
RECORD = Path(__file__).with_name("thoughts.toml")
CODES = ("WPS221", "WPS222", "WPS231", "WPS237", "WPS509")
TUPLE = "TUPLE"
MOST_EXPRESSIONS = 211_000
"""Of Python in src: a brake, and no target."""
FLAKE8 = (
    *("--isolated", f"--select={','.join(CODES)}"),
    *("--max-line-complexity=14", "--max-cognitive-score=15"),
    "--format=%(path)s:%(row)d:%(code)s:%(text)s",
)
_FOUND = re.compile(r"(?P<path>.+?):(?P<line>\d+):(?P<code>WPS\d+):.*?(?P<score>\d+ > \d+)?$")


@dataclass(frozen=True, slots=True)
class Offence:
    """A line or function that says too much; score is what was counted, 0 if nothing was."""

    path: Path
    line: int
    code: str
    score: int = 0


def by_flake8(folder: Path) -> Iterator[Offence]:
    """Yield what flake8 finds below a folder."""
    argv = [sys.executable, "-m", "flake8", *FLAKE8, str(folder)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode not in {0, 1}:
        raise RuntimeError(done.stderr)
    for text in done.stdout.splitlines():
        found = _FOUND.fullmatch(text)
        if found is None:
            raise RuntimeError(text)
        score = int(found["score"].split()[0]) if found["score"] else 0
        yield Offence(Path(found["path"]), int(found["line"]), found["code"], score)


def is_tuple_assignment(node: ast.AST) -> bool:
    """Return whether unrelated things share an assignment; a swap or a rotation is one thing."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Tuple | ast.List):
        return False
    target = node.targets[0]
    if not isinstance(target, ast.Tuple | ast.List):
        return False
    return {ast.unparse(each) for each in target.elts} != {
        ast.unparse(each) for each in node.value.elts
    }


@dataclass(slots=True)
class Size:
    """What is in a package; lines are neither blank nor comments, records are beside the code."""

    lines: int = 0
    expressions: int = 0
    functions: int = 0
    records: int = 0
    offences: list[Offence] = field(default_factory=list)

    def add(self, other: "Size") -> None:
        self.lines += other.lines
        self.expressions += other.expressions
        self.functions += other.functions
        self.records += other.records
        self.offences += other.offences

    def count(self, code: str) -> int:
        return sum(offence.code == code for offence in self.offences)

    def highest(self, code: str) -> int:
        scores = (offence.score for offence in self.offences if offence.code == code)
        return max(scores, default=0)

    def dense_lines(self) -> float:
        """Return the lines of WPS221 per 1,000."""
        return 1000 * self.count("WPS221") / self.lines if self.lines else 0.0


def _lines(text: str) -> int:
    stripped = map(str.strip, text.splitlines())
    return sum(1 for line in stripped if line and not line.startswith("#"))


def size_of(path: Path) -> Size:
    """Return the size of a file: Python, or templates and records beside it."""
    text = path.read_text("utf-8")
    if path.suffix != ".py":
        return Size(records=text.count("\n"))
    nodes = [*ast.walk(ast.parse(text))]
    tuples = [node for node in nodes if is_tuple_assignment(node)]
    return Size(
        lines=_lines(text),
        expressions=sum(isinstance(node, ast.expr) for node in nodes),
        functions=sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes),
        offences=[Offence(path, getattr(node, "lineno", 0), TUPLE) for node in tuples],
    )


def sizes(folder: Path) -> dict[str, Size]:
    """Return the size of each package below a folder, and `top` of the modules in it."""
    found: defaultdict[str, Size] = defaultdict(Size)
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    for path in files:
        if "__pycache__" not in path.parts:
            inside = path.relative_to(folder).parts
            found[inside[0] if len(inside) > 1 else "top"].add(size_of(path))
    for offence in by_flake8(folder):
        inside = offence.path.relative_to(folder).parts
        found[inside[0] if len(inside) > 1 else "top"].offences.append(offence)
    return dict(found)


def table(found: Mapping[str, Size]) -> Table:
    """Return the sizes as a table, with a row of their sums."""
    header = ["package", "expressions", "lines", "functions", *CODES, TUPLE]
    header += ["WPS221 per 1,000", "highest WPS221", "highest WPS231", "records"]
    total = Size()
    for size in found.values():
        total.add(size)
    rows = []
    for name, size in {**found, "all": total}.items():
        row = [name, size.expressions, size.lines, size.functions]
        row += [size.count(code) for code in (*CODES, TUPLE)]
        row += [f"{size.dense_lines():.1f}", size.highest("WPS221"), size.highest("WPS231")]
        rows.append([str(cell) for cell in (*row, size.records)])
    return Table(header=header, rows=rows, align="l" + "r" * (len(header) - 1))


# --- What stands in the code, per function ------------------------------------------------------

Record = dict[str, dict[str, int]]
"""Module and function → code → how many."""


def _functions(node: ast.AST, name: str = "") -> Iterator[tuple[int, int, str]]:
    """Yield the first line, the last line and the name of each function and class."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{name}.{child.name}" if name else child.name
            yield child.lineno, child.end_lineno or 0, inner
            yield from _functions(child, inner)
        else:
            yield from _functions(child, name)


def record_of(offences: Iterable[Offence], folder: Path) -> Record:
    """Return offences by the innermost function around each."""
    by_path: defaultdict[Path, list[Offence]] = defaultdict(list)
    for offence in offences:
        by_path[offence.path].append(offence)
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for path, theirs in by_path.items():
        functions = [*_functions(ast.parse(path.read_text("utf-8")))]
        module = str(path.relative_to(folder))
        for offence in theirs:
            around = [name for first, last, name in functions if first <= offence.line <= last]
            found[f"{module} {around[-1]}" if around else module][offence.code] += 1
    return {name: dict(sorted(found[name].items())) for name in sorted(found)}


def grown(now: Record, recorded: Record) -> list[str]:
    """Return a line for each function that has more than is recorded of it."""
    return [
        f"{name}: {code}: {number}, and {recorded.get(name, {}).get(code, 0)} recorded"
        for name, counts in now.items()
        for code, number in counts.items()
        if number > recorded.get(name, {}).get(code, 0)
    ]


def written(record: Record) -> str:
    """Return a record as thoughts.toml has it."""
    lines = ["# Generated by `make size ARGS=write`, which only takes out what has gone."]
    for name, counts in record.items():
        numbers = ", ".join(f"{code} = {number}" for code, number in counts.items())
        lines.append(f'"{name}" = {{ {numbers} }}')
    return "\n".join(lines) + "\n"


def main(words: Sequence[str]) -> int:
    """Print the sizes of src, or of a folder; return 1 if more stands there than is recorded."""
    asked = {*words} & {"check", "write"}
    folders = [Path(word).resolve() for word in words if word not in asked]
    folder = folders[0] if folders else PACKAGE
    found = sizes(folder)
    if not asked:
        print(to_markdown(table(found)), end="")
        return 0
    now = record_of((offence for size in found.values() for offence in size.offences), folder)
    recorded: Record = tomllib.loads(RECORD.read_text("utf-8")) if RECORD.exists() else now
    more = grown(now, recorded)
    expressions = sum(size.expressions for size in found.values())
    if expressions > MOST_EXPRESSIONS:
        more.append(f"{expressions} expressions; {MOST_EXPRESSIONS} are the most")
    if more:
        print("Lines that say too much; give the step a name, or the thing:", *more, sep="\n")
        return 1
    if "write" in asked:
        RECORD.write_text(written(now), "utf-8")
    elif now != recorded:
        print(f"Fewer than recorded. Run make size ARGS=write, and commit {RECORD.name}.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
