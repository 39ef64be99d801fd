"""Debian's Chromium without a screen, driven over its debugging pipe: pages as a browser sees them.

`setup/prepare slow` installs it on Debian (300 MB). Elsewhere its tests are left out where it is
missing, but not in CI.
"""

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from tests.support.needed import refuse, strict

_FLAGS = (
    "--headless",
    "--disable-gpu",
    "--hide-scrollbars",
    "--remote-debugging-pipe",
    "--no-first-run",
)
_NAMES = ("chromium", "chromium-browser", "google-chrome")
_PATIENCE_S = 120


@dataclass
class Browser:
    """One tab. What the browser says besides answers is kept in `events`."""

    to: IO[bytes]
    back: IO[bytes]
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    _sent: int = 0

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method of the DevTools protocol."""
        self._send(method, parameters)
        while True:
            found = self._next()
            if found.get("id") == self._sent:
                assert "error" not in found, found
                answer: dict[str, Any] = found["result"]
                return answer
            self.events.append(found)

    def close(self) -> None:
        """Ask the browser to end."""
        self.session = ""
        self._send("Browser.close", {})

    def _send(self, method: str, parameters: dict[str, Any]) -> None:
        self._sent += 1
        message: dict[str, Any] = {"id": self._sent, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        self.to.write(json.dumps(message).encode() + b"\0")
        self.to.flush()

    def open(self, page: Path) -> None:
        """Load a page, and wait for all of it."""
        self.events.clear()
        self.ask("Page.navigate", url=page.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())
        self.settle()

    def value(self, expression: str) -> Any:
        """Return what a JavaScript expression is, as plain data."""
        found = self.ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def look(self, *, width: int = 1200, media: str = "screen", scheme: str = "light") -> None:
        """Change the width of the window, what it is shown on, and the reader's color scheme."""
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.ask("Emulation.setDeviceMetricsOverride", **size)
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.ask("Emulation.setEmulatedMedia", media=media, features=features)
        self.settle()

    def settle(self) -> None:
        """Wait until the page is drawn as it now is."""
        drawn = (
            "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))"
        )
        self.ask("Runtime.evaluate", expression=drawn, awaitPromise=True)

    def press(self, key: str) -> None:
        """Press and release a key."""
        for kind in ("keyDown", "keyUp"):
            self.ask(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=9
            )

    def _next(self) -> dict[str, Any]:
        text = bytearray()
        while (byte := self.back.read(1)) != b"\0":
            assert byte, "the browser ended"
            text += byte
        found: dict[str, Any] = json.loads(text)
        return found


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """Start a browser whose files are in `folder`; leave the test out where there is none."""
    program = next(filter(None, map(shutil.which, _NAMES)), None)
    if program is None:
        refuse(
            "no Chromium: setup/prepare slow installs Debian's", fail=strict("FABBENCH_REQUIRE_LAB")
        )
    ends = [
        fcntl.fcntl(end, fcntl.F_DUPFD, 20)
        for pair in (os.pipe(), os.pipe())
        for end in _closing(pair)
    ]
    reads, writes, answers, says = ends
    argv = [program, *_FLAGS, f"--user-data-dir={folder}", "--disk-cache-size=1", "about:blank"]
    argv += ["--no-sandbox"] if os.geteuid() == 0 else []
    script = 'exec "$@" 3<&"$READS" 4>&"$SAYS"'
    given = {**os.environ, "READS": str(reads), "SAYS": str(says), "HOME": str(folder)}
    with (
        os.fdopen(writes, "wb") as to,
        os.fdopen(answers, "rb") as back,
        subprocess.Popen(
            ["bash", "-c", script, "browser", *argv],
            env=given,
            pass_fds=(reads, says),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as process,
    ):
        os.close(reads)
        os.close(says)
        try:
            found = _tab(Browser(to, back))
            yield found
            found.close()
            process.wait(_PATIENCE_S)
        finally:
            process.kill()


def _closing(pair: tuple[int, int]) -> Iterator[int]:
    """Yield both ends of a pipe.

    Close each when its copy is made: numbers 3 and 4 are the browser's.
    """
    for end in pair:
        yield end
        os.close(end)


def _tab(found: Browser) -> Browser:
    targets = found.ask("Target.getTargets")["targetInfos"]
    page = next(each["targetId"] for each in targets if each["type"] == "page")
    found.session = found.ask("Target.attachToTarget", targetId=page, flatten=True)["sessionId"]
    for domain in ("Page", "Network", "Accessibility", "Log", "Runtime"):
        found.ask(f"{domain}.enable")
    return found
