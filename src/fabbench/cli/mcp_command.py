"""``fabbench mcp``: tools for agents."""

import os
import signal
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabbench.cli.click_options import OptionType
from fabbench.cli.options import takes
from fabbench.model.errors import MachineError, RequestError
from fabbench.model.options import Seconds
from fabbench.runs.directories import ENVIRONMENT_VARIABLE

if TYPE_CHECKING:
    from fabbench.cli.agent_runs import Runs


@click.command("mcp")
@click.option(
    "--root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    metavar="DIRECTORY",
    help="Read only what is in and below this directory, and the store. Default: this directory.",
)
@click.option(
    "--allow-run",
    metavar="TARGET",
    help="Let agents run benchmarks there, as run --on TARGET would, each after its dry run.",
)
@click.option(
    "--max-time",
    type=OptionType(Seconds()),
    metavar="SECONDS",
    help="End a run of an agent after this long. Default: 1h.",
)
@takes("store")
def mcp_(root: Path, allow_run: str | None, max_time: float | None, store: Path) -> None:
    """Let agents read logs and past runs: an MCP server on standard input and output.

    Tools: explain, parse, compare, sweep_from, expected, runs, show, history, render and
    describe_finding, with the JSON of these commands. None of them starts a benchmark, writes a
    file, or reaches a host. With --allow-run there is one that does: run. The server ends when its
    input does.

    Example: claude mcp add fabbench -- fabbench mcp --root /data/logs
    """
    if max_time and not allow_run:
        raise RequestError("--max-time has no effect without --allow-run.")
    try:
        from fabbench.cli.mcp_server import new_server
    except ImportError as error:
        raise MachineError(
            "The server needs the package mcp, version 2.", hint="pip install 'fabbench[mcp]'"
        ) from error
    from fabbench.cli import confined
    from fabbench.config import find_config
    from fabbench.runs import inputs, parse_file

    runs = _runs_on(allow_run, max_time or 3600) if allow_run else None
    inputs.CORES = 1  # A tool that reads starts no process
    parse_file.MAX_BYTES = confined.MOST_READ
    config = find_config(Path.cwd(), os.environ)
    confined.READABLE += [path.resolve() for path in (root, store, config) if path]
    os.environ[ENVIRONMENT_VARIABLE] = str(store.resolve())
    os.chdir(root)  # Agents name what is below it
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    sys.addaudithook(confined.hook)
    # The protocol takes the stream itself: on it, nothing is made safe
    with redirect_stdout(sys.__stdout__):
        new_server(runs).run()


def _runs_on(target: str, seconds: float) -> "Runs":
    """Return what runs on a target, each run for so long.

    Raise FabbenchError if nothing has that name.
    """
    from fabbench.cli import confined
    from fabbench.cli.agent_runs import Runs
    from fabbench.cli.config_file import configuration
    from fabbench.config import resolve
    from fabbench.config.given import Given
    from fabbench.launchers import options_of_launchers

    resolve(
        {"on": Given(target)},
        configuration(None, os.environ),
        options_of_launchers(),
        os.environ,
    )
    confined.STARTABLE += [
        sys.executable,
        "-P",
        "-m",
        "fabbench.cli.until_input_ends",
        str(Path.cwd()),
        str(seconds),
        "run",
    ]
    return Runs(target)
