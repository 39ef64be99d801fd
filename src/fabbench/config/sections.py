"""The sections of `fabbench.yaml`: defaults, variants and targets.

The types of options read their values. YAML is read here alone: every scalar stays as it is
written, and nothing is ever constructed from tags.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Target
from fabbench.model.mappings import Names, without_empty
from fabbench.model.messages import did_you_mean, nearest
from fabbench.model.options import (
    FABRIC,
    FORMER,
    Environment,
    File,
    LauncherOptions,
    Launchers,
    Option,
    Options,
    Text,
    Truth,
    Whole,
    declared,
    option,
)
from fabbench.model.plan import Variant
from fabbench.model.values import frozen
from fabbench.plan.request import check_name

if TYPE_CHECKING:
    import yaml


Tree: TypeAlias = "str | list[Tree] | dict[str, Tree] | None"
"""A text, or None for nothing at all; a list; a mapping."""

Entries: TypeAlias = dict[str, Tree]
"""Those of a mapping."""

_MERGE = "tag:yaml.org,2002:merge"


def parse(text: str, source: str) -> Tree:
    """Read YAML text; None if it is empty.

    Raise RequestError, with line and column, if it is not valid YAML.
    """
    import yaml

    try:
        tree: Tree = yaml.load(text, Loader=_loader())  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        where = f"{source}:{_position(error)}"
        problem = _problem(error)
        raise RequestError(
            f"{where}: This is not valid YAML: {problem}.", hint=_hint_for(error)
        ) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise RequestError(
            f"{source}:{line}: This is not valid YAML: it has a control character."
        ) from error
    except RecursionError:
        raise RequestError(f"{source} is nested too deeply to be read.") from None
    return tree


def _position(error: "yaml.MarkedYAMLError") -> str:
    """Return line and column, counted from 1."""
    mark = error.problem_mark or error.context_mark
    if mark is None:
        return "1:1"
    line = mark.line + 1
    column = mark.column + 1
    return f"{line}:{column}"


@cache
def _loader() -> Any:
    """Return a class for `yaml.load` that knows texts, lists, mappings and `<<`, but no tags."""
    import yaml

    class TextLoader(yaml.SafeLoader):
        # First character of an unquoted text → its tag if it matches: numbers stay texts
        yaml_implicit_resolvers = {"<": [(_MERGE, re.compile("<<"))]}  # noqa: RUF012

        @override
        def compose_mapping_node(self, anchor: Any) -> "yaml.MappingNode":
            node: yaml.MappingNode = super().compose_mapping_node(anchor)
            _require_distinct_keys(node)
            return node

    TextLoader.yaml_constructors = {
        "tag:yaml.org,2002:str": lambda _, node: _text_of(node),
        "tag:yaml.org,2002:seq": lambda loader, node: loader.construct_sequence(node, deep=True),
        "tag:yaml.org,2002:map": lambda loader, node: loader.construct_mapping(node, deep=True),
        None: yaml.SafeLoader.construct_undefined,  # any other tag is an error
    }
    return TextLoader


def _require_distinct_keys(node: "yaml.MappingNode") -> None:
    """Raise MarkedYAMLError for an empty key, or two equal ones: PyYAML takes the last of them."""
    import yaml

    first: dict[str, int] = {}
    for key, _ in node.value:
        if key.tag == _MERGE or not isinstance(key, yaml.ScalarNode):
            continue
        problem = "" if key.value else "no key"
        if key.value in first:
            line = first[key.value]
            problem = f"the key {key.value} is a duplicate of the one on line {line}"
        if problem:
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
        first[key.value] = key.start_mark.line + 1  # Marks count from 0


def _text_of(node: "yaml.ScalarNode") -> str | None:
    """Return a scalar as it is written; None for nothing at all: "" in quotes is a text."""
    if not node.value and node.style is None:
        return None
    text: str = node.value
    return text


def _problem(error: "yaml.MarkedYAMLError") -> str:
    problem = error.problem or "it cannot be read"
    problem = problem.replace("'\\t'", "tab")  # As PyYAML quotes a character
    mark = error.context_mark
    if not error.context or mark is None:
        return problem
    line = mark.line + 1
    return f"{problem} ({error.context}, from line {line})"


def _hint_for(error: "yaml.MarkedYAMLError") -> str | None:
    """Return what to do about the usual mistakes, by the words of PyYAML's messages."""
    problem = error.problem or ""
    if "'\\t'" in problem:
        return "YAML is indented with spaces."
    if "'['" in problem or "'<scalar>'" in problem:
        return 'In a list in brackets, a range of hosts needs quotes: ["node[01-16]"].'
    return "Quote what begins with {." if "unhashable" in problem else None


BenchmarkOptions: TypeAlias = Callable[[str], Options]
"""Returns a benchmark's options by `Option.word`, or raises RequestError."""
Values: TypeAlias = dict[str, Any]
"""What is read: key, or field, → its value."""
ReadValue: TypeAlias = Callable[[Tree, str], Any]
"""Reads a value at a path such as ``targets.prod.port``."""
ReadEntry: TypeAlias = Callable[[str, Tree, str], Any]
"""Reads an entry: its name, its value, and its path."""

TARGET_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
LAUNCHER = "launcher"
OPTIONS = "options"
"""Keys of a target that are not options: its launcher, and a mapping for more keys of it."""


@frozen
class Defaults:
    """Defaults of `fabbench run`."""

    repeat: int | None = option(Whole(1, 999), "Repeats of each configuration (--repeat).")
    fabrics: Names = option(
        FABRIC, "Configurations, the first against the last (--fabric).", many=tuple
    )
    run: Mapping[str, Mapping[str, str | bool | tuple[str, ...]]] = field(default_factory=dict)
    """Benchmark → long name of an option → value as typed; a tuple where there may be several."""


@frozen
class Config:
    """A whole file."""

    path: Path
    default: str | None = option(
        Text("the name of a target"), "Where to run without --on and FABBENCH_TARGET."
    )
    store: Path | None = option(
        File("a directory"), "Directory where runs are kept, relative to the file."
    )
    defaults: Defaults = field(default_factory=Defaults)
    targets: Mapping[str, Target] = field(default_factory=dict)
    variants: Mapping[str, Variant] = field(default_factory=dict)


ABOUT: Mapping[str, tuple[str, str]] = MappingProxyType({
    "defaults": ("a mapping", "Defaults of `fabbench run`."),
    "run": (
        "a mapping of benchmarks to their options",
        "Defaults of the options of each benchmark, by their long names.",
    ),
    "variants": ("a mapping of names to variants", "Variants, by the names that --variant takes."),
    "targets": ("a mapping of names to targets", "Places to run, by the names that --on takes."),
    LAUNCHER: ("the name of a launcher", "How to reach its machines and start programs there."),
    OPTIONS: ("a mapping", "More keys of the launcher, as if they were keys of the target."),
})  # fmt: skip
"""Keys that are not options: what is expected, and what they mean."""


def options_of(kind: type[LauncherOptions]) -> Options:
    """Return all options of the targets of a launcher, by the names of their fields."""
    options = dict(declared(Target))
    for name in kind.without:
        options.pop(name, None)
    return {**options, **declared(kind)}


@contextmanager
def _naming_key(path: str) -> Iterator[None]:
    """Put the path of a key before what a RequestError of the block says."""
    try:
        yield
    except RequestError as error:
        raise RequestError(f"{path}: {error.with_hint}") from None


def _wrong_kind(path: str, tree: Tree, expected: str) -> RequestError:
    kinds = {type(None): "empty", list: "a list", dict: "a mapping"}
    actual = kinds.get(type(tree), repr(tree))
    return RequestError(f"{path} is {actual}; expected {expected}.")


def _unknown_name(path: str, name: str, valid: Iterable[str], what: str) -> RequestError:
    # Case and underscores are the most common typos.
    near = did_you_mean(nearest(name.replace("_", "-"), [*valid]))
    where = f"{path}: unknown" if path else "Unknown"
    known = ", ".join(valid) or "none"
    seen = f"{where} {what} {name!r}.{near}"
    return RequestError(f"{seen} Valid here: {known}.")


def _mapping(tree: Tree, path: str, expected: str) -> Entries:
    """Return the entries of a mapping; an empty section counts as absent."""
    if not isinstance(tree, dict | None):
        raise _wrong_kind(path, tree, expected)
    return tree or {}


def _section(tree: Tree, path: str, known: Mapping[str, ReadValue], what: str = "key") -> Values:
    """Return key → value of a mapping, each read as its key is `known` to be.

    `what`: what messages call a key.
    """
    keys = ", ".join(known)
    entries = _mapping(tree, path or "The file", f"a mapping with some of {keys}")
    values = {}
    for name, entry in entries.items():
        if name not in known:
            raise _unknown_name(path, name, known, what)
        place = f"{path}.{name}" if path else name
        values[name] = known[name](entry, place)
    return values


def _entries_of_many(option: Option, tree: Tree, path: str) -> dict[str, Tree]:
    """Return the values of an option that takes several, by their places in the file."""
    takes_variables = isinstance(option.type, Environment)
    if isinstance(tree, list) and tree:
        return {f"{path}[{index}]": each for index, each in enumerate(tree)}
    if takes_variables and isinstance(tree, dict):
        assignments = {name: _assignment(name, value) for name, value in tree.items()}
        return {f"{path}.{name}": text for name, text in assignments.items()}
    if tree and option.type.lists and not takes_variables:  # One text that may be a list itself
        return {path: tree}
    raise _wrong_kind(path, tree, option.expected)


def _named_entries(read: ReadEntry, tree: Tree, path: str) -> Values:
    """Read a mapping whose keys are names that the user chose."""
    expected, _ = ABOUT[path.rpartition(".")[2]]  # a path ends in the name of its section
    entries = _mapping(tree, path, expected)
    values = {}
    for name, entry in entries.items():
        values[name] = read(name, entry, f"{path}.{name}")
    return values


@frozen
class Reader:
    """Reads a file. Raise RequestError for the first mistake in it."""

    folder: Path
    """The directory of the file, which its relative paths start from."""
    launchers: Launchers  # Launcher → its options
    benchmarks: BenchmarkOptions | None  # None: not checked

    def file(self, tree: Tree) -> Values:
        """Return the fields of a `Config` that a file has."""
        known: dict[str, ReadValue] = {
            **self._option_readers(Config),
            "defaults": self._defaults,
            "variants": partial(_named_entries, self._variant),
            "targets": partial(_named_entries, self._target),
        }
        values = _section(tree, "", known)
        names = {*values.get("targets", ()), *self.launchers}
        default = values.get("default")
        if default and default not in names:
            raise _unknown_name("default", default, sorted(names), "target")
        return values

    # ------------------------------------------------------------ values

    def _option_readers(self, kind: type, *, without: Collection[str] = ()) -> dict[str, ReadValue]:
        """Return readers for the options of a dataclass, by their keys."""
        readers: dict[str, ReadValue] = {}
        for name, each in declared(kind).items():
            # The file is for runs: it has nothing that only `fabbench render` uses.
            if name not in without and each.for_runs:
                readers[each.key] = partial(self._value, each)
        return readers

    def _value(self, option: Option, tree: Tree, path: str) -> Any:
        """Return the value of an option.

        Several values are a list in the file; variables (NAME=VALUE) may be a mapping instead. Of
        some types, as that of hosts, one text stands for several, too (`lists`).
        """
        if not option.many:
            return self._scalar(option, tree, path)
        entries = _entries_of_many(option, tree, path)
        read = partial(self._scalar, option)
        values = [read(each, place) for place, each in entries.items()]
        return option.many(values)

    def _scalar(self, option: Option, tree: Tree, path: str) -> Any:
        # The value of an option, or one of several, from the text that it has to be.
        expected = option.type.expected
        if isinstance(option.type, Environment):
            expected = "a text"  # a mapping of variables has been split into these
        if not isinstance(tree, str):
            raise _wrong_kind(path, tree, expected)
        try:
            value = option.type.parse(tree)
        except ValueError as error:
            if str(error):  # else the text is not of this type at all
                raise RequestError(f"{path}: {error}.") from None
            raise _wrong_kind(path, tree, expected) from None
        return self.folder / value if isinstance(option.type, File) else value

    def _value_as_typed(self, option: Option, tree: Tree, path: str) -> Any:
        """Return a value, or several, as texts that the command line will read, but checked here.

        Of a flag, return whether it is set.
        """
        items = tree if option.many and isinstance(tree, list) else [tree]
        values = [self._scalar(option, each, path) for each in items]
        if isinstance(option.type, Truth):
            return values[0]
        return tuple(items) if option.many else items[0]

    # ------------------------------------------------------------ sections

    def _defaults(self, tree: Tree, path: str) -> Defaults:
        known = self._option_readers(Defaults)
        known["run"] = partial(_named_entries, self._benchmark)
        return Defaults(**_section(tree, path, known))

    def _benchmark(self, name: str, tree: Tree, path: str) -> Values:
        # The defaults of a benchmark's options, by their long names.
        if not isinstance(tree, dict):
            raise _wrong_kind(path, tree, "a mapping of options to values")
        if self.benchmarks is None:  # they are not checked; one without a value says nothing
            return without_empty(tree)
        with _naming_key(path):
            options = self.benchmarks(name)
        known = {word: partial(self._value_as_typed, each) for word, each in options.items()}
        words = [FORMER.get(word, word) for word in tree]  # an option may have been renamed
        named = dict(zip(words, tree.values(), strict=True))
        return _section(named, path, known, "option")

    def _variant(self, name: str, tree: Tree, path: str) -> Variant:
        values = _section(tree, path, self._option_readers(Variant))
        with _naming_key(path):
            check_name(name)
        return Variant(name=name, **_by_field(values))

    def _target(self, name: str, tree: Tree, path: str) -> Target:
        if not TARGET_NAME.fullmatch(name):
            raise RequestError(
                f"{path}: the name of a target can only have letters, digits and . _ -."
            )
        if name in self.launchers:
            raise RequestError(
                f"{path}: a target cannot have the name of a launcher: --on {name} means that."
            )
        common = ", ".join(declared(Target))
        entries = {**_mapping(tree, path, f"a mapping with some of {LAUNCHER}, {common}")}
        expected, _ = ABOUT[OPTIONS]
        more = entries.pop(OPTIONS, None)
        entries |= _mapping(more, f"{path}.{OPTIONS}", expected)  # these win over keys beside it
        launcher = self._launcher_of(entries.pop(LAUNCHER, None), path)
        kind = self.launchers[launcher]
        keys = {**self._option_readers(Target, without=kind.without), **self._option_readers(kind)}
        options = options_of(kind)
        for each in (options[name] for name in kind.requires):
            if each.key not in entries:
                raise RequestError(
                    f"{path} has no {each.key}, which the launcher {launcher} needs: "
                    f"{each.type.expected}."
                )
        fields = _by_field(_section(entries, path, keys, f"key for launcher {launcher}:"))
        # What is left are fields that targets of all launchers have
        of_launcher = {each: fields.pop(each) for each in declared(kind) if each in fields}
        with _naming_key(path):
            return Target(name=name, launcher=launcher, options=kind(**of_launcher), **fields)

    def _launcher_of(self, tree: Tree, path: str) -> str:
        known = sorted(self.launchers)
        if not isinstance(tree, str):
            names = ", ".join(known)
            raise RequestError(f"{path} has no launcher. Add launcher: and one of {names}.")
        if tree not in self.launchers:
            raise _unknown_name(f"{path}.{LAUNCHER}", tree, known, LAUNCHER)
        return tree


def _assignment(name: str, value: Tree) -> Tree:
    """Return a variable as one text."""
    return f"{name}={value}" if isinstance(value, str) else value


def _by_field(values: Values) -> Values:
    """Return values of keys by the names of their fields."""
    return {key.replace("-", "_"): value for key, value in values.items()}
