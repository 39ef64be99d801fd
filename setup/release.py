"""Date a version: set it where it stands, and put it over what is "Unreleased" in the changelog.

`python setup/release.py 1.2.0` does that; `python setup/release.py --notes 1.2.0` prints what
stands under that version.
"""

import re
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHANGELOG = ROOT / "CHANGELOG.md"
PACKAGE = ROOT / "src/fabbench/__init__.py"
SERVER = ROOT / "server.json"
"""What the registry of MCP servers gets."""
ASSIGNED = re.compile(r'(?m)^__version__ = "(.*)"$')
VERSION = re.compile(r"\d+\.\d+\.\d+")


def section(title: str) -> str:
    """Return what stands below a heading of the changelog; empty if nothing does."""
    pattern = rf"(?ms)^## {re.escape(title)}(?: \(.*?\))?\n(.*?)(?=^## |\Z)"
    found = re.search(pattern, CHANGELOG.read_text("utf-8"))
    return found[1].strip() if found else ""


def number(version: str) -> list[int]:
    """Return a version as what sorts."""
    return [int(part) for part in version.split(".")]


def date(version: str) -> str:
    """Write the version and today's date; return the new heading."""
    package = PACKAGE.read_text("utf-8")
    (before,) = ASSIGNED.findall(package)
    if number(version) < number(before):
        sys.exit(f"release: {version} is older than {before}.")
    if section(version):
        sys.exit(f"release: the changelog has a section {version} already.")
    if not section("Unreleased"):
        sys.exit('release: nothing is "Unreleased" in the changelog.')
    heading = f"{version} ({datetime.now(UTC):%Y-%m-%d})"
    changelog = CHANGELOG.read_text("utf-8")
    CHANGELOG.write_text(changelog.replace("## Unreleased\n", f"## {heading}\n", 1), "utf-8")
    PACKAGE.write_text(ASSIGNED.sub(f'__version__ = "{version}"', package), "utf-8")
    server = SERVER.read_text("utf-8")
    SERVER.write_text(server.replace(f'"version": "{before}"', f'"version": "{version}"'), "utf-8")
    return heading


def main(words: list[str]) -> None:
    """Date a version, or print its notes."""
    if not words or not VERSION.fullmatch(words[-1]) or words[:-1] not in ([], ["--notes"]):
        sys.exit("usage: python setup/release.py [--notes] X.Y.Z")
    version = words[-1]
    printed = section(version) if len(words) > 1 else date(version)
    if not printed:
        sys.exit(f"release: the changelog has no section {version}.")
    sys.stdout.write(f"{printed}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
