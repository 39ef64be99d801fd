"""The conventions of GitHub's runner, as it documents them.

Expressions, files and variables of steps.

Jobs and composite actions run on this machine. Actions of others are not fetched: they are listed.
"""

import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_EXPRESSION = re.compile(r"\$\{\{ *([\w.-]+)(?: *\|\| *'([^']*)')? *\}\}")
"""A name, and what stands in for an empty one."""


@dataclass
class Job:
    """One job, or the steps of one composite action: what came of it."""

    folder: Path
    """The workspace; the runner's own files are beside it."""
    env: Mapping[str, str]
    contexts: dict[str, Any]
    """`inputs`, `github` and so on: names of expressions."""
    actions: Mapping[str, Path] = field(default_factory=dict)
    """What stands after `uses:` → the folder of its action.yml."""
    log: str = ""
    failed: bool = False
    left_out: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        """The summary of the build."""
        return self._file("summary").read_text("utf-8")

    def run(self, steps: list[dict[str, Any]], action: Path | None = None) -> "Job":
        """Run steps as the runner does: after a failed one, those only that always run."""
        self._file("temp").mkdir(exist_ok=True)
        self._file("summary").touch()
        known = self.contexts.setdefault("steps", {})
        for number, step in enumerate(steps):
            condition = step.get("if", "success()")
            assert condition in {"success()", "always()"}, condition
            if self.failed and condition == "success()":
                continue
            worked, outputs = self._step(step, number, action)
            self.failed |= not (worked or step.get("continue-on-error"))
            if "id" in step:
                known[step["id"]] = {"outputs": outputs}
        return self

    def text(self, text: str) -> str:
        """Put values in place of expressions; what is not known is empty, as there."""

        def value(match: re.Match[str]) -> str:
            found: Any = self.contexts
            for name in match[1].split("."):
                found = found.get(name, "") if isinstance(found, dict) else ""
            return str(found or match[2] or "")

        done = _EXPRESSION.sub(value, text)
        assert "${{" not in done, f"an expression that this runner does not know: {done}"
        return done

    def _step(
        self, step: dict[str, Any], number: int, action: Path | None
    ) -> tuple[bool, dict[str, str]]:
        if "uses" in step:
            return self._uses(step)
        if action is not None:
            assert step["shell"] == "bash"  # a composite action must name it
        script, output = self._file(f"step-{number}.sh"), self._file("output")
        script.write_text(self.text(step["run"]), "utf-8")
        output.write_text("")
        done = subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", str(script)],
            cwd=self.folder,
            env={
                **self._variables(action),
                **{k: self.text(v) for k, v in step.get("env", {}).items()},
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.log += done.stdout
        return done.returncode == 0, _outputs(output.read_text("utf-8"))

    def _uses(self, step: dict[str, Any]) -> tuple[bool, dict[str, str]]:
        folder = self.actions.get(step["uses"])
        if folder is None:
            self.left_out.append(step["uses"])
            return True, {}
        found = yaml.safe_load((folder / "action.yml").read_text("utf-8"))
        given = {name: self.text(str(value)) for name, value in step.get("with", {}).items()}
        assert set(given) <= set(found["inputs"]), "an input that the action has not"
        missing = {name for name, about in found["inputs"].items() if about.get("required")} - set(
            given
        )
        assert not missing, missing
        defaults = {name: about.get("default", "") for name, about in found["inputs"].items()}
        inner = Job(
            self.folder, self.env, {**self.contexts, "steps": {}, "inputs": {**defaults, **given}}
        )
        inner.run(found["runs"]["steps"], folder)
        self.log += inner.log
        values = {name: inner.text(about["value"]) for name, about in found["outputs"].items()}
        return not inner.failed, values

    def _variables(self, action: Path | None) -> dict[str, str]:
        files = {"GITHUB_OUTPUT": "output", "GITHUB_STEP_SUMMARY": "summary", "RUNNER_TEMP": "temp"}
        own = {name: str(self._file(file)) for name, file in files.items()}
        own |= {"CI": "true", "GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(self.folder)}
        own |= {"GITHUB_ACTION_PATH": str(action)} if action else {}
        return {**os.environ, **self.env, **own}

    def _file(self, name: str) -> Path:
        return self.folder.with_name(f"{self.folder.name}-{name}")


COMMANDS = frozenset({
    *("add-mask", "add-matcher", "add-path", "debug", "echo", "endgroup", "error", "group"),
    *("notice", "remove-matcher", "save-state", "set-env", "set-output", "stop-commands"),
    "warning",
})  # fmt: skip


def workflow_commands(log: str) -> list[str]:
    """Return the commands that the runner obeys, by the rules of its ActionCommand.cs."""
    found = []
    for line in re.split(r"\r\n|\r|\n", log):
        start = line.lstrip()
        name = start[2:].partition("::")[0].partition(" ")[0].lower()
        if start.startswith("::") and "::" in start[2:] and name in COMMANDS:
            found.append(name)
            continue
        _, bracket, rest = line.partition("##[")
        name = rest.partition("]")[0].partition(" ")[0].lower()
        if bracket and "]" in rest and name in COMMANDS:
            found.append(name)
    return found


def _outputs(text: str) -> dict[str, str]:
    """Read lines NAME=VALUE; this runner knows no others."""
    pairs = [line.partition("=") for line in text.splitlines()]
    assert all(name and middle for name, middle, _ in pairs), text
    return {name: value for name, _, value in pairs}
