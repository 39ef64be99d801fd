"""The evidence against a suspect, in words."""

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, TypeVar

import numpy as np

from fabbench.model.messages import counted, quoted
from fabbench.model.units import format_decimal, format_ends, scale
from fabbench.sweep.beliefs import all_healthy
from fabbench.sweep.fit import Fit, FittedClass
from fabbench.sweep.readings import Flags, Floats, Ints, Readings

_LONGEST = 90
"""Characters of the reason why a test failed."""
_MANY = 20
"""Of more figures than these, the range is that of 90 % of them."""
_TELLING = 2
"""As many tests in each role tell a direction that is slow."""
_MOSTLY = 0.8
"""In this part of its tests in one role, a node is slow if that direction is."""


_SERVER = "as server"
_CLIENT = "as client"
_OTHER_ROLE = {_SERVER: _CLIENT, _CLIENT: _SERVER}
Array = TypeVar("Array", Floats, Ints, Flags)
Label = TypeVar("Label", int, str)


class EvidenceWriter:
    """Describes the evidence against a node, a NIC or a link.

    Its arrays have all tests, of one class after another; `Flags` choose some of them.
    """

    def __init__(self, readings: Readings, fitted: Fit, confidence: float) -> None:
        self._readings = readings
        self._fit = fitted
        self._bad: Flags = fitted.bad >= confidence
        # Per test: number of nodes, server, logarithm of the figure and of its part of the typical.
        self._nodes_per_test = self._of_class_per_test(lambda each: each.tests.nodes_per_test)
        self._server = self._for_all_tests(lambda each: each.tests.server)
        self._values = self._for_all_tests(lambda each: each.tests.values)
        self._failed: Flags = np.isnan(self._values)
        log_ratio = self._for_all_tests(lambda each: each.log_ratio)
        self._log_ratio: Floats = np.nan_to_num(log_ratio, nan=-np.inf)
        self._slow: Flags = self._log_ratio < fitted.slow
        self._kinds = self._kinds_of_tests()
        measured = self._values[~self._failed]
        best_figure = readings.figure(measured.max()) if len(measured) else 1.0  # any: no figure
        self._scale = scale(readings.metric.unit, best_figure)

    def of_node(self, node: int) -> str:
        """Return the evidence against a node."""
        name = self._fit.nodes[node]
        mine = self._tests_of(node)
        if not mine.any():
            return self._why_untested(node)
        pairs = mine & (self._nodes_per_test == 2)
        if not pairs.any():
            alone = (self._nodes_per_test[mine] == 1).any()
            where = "alone" if alone else "in groups"
            verdict = self._slow_or_fails(mine)
            return f"{name} {verdict} {where}{self._figures(mine)}."
        shown = self._pairs_with_healthy(node)
        what = "pairs" if (shown == pairs).all() else "pairs with healthy nodes"
        role = self._slow_role(node, shown)
        rest = ""
        if role:
            shown &= self._in_role(node, role)
            what = f"{what} {role}"
            rest = f", and is fine {_OTHER_ROLE[role]}"
        often = self._how_often(shown, what, rest)
        return f"{name} {often}."

    def shared_by(self, node: int) -> str:
        """Return what others may be slow by, too: a role (`as server`), else the node's group.

        Empty: there are no groups, or the node also fails, which others do not share.
        """
        mine = self._tests_of(node)
        if (mine & self._failed).any():
            return ""
        direction = self._slow_role(node, self._pairs_with_healthy(node))
        groups = self._fit.groups
        if direction or groups is None or groups.apart:  # groups of types are no place
            return direction
        return groups.names[int(groups.of[node])]

    def _pairs_with_healthy(self, node: int) -> Flags:
        """Return the pairs of a node with others that are not bad: these show something of it."""
        others = self._bad.copy()
        others[node] = False
        pairs = self._tests_of(node) & (self._nodes_per_test == 2)
        return pairs & ~self._tests_with_any_of(others)

    def _in_role(self, node: int, role: str) -> Flags:
        """Return the tests in which a node has a role.

        As client, also those that it is not in: combine with the tests of the node.
        """
        as_server: Flags = self._server == node
        return as_server if role == _SERVER else ~as_server

    def _slow_role(self, node: int, tests: Flags) -> str:
        """Return the role in which alone a node is slow in these tests; empty: there is none.

        It is slow in nearly all tests in this role, in hardly any in the other one, and was tested
        in both.
        """
        slow_in = {_SERVER: 0.0, _CLIENT: 0.0}  # role → the part of its tests that is slow
        for role in slow_in:
            slow = self._slow[tests & self._in_role(node, role)]
            if len(slow) < _TELLING:
                return ""
            slow_in[role] = float(slow.mean())
        worst = max(slow_in, key=slow_in.__getitem__)
        rest = slow_in[_OTHER_ROLE[worst]]
        if slow_in[worst] < _MOSTLY or rest > 1 - _MOSTLY:
            return ""
        return worst

    def of_nic(self, node: int, rail: str) -> str:
        """Return the evidence against one NIC of a node."""
        rail_of = self._of_class_per_test(lambda each: each.tests.rail)
        mine = self._tests_of(node)
        slow_rails = rail_of[mine & self._slow].tolist()
        fine_rails = {*rail_of[mine].tolist()}.difference(slow_rails, [rail])
        rest = ""
        if len(fine_rails) > 1:
            rest = f"; its other {len(fine_rails)} NICs are fine"
        often = self._how_often(mine & (rail_of == rail), "pairs", rest)
        name = self._fit.nodes[node]
        return f"{rail} of {name} {often}."

    def of_uplink(self, group: str) -> str:
        """Return the evidence against the uplink of a group."""
        assert self._fit.groups is not None  # noqa: S101 - one of them is bad
        number = list(self._fit.groups.names).index(group)
        inside = self._fit.groups.of == number

        crossing = self._tests_with_any_of(inside) & self._tests_with_any_of(~inside)
        often = self._how_often(crossing, "pairs with other groups")
        return f"{group} {often}."

    def of_path(self) -> str:
        """Return the evidence against the path between found groups."""
        pairs = self._fit.pairs
        healthy = all_healthy(self._fit.bad, pairs.members)
        fine = healthy & ~np.isnan(pairs.values)
        crossing = int((fine & pairs.between).sum())
        within = int(fine.sum()) - crossing
        slowest = min(each.path for each in self._fit.of_two())  # a negative logarithm
        factor = format_decimal(float(np.exp(-slowest)), 1)
        tests = counted(crossing, "pair")
        # Of several measurements (as many in each class), some load the path less.
        most = "up to " if self._fit.classes[0].tests.kinds > 1 else ""
        return f"{tests} between groups are {most}{factor}x slower than {within} within."

    def of_link(self, fitted_class: FittedClass, row: int) -> str:
        """Return the evidence against the link between the nodes of a test (`row` of the class).

        They are two, or more in logs of larger tests; or one that was tested alone. If it is slow
        only while one of two is the server, that is said, too.
        """
        pair = fitted_class.pairs[row].tolist()
        nodes = [self._fit.nodes[node] for node in pair]
        name = " – ".join(nodes)
        if len(nodes) > 2:
            first, *others = nodes
            name = f"{first} and {len(others)} others"
        fine_tests = (self._tests_of(node) & ~self._slow for node in pair)
        fine_elsewhere = all(tests.any() for tests in fine_tests)
        rest = "; each node is fine with others" if fine_elsewhere and pair[1:] else ""

        def of_row(other: FittedClass) -> Flags:
            return (other.factor_of == row) & (other is fitted_class)

        tests = self._for_all_tests(of_row)
        servers = [node for node in pair if self._slow_role(node, tests) == _SERVER]
        what = "tests"
        if len(nodes) == 2 and servers:
            tests &= self._in_role(servers[0], _SERVER)
            server = self._fit.nodes[servers[0]]
            what = f"tests with {server} {_SERVER}"
            rest = f", and is fine the other way{rest}"
        often = self._how_often(tests, what, rest)
        return f"{name} {often}."

    def _for_all_tests(self, values: Callable[[FittedClass], Array]) -> Array:
        """Return the values of all tests; `values` reads those of one class."""
        none = np.zeros(0, dtype=np.bool_)
        return np.concatenate([none, *map(values, self._fit.classes)])

    def _of_class_per_test(self, value: Callable[[FittedClass], Label]) -> "np.ndarray[Any, Any]":
        """Return test → a value of its class."""

        def repeated(fitted_class: FittedClass) -> "np.ndarray[Any, Any]":
            return np.full(len(fitted_class.log_ratio), value(fitted_class))

        return self._for_all_tests(repeated)

    def _kinds_of_tests(self) -> Ints:
        """Return test → a number: tests of one number have figures that can be compared."""
        classes = list(self._fit.classes)
        class_numbers = self._of_class_per_test(classes.index)
        series = self._for_all_tests(lambda each: each.tests.series)
        return (class_numbers << 32) + series  # a series has at most 32 bits

    def _tests_of(self, node: int) -> Flags:
        nodes = np.arange(len(self._fit.nodes))
        return self._tests_with_any_of(nodes == node)

    def _tests_with_any_of(self, nodes: Flags) -> Flags:
        """Return the tests in which any of some nodes is."""

        def meets(fitted_class: FittedClass) -> Flags:
            return np.any(nodes[fitted_class.tests.members], axis=1)

        return self._for_all_tests(meets)

    def _why_untested(self, node: int) -> str:
        """Return why nothing is known of a node, by the first log of it that could not be used."""
        name = self._fit.nodes[node]
        text = f"{name} has no usable test"
        for members, reason in self._readings.unusable.items():
            if node in members:
                return f"{text}: {quoted(reason)}"
        return f"{text}."

    def _how_often(self, tests: Flags, what: str, rest: str = "") -> str:
        # What follows the name of a suspect, such as: is slow in 7 of 8 pairs, and the figures.
        how = self._slow_or_fails(tests)
        slow = (tests & self._slow).sum()
        figures = self._figures(tests)
        return f"{how} in {slow} of {tests.sum()} {what}{rest}{figures}"

    def _slow_or_fails(self, tests: Flags) -> str:
        failed = (tests & self._failed).sum()  # these count as slow, too
        if not failed:
            return "is slow"
        slow = (tests & self._slow).sum()
        return "fails" if failed == slow else "is slow or fails"

    def _figures(self, tests: Flags) -> str:
        """Return, in parentheses, the figures of the slow among these tests, and those of others.

        Where tests measured different things, parts of the typical figures stand for figures.
        """
        words: list[str] = []
        name = self._scale.unit
        unit = f" {name}"
        kinds = np.unique(self._kinds[tests & ~self._failed])
        comparable = len(kinds) < 2
        slow = tests & self._slow & ~self._failed
        failed = tests & self._failed
        # What is fine, of all nodes: of the same kind, or of as many nodes if there is none.
        like = self._kinds if kinds.size else self._nodes_per_test
        alike = np.isin(like, like[tests])
        rest = ~tests & ~self._slow & alike
        if slow.any() and comparable:
            words.append(self._range_of_figures(self._values[slow]) + unit)
            unit = ""  # it is said once
        elif slow.any():
            parts = self._parts_of_typical(slow)
            words.append(f"{parts} of the typical figure")
        if failed.any():
            count = failed.sum()
            reason = self._reason(failed)
            words.append(f"{count} failed{reason}")
        if words and comparable and rest.any():
            figures = self._range_of_figures(self._values[rest])
            words.append(f"others {figures}{unit}")
        text = "; ".join(words)
        return f" ({text})" if words else ""

    def _parts_of_typical(self, tests: Flags) -> str:
        """Return which parts of their typical figures some tests have, such as "50–60%"."""
        parts = np.exp(self._log_ratio[tests])
        percent: list[float] = (100 * parts).tolist()
        ends = format_ends(percent, "{:.0f}".format, "–")
        return f"{ends}%"

    def _reason(self, failed: Flags) -> str:
        """Return why these tests failed: the first reason that is known, cut after a word."""
        nodes = compress(self._nodes_of_tests(), failed)
        reasons = map(self._readings.reasons.get, nodes)
        known = next(filter(None, reasons), "")
        reason = quoted(known).rstrip(".")
        if len(reason) > _LONGEST:
            whole_words, _, _ = reason[:_LONGEST].rpartition(" ")
            reason = f"{whole_words} …"
        return f": {reason}" if reason else ""

    def _nodes_of_tests(self) -> Sequence[tuple[int, ...]]:
        """Return the nodes of each test, ascending."""
        members = [each.tests.members.tolist() for each in self._fit.classes]
        return [tuple(nodes) for of_class in members for nodes in of_class]

    def _range_of_figures(self, values: Floats) -> str:
        """Return the range of figures, such as "1.2–1.3", to the two digits that noise allows.

        `values`: their logarithms, as `Readings` keeps them.
        """
        ends = np.array([values.min(), values.max()])
        if len(values) > _MANY:  # a few that stand out would hide where most are
            ends = np.quantile(values, (0.05, 0.95))
        figures = [two_digits(self._readings.figure(float(end))) for end in ends]
        return format_ends(figures, self._scale.text, "–")


def two_digits(figure: float) -> float:
    """Return a figure with the two digits that noise allows."""
    return float(format(figure, ".2g"))
