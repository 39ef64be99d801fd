"""The official client of MCP, and a `fabbench mcp` that it starts."""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from tests.support.hosts import Lab
from tests.support.paths import ROOT

T = TypeVar("T")


def session(
    root: Path,
    use: Callable[[Client], Awaitable[T]],
    *options: str,
    cwd: Path = ROOT,
    lab: Lab | None = None,
    **env: str,
) -> T:
    """Return what a client gets of a server that reads a directory; on the client of a lab."""
    words = [sys.executable, "-m", "fabbench", "mcp", "--root", str(root), *options]
    environment = {name: value for name, value in os.environ.items() if name != "FABBENCH_STORE"}
    environment |= {"FABBENCH_NEIGHBORS": "ignore", **env}
    if lab:
        words, environment = lab.argv(words), lab.environment(env)
    parameters = StdioServerParameters(
        command=words[0], args=words[1:], env=environment, cwd=str(cwd)
    )

    async def connected() -> T:
        # A stream that has a number, as pytest's has not
        with Path(os.devnull).open("w") as nowhere:  # noqa: ASYNC230 - nobody waits meanwhile
            async with Client(stdio_client(parameters, errlog=nowhere)) as client:
                return await use(client)

    return asyncio.run(connected())


async def answered(client: Client, **given: Any) -> dict[str, Any]:
    """Return the answer of the tool that runs."""
    content: dict[str, Any] = (await client.call_tool("run", given)).structured_content
    return content
