"""Draw docs/screen.svg and docs/page.png from examples/logs: `python docs/screenshots.py`."""  # noqa: INP001 - a script

import contextlib
import re
import subprocess  # noqa: TID251 - chromium
import tempfile
from io import StringIO
from pathlib import Path
from unittest.mock import patch

from rich.console import Console

import fabbench
from fabbench.cli import cli, terminal
from fabbench.cli.live import RunScreen
from fabbench.model.log import Point
from fabbench.model.plan import Execution
from fabbench.plan.build import plan
from fabbench.testing import Replay, sample_run

HERE = Path(__file__).parent
TITLE = "fabbench run nccl --fabric ofi-tcp --fabric tcp --on prod"
LOGS = HERE.parent / "examples/logs"
PUBLISHED = "published-p4d-efa.txt", "published-p4d-tcp.txt"
CHROMIUM = (
    "chromium",
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--window-size=1100,880",
)


class _Screen(RunScreen):
    def point(self, execution: Execution, point: Point) -> None:
        """Draw the screen after 85 figures, each of which took half a second."""
        super().point(execution, point)
        seen.append(point)
        if len(seen) == 85:
            self.tick()
            drawn = console.export_svg(title=TITLE, unique_id="screen")
            (HERE / "screen.svg").write_text(
                re.sub(r"(?s)@font-face \{.*?\}\s*", "", drawn), "utf-8"
            )


if __name__ == "__main__":
    seen: list[Point] = []
    console = Console(file=StringIO(), width=96, height=16, record=True, force_terminal=True)
    names = {"ofi-tcp": "x-ofi-tcp.txt", "tcp": "x-net-socket.txt"}
    replay = Replay(
        log=lambda each: Path(names[each.configuration.fabric]).read_text("utf-8").splitlines()
    )
    with tempfile.TemporaryDirectory() as store, contextlib.chdir(LOGS):
        request = fabbench.request(
            "nccl", fabrics=(*names,), repeats=3, max_bytes="64M", store=Path(store)
        )
        shown = patch.multiple(terminal, is_live=lambda: True, console=lambda: console)
        with shown, terminal.changing() as show:
            screen = _Screen(plan(request, replay.inventory), show, clock=lambda: len(seen) / 2)
            sample_run(request, replay, watcher=screen)
        page = f"{store}/page.html"
        cli.main(["report", *PUBLISHED, "-o", page], standalone_mode=False)
        subprocess.run(
            [*CHROMIUM, f"--screenshot={HERE / 'page.png'}", f"file://{page}"], check=True
        )
