"""The ways in which lines of a benchmark are found in logs.

Behind which prefix, and as part of what.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from tests.support.paths import DATA

Form = Callable[[int, str], str]
"""Line number (from 1) and text → the line in the log."""

_START = datetime(2026, 5, 1, 10, 0, 0, tzinfo=UTC)


def _at(number: int) -> datetime:
    return _START + timedelta(milliseconds=37 * number)


def _template(template: str) -> Form:
    """`%` codes are those of strftime.

    `{n}` is the line's number, `{ms}` the time's milliseconds.
    """

    def line(number: int, text: str) -> str:
        time = _at(number)
        before = time.strftime(template.replace("{n}", str(number)))
        return before.replace("{ms}", f"{time.microsecond // 1000:03d}") + text

    return line


def _docker_json(number: int, text: str) -> str:
    entry = {"log": f"{text}\n", "stream": "stdout", "time": _at(number).isoformat()}
    return json.dumps(entry)


def _nested_json(number: int, text: str) -> str:
    return json.dumps(
        {
            "@timestamp": _at(number).isoformat(),
            "kubernetes": {"pod": "a"},
            "body": {"message": text},
        }
    )


def _numbered(width: int, behind: str) -> Form:
    return lambda number, text: f"{number:{width}d}{behind}{text}"


FORMS: Mapping[str, Form] = {
    **{
        name: _template(each)
        for name, each in json.loads((DATA / "prefixes.json").read_text("utf-8")).items()
    },
    "CRLF": lambda _, text: f"{text}\r",
    "docker's json-file": _docker_json,
    "JSON, nested": _nested_json,
    "ansible stdout_lines": lambda _, text: f"        {json.dumps(text)},",
    "a cell of a table": lambda _, text: f"| {text} |",
}
NUMBERED: Mapping[str, Form] = {
    "cat -n": _numbered(6, "\t"),
    "nl, less -N": _numbered(7, " "),
    "grep -n": _numbered(1, ":"),
}
"""Numbers of all lines, one after another: else a number before a row could be its size."""


def behind(form: str, lines: Iterable[str]) -> str:
    """Write lines as they are found in a log of a form."""
    write = FORMS.get(form) or NUMBERED[form]
    return "".join(f"{write(number, line)}\n" for number, line in enumerate(lines, start=1))
