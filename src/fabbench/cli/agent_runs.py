"""The one tool that acts: a run on the target of `fabbench mcp --allow-run`, after its dry run.

It is started in a process of its own, which ends with this one; what reads stays confined.
"""

import asyncio
import secrets
from dataclasses import dataclass

from anyio import CancelScope

from fabbench.benchmarks import runnable
from fabbench.cli import confined
from fabbench.cli.agent_tools import answer_of, tools
from fabbench.model.errors import Exit
from fabbench.remote.transport import Here
from fabbench.report.table import PlainData

RUN = "run"  # Its name


@dataclass
class Runs:
    """Runs on one target."""

    target: str
    shown: object = None  # Token and words of the last dry run

    async def answer(self, given: PlainData) -> PlainData:
        """Run what is asked with the token of just its dry run; else return a dry run and a token.

        Raise RequestError.
        """
        token = given.pop("token", None)
        runnable(str(given.get("benchmark")))  # No option, and not several words
        words = [
            *tools()[RUN].words(given),
            f"--on={self.target}",
        ]
        is_shown = self.shown == (token, words)
        self.shown = None  # A token works once
        if is_shown:
            return await self._fabbench(*words, "--json")
        answered = await self._fabbench(*words, "--dry-run")
        if answered["result"]:
            token = secrets.token_hex(8)
            answered["result"]["token"] = token
            self.shown = (token, words)
        return answered

    async def _fabbench(self, _: str, *words: str) -> PlainData:
        run = Here("here").open([*confined.STARTABLE, *words])  # With the first word
        reading = asyncio.create_task(asyncio.to_thread(list, run.lines()))
        try:
            await asyncio.shield(reading)
        finally:  # Also if this is cancelled
            run.end_input()
            with CancelScope(shield=True):
                out = await reading
        code = run.status or 0
        status = Exit.INTERRUPTED if code < 0 else Exit(code)  # By a signal, before it began
        return answer_of("\n".join(out), "\n".join(run.err), status)
