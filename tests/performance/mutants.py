"""Mutants: whether the tests notice a change of what decides about figures.

``python -m tests.performance.mutants [MODULE…]`` changes one expression or statement at a time of
the modules in ``mutants.toml``, and runs the tests that it names there. A mutant that no test
notices survives; those that cannot be noticed are listed there, each with the reason.

The changed module is compiled in a process forked for it: no file changes, and what the tests load
besides is loaded once.
"""

import argparse
import ast
import os
import random
import signal
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

RECORDS: Final = Path(__file__).with_name("mutants.toml")
LOADED_ONCE: Final = ("pytest", "numpy", "pandas", "msgspec", "jinja2", "click")
MOST_SURVIVORS: Final = 0.05  # the share of a module's sample
_UNLOADABLE: Final = 2  # what pytest ends with where a test module cannot be imported
_ERROR: Final = 3  # what pytest ends with after an error of its own
_SLOWER: Final = 4  # a mutant that takes this many times as long as no change loops for ever

_COMPARISONS: Mapping[type[ast.cmpop], Sequence[type[ast.cmpop]]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_OPERATORS: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
_CALLS: Mapping[str, str] = {"min": "max", "max": "min", "any": "all", "all": "any"}
_UNCHANGED: Final = frozenset({"annotation", "returns", "decorator_list"})


@dataclass(frozen=True)
class Mutant:
    """One change of one module."""

    module: str
    name: str
    """The function, and what is changed there: it stays the same where lines move."""
    line: int
    apply: Callable[[], None] = field(compare=False, repr=False)
    """Change the tree that it was found in."""


@dataclass(frozen=True)
class Module:
    """A module, the tests that should notice a change of it, and changes that nobody can notice."""

    name: str
    tests: Sequence[str]
    allowed: float
    """The share of a sample that may survive."""
    equivalent: Mapping[str, str]
    """Name of a mutant → why it is none."""


def modules() -> list[Module]:
    """Return the modules of the record."""
    records = tomllib.loads(RECORDS.read_text("utf-8"))["module"]
    return [
        Module(
            each["name"],
            each["tests"],
            each.get("allowed", MOST_SURVIVORS),
            {one["mutant"]: one["reason"] for one in each.get("equivalent", ())},
        )
        for each in records
    ]


# ---------------------------------------------------------------- changes


def replacements(node: ast.AST) -> Iterator[ast.AST]:  # noqa: C901, PLR0912 - a table of kinds
    """Yield what may stand in place of a node."""
    match node:
        case ast.Compare(left, [operator], [right]):
            for other in _COMPARISONS[type(operator)]:
                yield ast.Compare(left, [other()], [right])
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.BinOp(left, operator, right) if type(operator) in _OPERATORS:
            yield ast.BinOp(left, _OPERATORS[type(operator)](), right)
        case ast.AugAssign(target, operator, value):
            yield ast.AugAssign(target, _OPERATORS[type(operator)](), value)
            yield ast.Pass()
        case ast.Call(ast.Name(name), arguments, keywords) if name in _CALLS:
            yield ast.Call(ast.Name(_CALLS[name], ast.Load()), arguments, keywords)
        case ast.Expr(ast.Call()):
            yield ast.Pass()
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Pass()
        case ast.Constant(value):
            for changed in _values(value):
                yield ast.Constant(changed)
        case ast.If(test, body, otherwise) if not isinstance(test, ast.Compare | ast.BoolOp):
            yield ast.If(ast.UnaryOp(ast.Not(), test), body, otherwise)
        case ast.IfExp(test, body, otherwise) if not isinstance(test, ast.Compare | ast.BoolOp):
            yield ast.IfExp(ast.UnaryOp(ast.Not(), test), body, otherwise)


def _values(value: object) -> Iterator[bool | float | str]:
    """Yield other values of a constant. Sentences are left alone: tests do not assert them."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
        if value not in {0, 1}:
            yield 0
    elif isinstance(value, str) and " " not in value:
        yield "" if value else "?"


def mutants(module: str, tree: ast.Module) -> Iterator[Mutant]:
    """Yield every change of a module, in the order of its text."""
    for parent, key, at, where in _places(tree, ""):
        node = getattr(parent, key) if at is None else getattr(parent, key)[at]
        for other in replacements(node):
            ast.copy_location(other, node)
            before, after = _text(node), _text(other)
            yield Mutant(
                module, f"{where}: {before} → {after}", node.lineno, _change(parent, key, at, other)
            )


def _places(node: ast.AST, where: str) -> Iterator[tuple[ast.AST, str, int | None, str]]:
    """Yield where each node below one is: in which node, field and position, and in what."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        where = f"{where}.{node.name}".lstrip(".")
    for key, value in ast.iter_fields(node):
        if key in _UNCHANGED or isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom):
            continue
        if isinstance(node, ast.Assign | ast.AnnAssign) and _is_alias(node):
            continue
        several = isinstance(value, list)
        for at, child in enumerate(value if several else [value]):
            if isinstance(child, ast.AST) and not _is_left_alone(child):
                if isinstance(child, ast.expr | ast.stmt):
                    yield node, key, at if several else None, where
                yield from _places(child, where)


def _is_alias(node: ast.Assign | ast.AnnAssign) -> bool:
    """Return whether an assignment names a type."""
    return isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation)


def _is_left_alone(node: ast.AST) -> bool:
    """Return whether a node is a docstring, an import for types alone, or a check of lengths."""
    match node:
        case ast.Expr(ast.Constant()) | ast.If(ast.Name("TYPE_CHECKING")) | ast.keyword("strict"):
            return True
    return False


def _change(parent: ast.AST, key: str, at: int | None, other: ast.AST) -> Callable[[], None]:
    def change() -> None:
        if at is None:
            setattr(parent, key, other)
        else:
            getattr(parent, key)[at] = other

    return change


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.If):
        return f"if {ast.unparse(node.test)}"
    return " ".join(ast.unparse(node).split())


# ---------------------------------------------------------------- a mutant is tested


class _Changed(SourceFileLoader):
    """Loads a changed module, and never from a file of compiled code."""

    tree: ast.Module

    def get_code(self, fullname: str) -> CodeType:
        del fullname
        return compile(ast.fix_missing_locations(self.tree), self.path, "exec", dont_inherit=True)


@dataclass(frozen=True)
class _Finder(MetaPathFinder):
    """Finds the changed module instead of the one in its file."""

    module: str
    tree: ast.Module

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self.module:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        assert spec.origin is not None
        spec.loader = _Changed(fullname, spec.origin)
        spec.loader.tree = self.tree
        return spec


def start(module: Module, tree: ast.Module, mutant: Mutant | None, limit_s: float) -> int:
    """Start the tests of a module with a change, or without; return the process id."""
    pid = os.fork()
    if pid:
        return pid
    signal.setitimer(signal.ITIMER_REAL, limit_s)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    if mutant is not None:
        mutant.apply()
    sys.meta_path.insert(0, _Finder(module.name, tree))
    import pytest

    words = ["-x", "-q", "-p", "no:cacheprovider", "--tb=no", *module.tests]
    status: int = _ERROR
    try:
        status = pytest.main(words)
    finally:
        os._exit(status)


@dataclass
class Score:
    """What became of the mutants of a module."""

    module: str
    every: int = 0
    """All that there are: the others are a sample."""
    fates: Counter[str] = field(default_factory=Counter)

    @property
    def tested(self) -> int:
        """How many could be noticed."""
        return self.fates["killed"] + self.fates["survived"]

    @property
    def share(self) -> float:
        """The share of them that survived; 1 if there are none: nothing was shown."""
        return self.fates["survived"] / self.tested if self.tested else 1.0


def parsed(module: str) -> ast.Module:
    """Return the tree of a module."""
    path = Path("src", *module.split(".")).with_suffix(".py")
    return ast.parse(path.read_text("utf-8"))


def sample(module: Module, tree: ast.Module, size: int, seed: int) -> tuple[int, list[Mutant]]:
    """Return how many mutants a module has, and some of those that can be noticed."""
    every = list(mutants(module.name, tree))
    unknown = module.equivalent.keys() - {each.name for each in every}
    if unknown:
        raise SystemExit(f"{RECORDS.name}: {module.name} has no mutant {min(unknown)!r}")
    left = [each for each in every if each.name not in module.equivalent]
    some = random.Random(seed).sample(left, min(size, len(left)))
    return len(every), some


def run(module: Module, score: Score, size: int, seed: int) -> None:
    """Test a sample of the mutants of a module, as many at a time as there are processors."""
    tree = parsed(module.name)
    begun = time.monotonic()
    _, status = os.waitpid(start(module, tree, None, 600), 0)
    if status:
        raise SystemExit(f"the tests of {module.name} fail without any change: run them")
    limit_s = _SLOWER * (time.monotonic() - begun) + 5
    score.every, waiting = sample(module, tree, size, seed)
    running: dict[int, Mutant] = {}
    while waiting or running:
        while waiting and len(running) < (os.cpu_count() or 1):
            mutant = waiting.pop()
            running[start(module, tree, mutant, limit_s)] = mutant
        pid, status = os.wait()
        mutant = running.pop(pid)
        fate = _fate(status)
        score.fates[fate] += 1
        if fate == "survived":
            print(f"  survived: {mutant.module}:{mutant.line} {mutant.name}", flush=True)


def _fate(status: int) -> str:
    if status == 0:
        return "survived"
    ended = os.WIFEXITED(status) and os.WEXITSTATUS(status) == _UNLOADABLE
    return "unloadable" if ended else "killed"


def main() -> int:
    """Test mutants of the named modules, or of all."""
    parser = argparse.ArgumentParser(prog="python -m tests.performance.mutants")
    parser.add_argument("modules", nargs="*", metavar="MODULE", help="Such as gates. Default: all.")
    parser.add_argument("--sample", type=int, default=50, help="Mutants of each module.")
    parser.add_argument("--seed", type=int, default=47, help="Seed that they are drawn with.")
    asked = parser.parse_args()
    for name in LOADED_ONCE:
        import_module(name)
    within = True
    known = {module.name.rpartition(".")[2]: module for module in modules()}
    if unknown := {*asked.modules} - known.keys():
        parser.error(f"{', '.join(sorted(unknown))} is none of {', '.join(known)}")
    for module in map(known.__getitem__, asked.modules or known):
        begun = time.monotonic()
        score = Score(module.name)
        run(module, score, asked.sample, asked.seed)
        share = score.share
        within &= share <= module.allowed
        print(
            f"{score.module}: {score.tested} of {score.every} mutants tested, "
            f"{score.fates['survived']} survived ({share:.0%}; at most {module.allowed:.0%}), "
            f"{len(module.equivalent)} known as equivalent, "
            f"{score.fates['unloadable']} cannot be loaded; {time.monotonic() - begun:.0f} s",
            flush=True,
        )
    return 0 if within else 1


if __name__ == "__main__":
    sys.exit(main())
