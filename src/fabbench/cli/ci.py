"""What a CI build shows of a command: JUnit XML, the job summary and the annotations of GitHub Actions.

Annotations go to standard error. GitHub's runner reads workflow commands from both streams of a step, and
standard output is for the result.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fabbench.cli import terminal
from fabbench.cli.options import require_writable
from fabbench.model.errors import FabbenchError
from fabbench.model.messages import printable

if TYPE_CHECKING:
    from fabbench.analysis.compare import Comparison
    from fabbench.analysis.gate_results import Verdict

_SUMMARY = "GITHUB_STEP_SUMMARY"


@dataclass(slots=True)
class BuildResult:
    """The result of a command. Filled in while it runs."""

    comparison: "Comparison | None" = None
    verdict: "Verdict | None" = None
    problem: str = ""  # A sentence, where the command ended early


@contextmanager
def build_result(name: str, junit: Path | None) -> Iterator[BuildResult]:
    """Yield a result to fill in; on exit, for any reason, report it to the build.

    Raise MachineError for a `junit` that cannot be written, before anything else.
    """
    if junit is not None:
        require_writable(junit, "--junit")
    result = BuildResult()
    try:
        yield result
    except FabbenchError as error:
        result.problem = f"{error} {error.hint or ''}".strip()
        raise
    except BaseException as error:
        result.problem = result.problem or f"{name} ended early: {type(error).__name__}."
        raise
    finally:
        _report(result, name, junit)


def _report(result: BuildResult, name: str, junit: Path | None) -> None:
    if junit is not None:
        from fabbench.report.ci_formats import to_junit

        text = to_junit(result.comparison, result.verdict, name=name, problem=result.problem)
        junit.write_text(text, "utf-8", errors="backslashreplace")
    if os.environ.get(_SUMMARY):
        _summarize(result, os.environ[_SUMMARY])
    if os.environ.get("GITHUB_ACTIONS") == "true":
        for line in annotations(result):
            terminal.workflow_command(line)


def _summarize(result: BuildResult, path: str) -> None:
    from fabbench.report.ci_formats import to_comment
    from fabbench.report.table import escaped

    parts = [to_comment(result.comparison, result.verdict)] if result.comparison is not None else []
    if result.problem:
        parts.append(f"### fabbench ended early\n\n{escaped(result.problem)}\n")
    try:
        with Path(path).open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(printable("\n".join([*parts, ""])))
    except OSError as error:
        terminal.notify(f"Warning: {_SUMMARY} ({path}) cannot be written: {error.strerror or error}.")


def annotations(result: BuildResult) -> Iterator[str]:
    """Yield a workflow command per problem, failed gate and configuration that cannot be trusted."""
    if result.problem:
        yield _error("fabbench", result.problem)
    if result.verdict is not None:
        for gate in result.verdict.results:
            if gate.breaches:
                yield _error(f"Gate {gate.gate}", "\n".join(gate.breaches))
    if result.comparison is not None:
        from fabbench.report.ci_formats import untrusted

        for index, column in enumerate(result.comparison.columns):
            if untrusted(result.comparison, index):
                yield _error(f"{column.label} is {column.outcome}", "\n".join(column.reasons))


def _error(title: str, text: str) -> str:
    return f"::error title={_escaped(title).replace(':', '%3A').replace(',', '%2C')}::{_escaped(text)}"


def _escaped(text: str) -> str:
    return printable(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
