"""The sections of `fabbench.yaml`: defaults, variants and targets.

The types of options read their values.

It alone uses PyYAML: every scalar stays as it is written, and nothing is ever constructed from
tags.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from fabbench.model.compat import override
from fabbench.model.errors import RequestError
from fabbench.model.hosts import Target
from fabbench.model.messages import did_you_mean, nearest
from fabbench.model.options import (
    FABRIC,
    Environment,
    File,
    LauncherOptions,
    Option,
    Text,
    Whole,
    declared,
    option,
)
from fabbench.model.plan import Variant
from fabbench.plan.request import check_name

if TYPE_CHECKING:
    import yaml


Tree: TypeAlias = "str | list[Tree] | dict[str, Tree] | None"
"""A text, or None for nothing at all; a list; a mapping."""

_MERGE = "tag:yaml.org,2002:merge"


def parse(text: str, source: str) -> Tree:
    """Read YAML text; None if it is empty.

    Raise RequestError, with line and column, if it is not valid YAML.
    """
    import yaml

    try:
        tree: Tree = yaml.load(text, Loader=_loader())  # noqa: S506 - a SafeLoader
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
        raise RequestError(
            f"{source}:{line}:{column}: This is not valid YAML: {_problem(error)}.",
            hint=_advice(error),
        ) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise RequestError(
            f"{source}:{line}: This is not valid YAML: it has a control character."
        ) from error
    except RecursionError:
        raise RequestError(f"{source} is nested too deeply to be read.") from None
    return tree


@cache
def _loader() -> Any:
    import yaml

    class TextLoader(yaml.SafeLoader):
        yaml_implicit_resolvers = {"<": [(_MERGE, re.compile("<<"))]}  # noqa: RUF012 - as PyYAML has it

        @override
        def compose_mapping_node(self, anchor: Any) -> "yaml.MappingNode":
            # PyYAML silently takes the last of two equal keys.
            node: yaml.MappingNode = super().compose_mapping_node(anchor)
            first: dict[str, int] = {}
            for key, _ in node.value:
                if key.tag != _MERGE and isinstance(key, yaml.ScalarNode):
                    if not key.value or key.value in first:
                        line = first.get(key.value)
                        problem = (
                            f"the key {key.value} is a duplicate of the one on line {line}"
                            if line
                            else "no key"
                        )
                        raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                    first[key.value] = key.start_mark.line + 1
            return node

    TextLoader.yaml_constructors = {
        "tag:yaml.org,2002:str": lambda _, node: node.value or (None if node.style is None else ""),
        "tag:yaml.org,2002:seq": lambda loader, node: loader.construct_sequence(node, deep=True),
        "tag:yaml.org,2002:map": lambda loader, node: loader.construct_mapping(node, deep=True),
        None: yaml.SafeLoader.construct_undefined,
    }
    return TextLoader


def _problem(error: "yaml.MarkedYAMLError") -> str:
    problem, mark = (
        (error.problem or "it cannot be read").replace("'\\t'", "tab"),
        error.context_mark,
    )
    return (
        f"{problem} ({error.context}, from line {mark.line + 1})"
        if error.context and mark
        else problem
    )


def _advice(error: "yaml.MarkedYAMLError") -> str | None:
    problem = error.problem or ""
    if "'\\t'" in problem:
        return "YAML is indented with spaces."
    if "'['" in problem or "'<scalar>'" in problem:
        return 'In a list in brackets, a range of hosts needs quotes: ["node[01-16]"].'
    return "Quote what begins with {." if "unhashable" in problem else None


Read: TypeAlias = Callable[[Tree, str], Any]
"""Reads a value at a path such as ``targets.prod.port``; None: something is wrong with it."""

TARGET_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
LAUNCHER, OPTIONS = "launcher", "options"
"""Keys of a target that are not options.

Its launcher, and a mapping for more keys of the launcher.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """Defaults of `fabbench run`."""

    repeat: int | None = option(Whole(1, 999), "Repeats of each configuration (--repeat).")
    fabrics: tuple[str, ...] = option(
        FABRIC, "Configurations, the first against the last (--fabric).", many=tuple
    )
    run: Mapping[str, Mapping[str, str | bool | tuple[str, ...]]] = field(default_factory=dict)
    """Benchmark → long name of an option → value as typed.

    A tuple for an option given several times.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
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


def options_of(kind: type[LauncherOptions]) -> Mapping[str, Option]:
    """Return all options of the targets of a launcher, by the names of their fields."""
    common = {name: each for name, each in declared(Target).items() if name not in kind.without}
    return {**common, **declared(kind)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Reads a file, and collects the mistakes in it."""

    folder: Path
    """The directory of the file, which its relative paths start from."""
    launchers: Mapping[str, type[LauncherOptions]]  # Launcher → its options
    benchmarks: Callable[[str], Mapping[str, Option]] | None
    """Returns the options of a benchmark's command, by `Option.word`; raises RequestError. None.

    Not checked.
    """
    mistakes: list[str] = field(default_factory=list)

    def file(self, tree: Tree) -> dict[str, Any]:
        """Return the fields of a `Config` that a file has."""
        known: dict[str, Read] = {
            **self._options(Config),
            "defaults": self._defaults,
            "variants": partial(self._names, self._variant),
            "targets": partial(self._names, self._target),
        }
        values = self._section(tree, "", known)
        names = {*values.get("targets", ()), *self.launchers}
        if (default := values.get("default")) and default not in names:
            self._unknown("default", default, sorted(names), what="target")
        return values

    def _wrong(self, path: str, tree: Tree, expected: str) -> None:
        seen = {type(None): "empty", list: "a list", dict: "a mapping"}.get(type(tree), repr(tree))
        self.mistakes.append(f"{path} is {seen}; expected {expected}.")

    def _unknown(self, path: str, name: str, valid: Collection[str], *, what: str = "key") -> None:
        # Case and underscores are the most common typos.
        near = did_you_mean(nearest(name.replace("_", "-"), valid))
        where = f"{path}: unknown" if path else "Unknown"
        self.mistakes.append(
            f"{where} {what} {name!r}.{near} Valid here: {', '.join(valid) or 'none'}."
        )

    def _section(
        self, tree: Tree, path: str, known: Mapping[str, Read], *, what: str = "key"
    ) -> dict[str, Any]:
        """Return key → value of the valid entries. An empty section counts as absent."""
        if not isinstance(tree, dict):
            if tree is not None:
                self._wrong(path or "The file", tree, f"a mapping with some of {', '.join(known)}")
            return {}
        values = {}
        for name, value in tree.items():
            if name in known:
                values[name] = known[name](value, f"{path}.{name}".lstrip("."))
            else:
                self._unknown(path, name, known, what=what)
        return {name: value for name, value in values.items() if value is not None}

    def _names(
        self, read: Callable[[str, Tree, str], Any], tree: Tree, path: str
    ) -> dict[str, Any]:
        """Read a mapping whose keys are names that the user chose."""
        if tree is not None and not isinstance(tree, dict):
            self._wrong(path, tree, ABOUT[path.rpartition(".")[2]][0])
            return {}
        return self._section(tree, path, {name: partial(read, name) for name in tree or ()})

    # ------------------------------------------------------------ values

    def _options(self, kind: type, *, without: Collection[str] = ()) -> dict[str, Read]:
        """Return readers for the options of a dataclass, by their keys."""
        options = (each for name, each in declared(kind).items() if name not in without)
        return {each.key: partial(self._value, each) for each in options if each.only != "render"}

    def _value(self, option: Option, tree: Tree, path: str) -> Any:
        places: dict[str, Tree] = {path: tree}
        if isinstance(option.type, Environment) and isinstance(tree, dict):
            places = {
                f"{path}.{name}": f"{name}={value}" if isinstance(value, str) else value
                for name, value in tree.items()
            }
        elif option.many and isinstance(tree, list) and tree:
            places = {f"{path}[{index}]": value for index, value in enumerate(tree)}
        elif isinstance(option.type, Environment) or (
            option.many and not (option.type.lists and tree)
        ):
            self._wrong(path, tree, option.expected)
            return None
        values = [self._scalar(option, value, at) for at, value in places.items()]
        if any(value is None for value in values):
            return None
        return option.many(values) if option.many else values[0]

    def _scalar(self, option: Option, tree: Tree, path: str) -> Any:
        if isinstance(tree, str):
            try:
                value = option.type.parse(tree)
            except ValueError as error:
                if str(error):
                    self.mistakes.append(f"{path}: {error}.")
                    return None
            else:
                return self.folder / value if isinstance(option.type, File) else value
        self._wrong(
            path, tree, "a text" if isinstance(option.type, Environment) else option.type.expected
        )
        return None

    def _typed(self, option: Option, tree: Tree, path: str) -> Any:
        """Return a value, or several, as checked texts, or whether a flag is set.

        The command line reads them.
        """
        items = tree if option.many and isinstance(tree, list) else [tree]
        values = [self._scalar(option, each, path) for each in items]
        if any(value is None for value in values):
            return None
        return (
            values[0] if isinstance(values[0], bool) else tuple(items) if option.many else items[0]
        )

    # ------------------------------------------------------------ sections

    def _defaults(self, tree: Tree, path: str) -> Defaults:
        known: dict[str, Read] = {
            **self._options(Defaults),
            "run": partial(self._names, self._benchmark),
        }
        return Defaults(**self._section(tree, path, known))

    def _benchmark(self, name: str, tree: Tree, path: str) -> dict[str, Any] | None:
        if self.benchmarks is None:
            return (
                {key: value for key, value in tree.items() if value}
                if isinstance(tree, dict)
                else None
            )
        if not isinstance(tree, dict):
            self._wrong(path, tree, "a mapping of options to values")
            return None
        try:
            known = {
                word: partial(self._typed, each) for word, each in self.benchmarks(name).items()
            }
        except RequestError as error:
            self.mistakes.append(f"{path}: {error} {error.hint or ''}".rstrip())
            return None
        return self._section(tree, path, known, what="option")

    def _variant(self, name: str, tree: Tree, path: str) -> Variant | None:
        values = self._section(tree, path, self._options(Variant))
        try:
            check_name(name)
        except RequestError as error:
            self.mistakes.append(f"{path}: {error} {error.hint}")
            return None
        return Variant(name=name, **{key.replace("-", "_"): value for key, value in values.items()})

    def _target(self, name: str, tree: Tree, path: str) -> Target | None:
        if not TARGET_NAME.search(name) or "\n" in name:
            self.mistakes.append(
                f"{path}: the name of a target can only have letters, digits and . _ -."
            )
        elif name in self.launchers:
            self.mistakes.append(
                f"{path}: a target cannot have the name of a launcher: --on {name} means that."
            )
        if not isinstance(tree, dict | None):
            self._wrong(
                path, tree, f"a mapping with some of {LAUNCHER}, {', '.join(declared(Target))}"
            )
            return None
        entries = dict(tree or {})
        more, launcher = entries.pop(OPTIONS, None), entries.pop(LAUNCHER, None)
        if isinstance(more, dict):
            entries |= more
        elif more is not None:
            self._wrong(f"{path}.{OPTIONS}", more, ABOUT[OPTIONS][0])
        if not isinstance(launcher, str):
            known = ", ".join(sorted(self.launchers))
            self.mistakes.append(f"{path} has no launcher. Add launcher: and one of {known}.")
            return None
        if launcher not in self.launchers:
            self._unknown(f"{path}.launcher", launcher, sorted(self.launchers), what="launcher")
            return None
        kind = self.launchers[launcher]
        keys = {**self._options(Target, without=kind.without), **self._options(kind)}
        others = {each.key for of in self.launchers.values() for each in options_of(of).values()}
        for key in [key for key in entries if key in others and key not in keys]:
            del entries[key]
            self.mistakes.append(
                f"{path}: {key} has no effect with the launcher {launcher}. Valid: "
                f"{', '.join(keys)}."
            )
        for each in (options_of(kind)[required] for required in kind.requires):
            if each.key not in entries:
                text = (
                    f"{path} has no {each.key}, which the launcher {launcher} needs: "
                    f"{each.type.expected}."
                )
                self.mistakes.append(text)
        values = self._section(entries, path, keys)
        fields = {key.replace("-", "_"): value for key, value in values.items()}
        own = {each: fields.pop(each) for each in declared(kind) if each in fields}
        try:
            return Target(name=name, launcher=launcher, options=kind(**own), **fields)
        except RequestError as error:
            self.mistakes.append(f"{path}: {error} {error.hint or ''}".rstrip())
            return None
