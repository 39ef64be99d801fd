"""Measures the install: what `uvx --from . fabbench explain LOG` takes, and how large it is.

`python -m tests.performance.install` prints the rows of docs/developing.md. It loads everything
from the index that uv is set up for, once with an empty cache; figures belong to that network and
machine.
"""

import sys
import tempfile
from pathlib import Path
from statistics import median

from tests.performance.run import took
from tests.support.paths import EXAMPLES, ROOT

UV = str(Path(sys.executable).with_name("uv"))
LOG = str(EXAMPLES / "logs/x-ofi-tcp.txt")
WARM = 7
"""Starts with everything in the cache."""
EXTRAS = ("", "[mcp]", "[mcp,png]")


def seconds_of_uvx(cache: Path) -> float:
    run = (UV, "tool", "run", "--cache-dir", str(cache), "--from", str(ROOT))
    return took((*run, "fabbench", "explain", LOG)).seconds


def size_of(extra: str, folder: Path, cache: Path) -> tuple[int, float]:
    """Return how many distributions an install has, and its megabytes without bytecode."""
    where = ("--cache-dir", str(cache), "--quiet")
    took((UV, "venv", *where, "--python", sys.executable, str(folder)))
    python = str(folder / "bin/python")
    took((UV, "pip", "install", *where, "--python", python, f"{ROOT}{extra}"))
    (packages,) = folder.glob("lib/python*/site-packages")
    files = [path for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return len([*packages.glob("*.dist-info")]), sum(path.stat().st_size for path in files) / 1e6


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="fabbench-install-") as name:
        cache = Path(name, "cache")
        cold = seconds_of_uvx(cache)
        warm = median(seconds_of_uvx(cache) for _ in range(WARM))
        print("| `uvx --from . fabbench explain LOG` | seconds |\n|---|---:|")
        print(f"| with an empty cache | {cold:.1f} |")
        print(f"| with a full one, median of {WARM} | {warm:.2f} |\n")
        print("| install | distributions | MB |\n|---|---:|---:|")
        for number, extra in enumerate(EXTRAS):
            count, megabytes = size_of(extra, Path(name, str(number)), cache)
            print(f"| `fabbench{extra}` | {count} | {megabytes:.0f} |")


if __name__ == "__main__":
    main()
